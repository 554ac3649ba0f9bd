// Memory files without names, which peers open through /proc/PID/fd.
#pragma once

#include "transports/shm/sharing.h"

namespace ropewalk::shm {

/// Shares: descriptor, offset in the file, the file's inode number (its owner may have died, and
/// its pid be another's).
class MemfdSharing final : public Sharing {
 public:
  std::string_view name() const override { return "shm"; }
  bool shares_files() const override { return true; }
  /// Sparse: what is not touched takes no memory.
  std::unique_ptr<TransportAllocation> allocate(size_t bytes) override;
  Share share(const Region& region) override;
  std::unique_ptr<Mapping> map(const MailboxAddress& owner, const Share& share,
                               uint64_t bytes) override;
};

}  // namespace ropewalk::shm
