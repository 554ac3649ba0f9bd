// Finds, or makes, the registrations of an operation's memory: by them peers reach it, and
// transports read it. Where peers cannot reach it a window of registered memory stands in.
//
// Used while an operation is bound, under the engine's lock.
//
// Registered sources. A network card reads registered memory only
// (`Capabilities::registered_sources`). So every put carries the registration that holds its
// source: the mirror's, the scratch's, the caller's registered memory's; or that of plain memory,
// which is registered for the operation, its input and its output each as a whole, and once where
// they overlap. A fake transport that refuses any other source runs the conformance suite and the
// simulation. A transport may register more than the region: offsets count from
// `MemoryRegistration::base`.
//
// Registrations that are current. A name for plain memory is right only while the pages under it
// are those that were registered. `MemoryRegistration::current` says so. It is asked at the start
// of each run, of a plan too, and what is not current is registered again; at the end of a run such
// registrations are let go, before the operation is `done` and its caller may free the memory. So
// where nobody can watch memory, each operation registers for itself, which is slow and right.
#pragma once

#include <utility>
#include <vector>

#include "engine/operation.h"
#include "engine/staging_pool.h"
#include "memory/memory_registry.h"

namespace ropewalk {

class MemoryBinder {
 public:
  /// Forgets what was bound before. Requires that `operation` is not under way.
  MemoryBinder(Operation& operation, const LinkTable& links, MemoryRegistry& memories);

  /// How the peer of `link` reads [address, address + bytes); unknown where that is not registered.
  RemoteBuffer source(const Link& link, const std::byte* address, size_t bytes);
  /// How it writes there: plain memory is registered, where the transport can do that.
  RemoteBuffer target(const Link& link, std::byte* address, size_t bytes);
  /// A registration that holds the range. The caller's plain memory is registered for this
  /// operation: its input or output as a whole.
  const MemoryRegistration& find_or_register(const Link& link, const std::byte* address,
                                             size_t bytes);
  /// `window`, which stays where it is, gets so much memory when binding ends.
  void add_window(const Link& link, Window& window, size_t bytes) {
    windows_.push_back({&link, &window, bytes});
  }
  /// Ends binding.
  void allocate_windows(StagingPool& staging);

 private:
  const MemoryRegistration* find(const Link& link, const std::byte* address, size_t bytes);

  OperationMemory& memory_;
  const LinkTable& links_;
  MemoryRegistry& memories_;
  Region in_, out_;
  struct WantedWindow {
    const Link* link;
    Window* window;
    size_t bytes;
  };
  std::vector<WantedWindow> windows_;
};

}  // namespace ropewalk
