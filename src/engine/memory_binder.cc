#include "engine/memory_binder.h"

#include <algorithm>
#include <cassert>

#include "engine/layout.h"

namespace ropewalk {
namespace {

RemoteAddress address_in(const MemoryRegistration& memory, const std::byte* address) {
  return {true, memory.key(), static_cast<uint64_t>(address - memory.base())};
}

bool contains(const std::byte* base, size_t base_bytes, const std::byte* address, size_t bytes) {
  return base != nullptr && address >= base && address + bytes <= base + base_bytes;
}

bool contains(const Region& region, const std::byte* address, size_t bytes) {
  return contains(region.base, region.bytes, address, bytes);
}

/// One region that holds both.
Region hull(const Region& a, const Region& b) {
  Region both;
  both.base = std::min(a.base, b.base);
  both.bytes = static_cast<size_t>(std::max(a.base + a.bytes, b.base + b.bytes) - both.base);
  return both;
}

}  // namespace

std::unique_ptr<RegisteredMemory> allocate_registered(size_t bytes,
                                                      const std::vector<Transport*>& transports) {
  auto memory = std::make_unique<RegisteredMemory>(bytes, transports);
  for (Transport* transport : transports) memory->register_with(*transport);
  return memory;
}

MemoryBinder::MemoryBinder(Operation& op, const LinkTable& links, MemoryRegistry& memories)
    : memory_(op.memory), links_(links), memories_(memories) {
  assert(op.state != Operation::State::running);
  memory_.bound = false;
  memory_.uses.clear();
  memory_.plain.clear();
  const Extent extent = extent_of(op.call, links.rank(), links.size());
  const size_t element = size_of(op.call.type);
  // `in` is written only where it is a part of `out`, or the other way round.
  in_.base = static_cast<std::byte*>(const_cast<void*>(op.call.in));
  in_.bytes = extent.in * element;
  in_.source_only = true;
  out_.base = static_cast<std::byte*>(op.call.out);
  out_.bytes = extent.out * element;
  const bool overlap = in_.bytes > 0 && out_.bytes > 0 && in_.base < out_.base + out_.bytes &&
                       out_.base < in_.base + in_.bytes;
  if (overlap) in_ = out_ = hull(in_, out_);
}

/// Where memory is registered already; null elsewhere.
const MemoryRegistration* MemoryBinder::find(const Link& link, const std::byte* address,
                                             size_t bytes) {
  const auto transport = static_cast<size_t>(link.transport_index());
  for (const RegisteredMemory* own : {memory_.scratch.get(), memory_.saved.get()})
    if (own != nullptr && contains(own->data(), own->bytes(), address, bytes))
      return own->registrations()[transport].get();
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

RemoteAddress MemoryBinder::source(const Link& link, const std::byte* address, size_t bytes) {
  const MemoryRegistration* memory = find(link, address, bytes);
  return memory == nullptr ? RemoteAddress{} : address_in(*memory, address);
}

RemoteAddress MemoryBinder::target(const Link& link, std::byte* address, size_t bytes) {
  if (link.needs_registration()) return source(link, address, bytes);
  return address_in(find_or_register(link, address, bytes), address);
}

void MemoryBinder::allocate_windows(size_t slice_bytes) {
  const auto is_missing = [](const auto& entry) { return entry.second->base == nullptr; };
  if (std::ranges::none_of(windows_, is_missing)) return;
  const size_t window_bytes = kWindowSlots * slice_bytes;
  memory_.windows = allocate_registered(windows_.size() * window_bytes, links_.transports());
  for (size_t w = 0; w < windows_.size(); ++w) {
    const auto& [link, window] = windows_[w];
    const auto transport = static_cast<size_t>(link->transport_index());
    window->base = memory_.windows->data() + w * window_bytes;
    window->at = address_in(*memory_.windows->registrations()[transport], window->base);
  }
}

}  // namespace ropewalk
