// What a Work or a Plan runs: one operation, or those of a group of calls. All_reduces of a group
// that are alike may run as one operation on a packed vector.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/operation.h"

namespace ropewalk {

class Driver;
class Engine;

class Group {
 public:
  Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Before the first start.
  void add(std::shared_ptr<Operation> operation);
  /// `operation` works on `packed`, which holds the elements of `calls` one behind the other.
  void add_packed(std::shared_ptr<Operation> operation, std::shared_ptr<RegisteredMemory> packed,
                  std::span<const Call* const> calls);

  // Under the engine's lock:
  /// Starts all parts. Requires is_finished().
  void start(Engine& engine);
  /// `operation`, one of the parts, has moved its last byte: its results go where they are wanted.
  void unpack(const Operation& operation) const;
  /// A part has ended. True where it was the last, and somebody is to be told. Whoever waits may
  /// destroy this as soon as the last has ended.
  bool end_part();
  /// Somebody is to be told of the end. Requires that it is under way.
  void tell_end();

  /// No part is under way. Any thread.
  bool is_finished() const { return unfinished_.load(std::memory_order_acquire) == 0; }
  /// The first that is under way; null where there is none.
  const Operation* unfinished_part() const;
  /// The caller's registered memory is still the one that the parts name to peers.
  bool is_valid() const;
  /// Of the first part. Requires that there is one.
  Algorithm algorithm() const;

  std::shared_ptr<Driver> driver;  // by which it is started and waited for
  std::atomic<int> waiters{0};     // threads that wait for it, with limits of their own

 private:
  struct Fragment {  // a caller's buffer, and its place in the packed vector
    const std::byte* in;
    std::byte* out;
    std::byte* packed;
    size_t bytes;
  };
  struct Part {
    std::shared_ptr<RegisteredMemory> packed;  // holds the fragments
    std::vector<Fragment> fragments;
    std::shared_ptr<Operation> operation;
  };
  std::vector<Part> parts_;
  std::atomic<size_t> unfinished_{0};  // parts
  bool tells_end_ = false;             // under the engine's lock
};

}  // namespace ropewalk
