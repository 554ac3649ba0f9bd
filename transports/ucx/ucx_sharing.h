// Memory that UCX shares within a host, for the transport over shared memory: UCX allocates it in
// its memory domains (posix, sysv), and tells peers' processes where they see it (uct_rkey_ptr).
#pragma once

#include <array>
#include <string>

#include "transports/shm/sharing.h"
#include "transports/ucx/resources.h"

namespace ropewalk::ucx {

/// Uses UCX's lower half, UCT: its upper half gives the same pointers (ucp_rkey_ptr), but ends the
/// process where the owner of a key has died (1.13: what could not be mapped is unmapped).
///
/// Shares: the place of the domain in the list below, the region's address in its owner, then UCX's
/// packed key. That names no owner: where one has died, and its process number or segment is
/// another's, a peer may map that instead, and writes there until it hears of the death.
/// UCX_TLS says which domains are used, UCX_SYSV_* and UCX_POSIX_* how.
class UcxSharing final : public shm::Sharing {
 public:
  /// Throws Error(unavailable), also where UCX_TLS allows neither posix nor sysv.
  UcxSharing();

  std::string_view name() const override { return "ucx/shm"; }
  bool shares_files() const override { return false; }
  std::unique_ptr<TransportAllocation> allocate(size_t bytes) override;
  shm::Share share(const Region& region) override;
  std::unique_ptr<shm::Mapping> map(const shm::MailboxAddress& owner, const shm::Share& share,
                                    uint64_t bytes) override;

 private:
  struct Source {
    std::string name;
    uct_component_h component = nullptr;
    DomainHandle handle = {};  // null where it is not used
  };

  // The same on all ranks. Memory comes from the first that has some, as with UCX_ALLOC_PRIO.
  std::array<Source, 2> sources_ = {{{.name = "sysv"}, {.name = "posix"}}};
};

}  // namespace ropewalk::ucx
