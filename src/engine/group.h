// What a Work or a Plan runs: one operation, or those of a group of calls. All_reduces of a group
// that are alike may run as one operation on a packed vector.
#pragma once

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

  /// Starts all parts. Requires is_finished(). Under the engine's lock.
  void start(Engine& engine);
  /// `operation`, one of the parts, has moved its last byte: its results go where they are wanted.
  /// Under the engine's lock.
  void unpack(const Operation& operation) const;

  /// No part is under way. Any thread.
  bool is_finished() const;
  /// The first that is under way; null where there is none.
  const Operation* unfinished_part() const;
  /// The caller's registered memory is still the one that the parts name to peers.
  bool is_valid() const;
  /// Of the first part. Requires that there is one.
  Algorithm algorithm() const;

  std::shared_ptr<Driver> driver;  // by which it is started and waited for

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
};

}  // namespace ropewalk
