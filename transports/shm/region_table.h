// How a rank tells its local peers which of its memory they may map, and how they find it.
//
// A key's id is (generation << kSlotBits | slot). A slot is used again, a generation never: an id
// names one registration for the life of the transport, so that a mapping cached under an id is
// never taken for another region.
#pragma once

#include <mutex>

#include "transports/shm/notice_ring.h"
#include "transports/shm/sharing.h"

namespace ropewalk::shm {

inline constexpr unsigned kSlotBits = 14;
inline constexpr size_t kRegionsMax = size_t{1} << kSlotBits;

/// One registration, as a sequence lock: the owner writes `id` last when it publishes and clears it
/// first when it withdraws; a reader that finds the same id before and after has read, and mapped,
/// what belongs together. Stores release and loads acquire, so that a reader who sees a newer field
/// also sees that the old id is gone.
struct RegionEntry {
  std::atomic<uint64_t> id;  // 0: none
  std::atomic<uint64_t> bytes;
  std::array<std::atomic<uint64_t>, Share::kWords> share;
};

struct RegionTable {
  alignas(kLineBytes) std::atomic<uint64_t> withdrawn;  // count; tells readers to look again
  RegionEntry entries[kRegionsMax];
};

/// The owner's side. Thread-safe: buffers die on whichever thread drops them.
class RegionPublisher {
 public:
  RegionPublisher(RegionTable& table, Sharing& sharing) : table_(table), sharing_(sharing) {}
  /// Returns the new id. Throws Error(exhausted) when kRegionsMax are published, and what
  /// Sharing::share throws.
  uint64_t publish(const Region& region);
  void withdraw(uint64_t id);

 private:
  std::mutex mutex_;
  RegionTable& table_;
  Sharing& sharing_;
  uint64_t generation_ = 0;
  // Slots below this are taken. The lowest is taken first, which keeps readers' caches short.
  size_t free_from_ = 0;
};

/// A peer's side: the regions of one owner that are mapped here.
class PeerRegions {
 public:
  PeerRegions() = default;
  PeerRegions(const RegionTable& table, Sharing& sharing, const MailboxAddress& owner)
      : table_(&table), sharing_(&sharing), owner_(owner) {}

  /// Where `offset` of region `id` lies here. Null, with the reason in why(), where fewer than
  /// `bytes` follow or the region cannot be mapped. Makes system calls the first time only.
  std::byte* find(uint64_t id, uint64_t offset, size_t bytes) {
    const uint64_t slot = id % kRegionsMax;
    if (slot >= mapped_.size() || mapped_[slot].id != id || id == 0) [[unlikely]]
      if (!map(id)) return nullptr;
    Mapped& region = mapped_[slot];
    if (offset > region.bytes || bytes > region.bytes - offset) [[unlikely]]
      return refuse_range(region.bytes, offset, bytes);
    if (offset < region.present_from || offset + bytes > region.present_to) [[unlikely]]
      if (!make_present(region, offset, bytes)) return nullptr;
    return region.base + offset;
  }
  /// Unmaps what the owner has withdrawn, so that its memory is really freed.
  void unmap_deregistered();
  const std::string& why() const { return why_; }
  /// What to do about it, where the reason lies in this process; else empty.
  const std::string& advice() const { return advice_; }

 private:
  struct Mapped {
    uint64_t id = 0;
    uint64_t bytes = 0;
    std::byte* base = nullptr;  // of `mapping`
    std::unique_ptr<Mapping> mapping;
    uint64_t present_from = 0, present_to = 0;  // without a fault; to more than was asked for
  };
  bool map(uint64_t id);
  bool make_present(Mapped& region, uint64_t offset, size_t bytes);
  bool refuse(const Error& error);
  Mapped map_entry(const RegionEntry& entry, uint64_t id) const;
  std::byte* refuse_range(uint64_t region_bytes, uint64_t offset, size_t bytes);

  const RegionTable* table_ = nullptr;
  Sharing* sharing_ = nullptr;
  MailboxAddress owner_;
  std::vector<Mapped> mapped_;  // by slot
  uint64_t withdrawn_seen_ = 0;
  std::string why_, advice_;
};

}  // namespace ropewalk::shm
