// One call, prepared: its executor, the memory that it needs beside the caller's, and where a run
// stands. Run by the engine, under its lock.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/executor.h"
#include "engine/signature.h"
#include "schedule/collective.h"

namespace ropewalk {

class Group;
class OperationQueue;

/// The caller's plain memory, registered for one operation.
struct PlainMemory {
  int transport = 0;
  Region region;
  std::unique_ptr<MemoryRegistration> registration;
};

/// The memory of an operation, as transports and peers know it.
struct OperationMemory {
  std::unique_ptr<RegisteredMemory> scratch;  // blocks that the caller gave no memory for
  std::unique_ptr<RegisteredMemory> saved;    // of an input that the output overwrites
  std::unique_ptr<RegisteredMemory> windows;
  // Fixed from one bind to the next:
  std::vector<std::weak_ptr<RegisteredMemory>> uses;  // the caller's registered memory
  std::vector<PlainMemory> plain;
  bool bound = false;

  /// Whether the names of the caller's plain memory still mean that memory.
  bool is_current() const {
    return std::ranges::all_of(
        plain, [](const PlainMemory& memory) { return memory.registration->current(); });
  }
};

class Operation {
 public:
  enum class State : uint8_t { idle, running, done };

  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  bool is_point_to_point() const { return traits_of(call.collective).is_point_to_point(); }

  // Fixed.
  Call call;
  Algorithm algorithm = Algorithm::automatic;
  Signature signature;  // its sequence is set at every start
  OperationMemory memory;
  std::unique_ptr<Executor> executor;
  Group* group = nullptr;  // of which it is a part; null in tests
  size_t part = 0;         // which

  // Of the run; under the engine's lock, except `state`.
  std::atomic<State> state{State::idle};
  bool begun = false;               // its streams are its own
  OperationQueue* queue = nullptr;  // the one that it was started in
  Operation* next = nullptr;        // waits in it for this one to end
  int64_t moved_ns = 0;             // when anything last moved
  int64_t probed_ns = 0;
};

}  // namespace ropewalk
