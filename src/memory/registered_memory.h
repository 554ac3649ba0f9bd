// Memory that every transport can reach without a copy, and its registrations.
#pragma once

#include <cstdint>

#include "memory/memfd.h"
#include "ropewalk/transport.h"

namespace ropewalk {

/// Puts [address, address + bytes) near the caller; bind_memory_near_caller of topology.h, or null.
using BindMemory = bool (*)(void* address, size_t bytes);

/// A zeroed, page-aligned range of an anonymous file, or of a transport's block, so that local
/// peers can map it too. Its pages are present from the start, so that nothing faults later, unless
/// they are wanted on demand. From 2 MiB on a file lies on huge pages where the machine's pool has
/// them, else transparent huge pages are asked for.
///
/// Ends its registrations, then its mapping; so it must die before the transports. Not movable:
/// transports and plans keep its address. Threads: set up by one thread; then read by any.
class RegisteredMemory {
 public:
  /// When pages are made: from the start, or, of what is used in part only, as each is touched.
  enum class Pages : uint8_t { present, on_demand };
  /// `bytes` may be 0. `transports` are those that it will be registered with: at most one of them
  /// gives memory of its own. Throws Error(exhausted) that names the limit to raise.
  explicit RegisteredMemory(size_t bytes, std::span<Transport* const> transports = {},
                            BindMemory bind = nullptr, Pages pages = Pages::present);
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  std::byte* data() const noexcept { return base_; }
  size_t bytes() const noexcept { return bytes_; }
  Region region() const noexcept {
    return {.base = base_, .bytes = bytes_, .memfd = fd_.get(), .allocation = allocation_.get()};
  }

  /// Registers with one more transport. Call once per transport, in the order of their indices.
  /// Throws what Transport::register_memory throws; then nothing has changed.
  void register_with(Transport& transport);
  /// Index = transport index.
  const std::vector<std::unique_ptr<MemoryRegistration>>& registrations() const noexcept {
    return registrations_;
  }

 private:
  bool try_huge_pages(BindMemory bind);
  void use_ordinary_pages(BindMemory bind, Pages pages);
  void make_present(std::byte* base, size_t bytes, BindMemory bind);

  size_t bytes_;
  std::byte* base_ = nullptr;
  std::unique_ptr<TransportAllocation> allocation_;
  UniqueFd fd_;  // without a block
  SharedMapping mapping_;
  std::vector<std::unique_ptr<MemoryRegistration>> registrations_;  // last: ends first
};

}  // namespace ropewalk
