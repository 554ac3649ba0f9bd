#include "engine/memory_binder.h"

#include <algorithm>
#include <cassert>

#include "engine/layout.h"

namespace ropewalk {
namespace {

RemoteBuffer name_in(const MemoryRegistration& memory, const std::byte* address) {
  return {memory.key(), static_cast<uint64_t>(address - memory.base()), 0, 1};
}

bool contains(const Region& region, const std::byte* address, size_t bytes) {
  return region.base != nullptr && address >= region.base &&
         address + bytes <= region.base + region.bytes;
}

}  // namespace

MemoryBinder::MemoryBinder(Operation& op, const LinkTable& links, MemoryRegistry& memories)
    : memory_(op.memory), links_(links), memories_(memories) {
  assert(op.state != Operation::State::running);
  memory_.bound = false;
  memory_.uses.clear();
  memory_.plain.clear();
  const Extent extent = extent_of(op.call, links.rank(), links.size());
  const size_t element = size_of(op.call.type);
  // `in` is written only where it is a part of `out`, or the other way round.
  in_ = {.base = static_cast<std::byte*>(const_cast<void*>(op.call.in)),
         .bytes = extent.in * element,
         .source_only = true};
  out_ = {.base = static_cast<std::byte*>(op.call.out), .bytes = extent.out * element};
  const bool overlap = in_.bytes > 0 && out_.bytes > 0 && in_.base < out_.base + out_.bytes &&
                       out_.base < in_.base + in_.bytes;
  if (!overlap) return;
  std::byte* end = std::max(in_.base + in_.bytes, out_.base + out_.bytes);
  out_.base = std::min(in_.base, out_.base);
  out_.bytes = static_cast<size_t>(end - out_.base);
  in_ = out_;
}

/// Where memory is registered already; null elsewhere.
const MemoryRegistration* MemoryBinder::find(const Link& link, const std::byte* address,
                                             size_t bytes) {
  const auto transport = static_cast<size_t>(link.transport_index());
  if (memory_.scratch && contains(memory_.scratch->region(), address, bytes))
    return memory_.scratch->registrations()[transport].get();
  const auto memory = memories_.find(address, bytes);
  if (!memory) return nullptr;
  memory_.uses.emplace_back(memory);
  return memory->registrations()[transport].get();
}

const MemoryRegistration& MemoryBinder::find_or_register(const Link& link, const std::byte* address,
                                                         size_t bytes) {
  if (const MemoryRegistration* found = find(link, address, bytes)) return *found;
  for (const PlainMemory& plain : memory_.plain)
    if (plain.transport == link.transport_index() && contains(plain.region, address, bytes))
      return *plain.registration;
  const Region& region = contains(out_, address, bytes) ? out_ : in_;
  assert(contains(region, address, bytes));
  memory_.plain.push_back(
      {link.transport_index(), region, link.transport().register_memory(region)});
  return *memory_.plain.back().registration;
}

RemoteBuffer MemoryBinder::source(const Link& link, const std::byte* address, size_t bytes) {
  const MemoryRegistration* memory = find(link, address, bytes);
  return memory == nullptr ? RemoteBuffer{} : name_in(*memory, address);
}

RemoteBuffer MemoryBinder::target(const Link& link, std::byte* address, size_t bytes) {
  if (link.needs_registration()) return source(link, address, bytes);
  return name_in(find_or_register(link, address, bytes), address);
}

void MemoryBinder::allocate_windows(StagingPool& staging) {
  const auto is_missing = [](const auto& wanted) { return wanted.window->base == nullptr; };
  if (std::ranges::none_of(windows_, is_missing)) return;
  size_t all_bytes = 0;
  for (WantedWindow& wanted : windows_)
    all_bytes += wanted.bytes = round_up(wanted.bytes, page_bytes());
  memory_.windows = staging.take(all_bytes);
  std::byte* base = memory_.windows->data();
  for (const auto& [link, window, bytes] : windows_) {
    const auto transport = static_cast<size_t>(link->transport_index());
    const RemoteBuffer at = name_in(*memory_.windows->registrations()[transport], base);
    window->base = std::exchange(base, base + bytes);
    window->at.key = at.key;
    window->at.offset = at.offset;
  }
}

}  // namespace ropewalk
