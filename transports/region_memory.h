// A registration for transports that look the target of every put up by its key.
#pragma once

#include "memory/regions.h"
#include "ropewalk/transport.h"

namespace ropewalk {

class RegionMemory : public MemoryRegistration {
 public:
  /// `regions` must outlive it.
  RegionMemory(Regions& regions, const Region& region)
      : regions_(regions), key_{regions.add(region), region.bytes}, base_(region.base) {}
  ~RegionMemory() override { regions_.remove(key_.id); }
  RemoteKey key() const override { return key_; }
  const std::byte* base() const override { return base_; }

 private:
  Regions& regions_;
  const RemoteKey key_;
  const std::byte* const base_;
};

}  // namespace ropewalk
