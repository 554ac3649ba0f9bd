#include "transports/shm/region_table.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace ropewalk::shm {
namespace {
bool lies_in(const struct stat& file, uint64_t offset, uint64_t bytes) {
  const auto file_bytes = static_cast<uint64_t>(file.st_size);
  return offset <= file_bytes && bytes <= file_bytes - offset;
}
}  // namespace

uint64_t RegionPublisher::publish(const Region& region) {
  struct stat file {};
  if (fstat(region.memfd, &file) != 0 || !lies_in(file, region.memfd_offset, region.bytes))
    throw Error(ErrorCode::invalid_argument, "register memory",
                "this memory is not the mapping of a memory file, so local peers cannot map it",
                "allocate it with Communicator::allocate");
  const std::lock_guard lock(mutex_);
  uint32_t slot = slots_used_;
  if (!free_slots_.empty()) {
    slot = free_slots_.top();
    free_slots_.pop();
  } else if (slots_used_ == kRegionsMax) {
    throw Error(ErrorCode::exhausted, "register memory",
                fmt::format("{} regions are registered, which is the limit of shm", kRegionsMax),
                "allocate fewer and larger buffers");
  } else {
    ++slots_used_;
  }
  RegionEntry& entry = table_.entries[slot];
  entry.bytes.store(region.bytes, std::memory_order_release);
  entry.offset.store(region.memfd_offset, std::memory_order_release);
  entry.inode.store(file.st_ino, std::memory_order_release);
  entry.fd.store(region.memfd, std::memory_order_release);
  const uint64_t id = ++generation_ << kSlotBits | slot;
  entry.id.store(id, std::memory_order_release);
  return id;
}

void RegionPublisher::withdraw(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto slot = static_cast<uint32_t>(id % kRegionsMax);
  // The caller closes the file only afterwards, so a peer that still finds the id opened this file.
  table_.entries[slot].id.store(0, std::memory_order_seq_cst);
  table_.withdrawn.fetch_add(1, std::memory_order_release);
  free_slots_.push(slot);
}

bool PeerRegions::map(uint64_t id) {
  const uint64_t slot = id % kRegionsMax;
  const RegionEntry& entry = table_->entries[slot];
  try {
    if (id == 0 || entry.id.load(std::memory_order_acquire) != id)
      throw Error(ErrorCode::protocol, "map",
                  fmt::format("rank {} has no region {:#x} registered", owner_.rank, id));
    Mapped mapped = map_entry(entry, id);
    if (slot >= mapped_.size()) mapped_.resize(slot + 1);
    mapped_[slot] = std::move(mapped);
    return true;
  } catch (const Error& error) {
    why_ = error.failure().text();
    return false;
  }
}

PeerRegions::Mapped PeerRegions::map_entry(const RegionEntry& entry, uint64_t id) const {
  const uint64_t bytes = entry.bytes.load(std::memory_order_acquire);
  const uint64_t offset = entry.offset.load(std::memory_order_acquire);
  const UniqueFd fd =
      open_descriptor_of(owner_, entry.fd.load(std::memory_order_acquire), "map memory of");
  struct stat file {};
  const bool known = fstat(fd.get(), &file) == 0;
  // Unchanged after the open: what was opened is this region's file, not one that took its number.
  if (entry.id.load(std::memory_order_seq_cst) != id)
    throw Error(ErrorCode::protocol, "map",
                fmt::format("rank {} withdrew region {:#x} meanwhile", owner_.rank, id));
  if (!known || file.st_ino != entry.inode.load(std::memory_order_acquire) ||
      !lies_in(file, offset, bytes))
    throw Error(ErrorCode::protocol, "map",
                fmt::format("the file of region {:#x} of rank {} is not there; the rank has died",
                            id, owner_.rank));

  const auto unit = static_cast<size_t>(file.st_blksize);  // a huge page where it lies on such
  const size_t begin = offset / unit * unit;
  Mapped mapped;
  mapped.id = id;
  mapped.bytes = bytes;
  mapped.mapping = SharedMapping("map", fd.get(), begin,
                                 round_up(std::max(offset + bytes - begin, uint64_t{1}), unit));
  mapped.base = mapped.mapping.base() + (offset - begin);
  if (bytes >= kHugePageBytes)
    madvise(mapped.mapping.base(), mapped.mapping.bytes(), MADV_HUGEPAGE);
  if (const int error = bytes > 0 ? prefault(mapped.base, bytes) : 0)
    throw_memory_error("map", fmt::format("map {} bytes of rank {}", bytes, owner_.rank), error);
  return mapped;
}

void PeerRegions::forget_withdrawn() {
  const uint64_t withdrawn = table_->withdrawn.load(std::memory_order_acquire);
  if (withdrawn == withdrawn_seen_) return;
  withdrawn_seen_ = withdrawn;
  for (size_t slot = 0; slot < mapped_.size(); ++slot)
    if (mapped_[slot].id != table_->entries[slot].id.load(std::memory_order_acquire))
      mapped_[slot] = Mapped{};
}

std::byte* PeerRegions::refuse_range(uint64_t region_bytes, uint64_t offset, size_t bytes) {
  why_ = fmt::format("{} bytes at {} do not lie in a region of {} bytes of rank {}", bytes, offset,
                     region_bytes, owner_.rank);
  return nullptr;
}

}  // namespace ropewalk::shm
