// Memory as adapters know it.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "memory/registration_cache.h"
#include "ropewalk/transport.h"
#include "transports/verbs/devices.h"
#include "transports/verbs/ports.h"

namespace ropewalk::verbs {

/// Pages as every adapter knows them, so that each lane may use them. Addresses on the wire are
/// the keys' own (ibv_reg_mr_iova), so that a key and an offset name a byte on all adapters alike.
/// They begin at `first`, which is where the pages begin within 2 MiB of their address space or
/// file, so that adapters can map huge pages whole.
class AdapterPages final : public PinnedPages {
 public:
  /// `pages.base` begins a page. Throws Error(exhausted) with the limit
  /// to raise, Error(unavailable) where an adapter cannot have such memory.
  AdapterPages(const Region& pages, std::span<const std::shared_ptr<Adapter>> adapters);

  /// The rkeys, one in each half.
  uint64_t id() const { return id_; }
  uint64_t first() const { return first_; }
  uint32_t local_key(size_t adapter) const { return regions_[adapter]->lkey; }

 private:
  const uint64_t first_;
  uint64_t id_ = 0;
  std::array<Owned<ibv_mr, ibv_dereg_mr>, kAdaptersMax> regions_;
};

/// Memory that adapters may read and write: whole pages, from the one that holds the region's first
/// byte.
class Registration final : public MemoryRegistration {
 public:
  /// Of this registration alone.
  Registration(const Region& pages, std::unique_ptr<AdapterPages> own);
  /// Shared with others, through the cache.
  explicit Registration(std::unique_ptr<RegistrationCache::Use> use);

  RemoteKey key() const override { return {pages_->id(), pages_->first() + bytes_}; }
  const std::byte* base() const override {
    return reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(begin_) -
                                              pages_->first());
  }
  bool current() const override { return use_ == nullptr || use_->current(); }
  bool contains(const std::byte* source, size_t bytes) const {
    return source >= begin_ && bytes <= bytes_ &&
           static_cast<size_t>(source - begin_) <= bytes_ - bytes;
  }
  uint32_t local_key(size_t adapter) const { return pages_->local_key(adapter); }

 private:
  const std::byte* begin_;
  const size_t bytes_;
  std::unique_ptr<AdapterPages> own_;
  std::unique_ptr<RegistrationCache::Use> use_;
  const AdapterPages* pages_;
};

/// The part of a key that is for writes to adapter `adapter`.
constexpr uint32_t remote_key(RemoteKey key, size_t adapter) {
  return static_cast<uint32_t>(key.id >> (32 * adapter));
}

}  // namespace ropewalk::verbs
