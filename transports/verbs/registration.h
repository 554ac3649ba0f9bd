// Memory that adapters may read and write.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "ropewalk/transport.h"
#include "transports/verbs/adapter.h"
#include "transports/verbs/ports.h"

namespace ropewalk::verbs {

/// Registered with every adapter, so that each lane may use it. Addresses on the wire count from
/// `base()` (ibv_reg_mr_iova), so that a key and an offset name a byte on all adapters alike.
class Registration final : public Memory {
 public:
  /// Whole pages from the one that holds `region.base`. Throws Error(exhausted) with the limit to
  /// raise, Error(unavailable) where an adapter cannot have such memory.
  Registration(const Region& region, std::span<const std::shared_ptr<Adapter>> adapters);
  ~Registration() override;
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  RemoteKey key() const override { return key_; }
  const std::byte* base() const override { return base_; }
  bool contains(const std::byte* source, size_t bytes) const {
    return source >= base_ && bytes <= key_.bytes &&
           static_cast<size_t>(source - base_) <= key_.bytes - bytes;
  }
  uint32_t local_key(size_t adapter) const { return regions_[adapter]->lkey; }

 private:
  void end();

  std::byte* base_ = nullptr;
  RemoteKey key_;
  std::array<ibv_mr*, kAdaptersMax> regions_{};
};

/// The part of a key that is for writes to adapter `adapter`.
constexpr uint32_t remote_key(RemoteKey key, size_t adapter) {
  return static_cast<uint32_t>(key.id >> (32 * adapter));
}

}  // namespace ropewalk::verbs
