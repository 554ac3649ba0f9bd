#include "transports/shm/region_table.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cassert>

namespace ropewalk::shm {
namespace {

/// Of regions that have no huge pages, in bytes: what is made present at once. Ranks use a part of
/// most: their own inbox of many, their own window.
constexpr uint64_t kPresentBytes = 16 << 10;

void want_huge_pages(std::byte* base, uint64_t bytes) {
  std::byte* const page = base - reinterpret_cast<uintptr_t>(base) % page_bytes();
  madvise(page, bytes + static_cast<size_t>(base - page), MADV_HUGEPAGE);
}

}  // namespace

uint64_t RegionPublisher::publish(const Region& region) {
  const Share share = sharing_.share(region);
  const std::lock_guard lock(mutex_);
  size_t slot = free_from_;
  while (slot < kRegionsMax && table_.entries[slot].id.load(std::memory_order_relaxed) != 0) ++slot;
  if (slot == kRegionsMax)
    throw Error(ErrorCode::exhausted, "register memory",
                fmt::format("{} regions are registered, which is the limit of shm", kRegionsMax),
                "allocate fewer and larger buffers");
  free_from_ = slot + 1;
  RegionEntry& entry = table_.entries[slot];
  entry.bytes.store(region.bytes, std::memory_order_release);
  for (size_t i = 0; i < Share::kWords; ++i)
    entry.share[i].store(share.words[i], std::memory_order_release);
  const uint64_t id = ++generation_ << kSlotBits | slot;
  entry.id.store(id, std::memory_order_release);
  return id;
}

void RegionPublisher::withdraw(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const size_t slot = id % kRegionsMax;
  assert(table_.entries[slot].id.load(std::memory_order_relaxed) == id);
  // The caller frees the memory only afterwards: a peer that still finds the id once it has mapped
  // what the entry says has mapped this.
  table_.entries[slot].id.store(0, std::memory_order_seq_cst);
  table_.withdrawn.fetch_add(1, std::memory_order_release);
  free_from_ = std::min(free_from_, slot);
}

bool PeerRegions::map(uint64_t id) {
  const uint64_t slot = id % kRegionsMax;
  const RegionEntry& entry = table_->entries[slot];
  try {
    if (id == 0 || entry.id.load(std::memory_order_acquire) != id)
      throw Error(ErrorCode::protocol, "map",
                  fmt::format("it has no region {:#x} registered: it has freed the memory", id),
                  "every buffer must live until its call has ended");
    Mapped mapped = map_entry(entry, id);
    if (slot >= mapped_.size()) mapped_.resize(slot + 1);
    mapped_[slot] = std::move(mapped);
    return true;
  } catch (const Error& error) {
    return refuse(error);
  }
}

/// So that no later access there faults. The owner has all of its pages.
bool PeerRegions::make_present(Mapped& region, uint64_t offset, size_t bytes) try {
  if (bytes == 0) return true;
  const bool has_huge_pages = region.bytes >= kHugePageBytes;
  const uint64_t from = has_huge_pages ? 0 : offset / kPresentBytes * kPresentBytes;
  const uint64_t to =
      has_huge_pages ? region.bytes
                     : std::min<uint64_t>(region.bytes, round_up(offset + bytes, kPresentBytes));
  const bool is_first = region.present_from == region.present_to;
  if (is_first) region.present_from = region.present_to = from;
  const auto add = [&](uint64_t begin, uint64_t end) {
    if (begin >= end) return;
    if (const int error = prefault(region.base + begin, end - begin))
      throw_memory_error("map", fmt::format("map {} bytes of rank {}", end - begin, owner_.rank),
                         error);
  };
  add(from, region.present_from);
  region.present_from = std::min(region.present_from, from);
  add(region.present_to, to);
  region.present_to = std::max(region.present_to, to);
  return true;
} catch (const Error& error) {
  return refuse(error);
}

bool PeerRegions::refuse(const Error& error) {
  const Failure& failure = error.failure();
  const bool is_own = failure.code == ErrorCode::exhausted;  // a limit of this process
  why_ = failure.reason;
  if (!is_own && !failure.advice.empty()) why_ += "; " + failure.advice;
  advice_ = is_own ? failure.advice : "";
  return false;
}

PeerRegions::Mapped PeerRegions::map_entry(const RegionEntry& entry, uint64_t id) const {
  Mapped mapped;
  mapped.id = id;
  mapped.bytes = entry.bytes.load(std::memory_order_acquire);
  Share share;
  for (size_t i = 0; i < Share::kWords; ++i)
    share.words[i] = entry.share[i].load(std::memory_order_acquire);
  mapped.mapping = sharing_->map(owner_, share, mapped.bytes);
  // Unchanged after that: what was mapped is this region, not one that took its place.
  if (entry.id.load(std::memory_order_seq_cst) != id)
    throw Error(ErrorCode::protocol, "map", fmt::format("it has just freed region {:#x}", id),
                "every buffer must live until its call has ended");
  mapped.base = mapped.mapping->base();
  if (mapped.bytes >= kHugePageBytes) want_huge_pages(mapped.base, mapped.bytes);
  return mapped;
}

void PeerRegions::unmap_deregistered() {
  const uint64_t withdrawn = table_->withdrawn.load(std::memory_order_acquire);
  if (withdrawn == withdrawn_seen_) return;
  withdrawn_seen_ = withdrawn;
  for (size_t slot = 0; slot < mapped_.size(); ++slot)
    if (mapped_[slot].id != table_->entries[slot].id.load(std::memory_order_acquire))
      mapped_[slot] = Mapped{};
}

std::byte* PeerRegions::refuse_range(uint64_t region_bytes, uint64_t offset, size_t bytes) {
  advice_.clear();
  why_ = fmt::format("{} bytes at {} do not lie in a region of {} bytes of rank {}", bytes, offset,
                     region_bytes, owner_.rank);
  return nullptr;
}

}  // namespace ropewalk::shm
