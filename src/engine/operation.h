// One call, prepared: its program, the memory it needs beside the caller's, and where a run stands.
// Owned by Plan and Work; run by the engine, under its lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/link.h"
#include "engine/owner_program.h"
#include "engine/program.h"
#include "engine/signature.h"

namespace ropewalk {

class Driver;
class OperationQueue;

struct StreamState {
  // Fixed.
  Link* link = nullptr;
  int id = 0;     // stream_of(context, lane)
  Window window;  // receiving: staging; sending: copies of unregistered memory, to be exposed
  // Of the run.
  uint32_t head = 0;        // first step not yet issued (sending) or finished (receiving)
  uint32_t tail = 0;        // sending: first step not yet wholly consumed
  uint32_t grant_head = 0;  // receiving: first step not yet granted
  uint32_t consumed_seen = 0;
  uint32_t window_issued = 0, window_consumed = 0;  // sending
  uint32_t window_taken = 0;                        // receiving
};

struct StepState {
  // Fixed.
  class Operation* operation = nullptr;
  uint32_t stream = 0;
  uint32_t slices = 1;
  bool eager = false;    // travels whole, in a slot
  bool exposed = false;  // stays where it is; the peer maps it
  RemoteAddress remote;  // exposed send: the source; receive_copy: the target
  const MemoryRegistration* source_memory = nullptr;  // other sends, where the transport wants it
  // Of the run.
  uint32_t issued = 0, done = 0, consumed = 0;  // slices
  bool announced = false;
  bool granted = false;
  bool windowed = false;                // slices go through a window
  const std::byte* incoming = nullptr;  // receiving: exposed data, or its window
  uint32_t incoming_window = 0;         // slots of that window; 0: the data lies whole
};

/// The caller's plain memory, registered for one operation.
struct PlainMemory {
  int transport = 0;
  Region region;
  std::unique_ptr<MemoryRegistration> registration;
};

/// A caller's buffer that is a piece of a fused operation's packed vector.
struct Fragment {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::byte* packed = nullptr;
  size_t bytes = 0;
};

/// How an operation runs. All ranks choose `owner` alike; the other two look the same to peers.
enum class ExecutorKind : uint8_t {
  sequential,  // short messages: one step after the other, in list order
  pipelined,   // anything: each (peer, lane, direction) on its own, slice by slice
  owner,       // mapped memory: owners do all the work
};

class Operation {
 public:
  enum class State : uint8_t { idle, running, done };

  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  bool is_point_to_point() const {
    return call.collective == Collective::send || call.collective == Collective::recv;
  }

  // Fixed.
  Call call;
  Algorithm algorithm = Algorithm::automatic;
  Signature signature;  // its sequence is set at every start
  ExecutorKind executor = ExecutorKind::pipelined;
  Program program;
  std::shared_ptr<Driver> driver;
  std::unique_ptr<RegisteredMemory> scratch;  // blocks that the caller gave no memory for
  std::unique_ptr<RegisteredMemory> windows;
  std::vector<std::weak_ptr<RegisteredMemory>> uses;  // the caller's registered memory
  std::vector<std::shared_ptr<Operation>> children;   // a group: all that it waits for
  std::vector<Fragment> fragments;                    // packed before the start, unpacked after
  std::shared_ptr<RegisteredMemory> packed;           // holds the fragments

  // Fixed from one bind to the next: steps' and peers' names for memory, and
  std::vector<PlainMemory> plain;
  bool bound = false;

  // Of the run; under the engine's lock, but for `state`.
  std::atomic<State> state{State::idle};
  std::vector<StepState> steps;
  std::vector<StreamState> streams;
  OwnerProgram owner;
  bool linked = false;              // all links are ready; stays so
  bool begun = false;               // its streams are its own
  uint32_t next_step = 0;           // sequential
  uint32_t unfinished = 0;          // pipelined: steps; else 1 until the end
  OperationQueue* queue = nullptr;  // the one that it was started in
  Operation* next = nullptr;        // waits in it for this one to end
  int64_t moved_ns = 0;             // when anything last moved
  int64_t probed_ns = 0;
};

/// Operations that run one after the other, in order of start: only the first of them may run.
class OperationQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  Operation* first() const { return first_; }
  void push(Operation& operation) {
    operation.next = nullptr;
    (empty() ? first_ : last_->next) = &operation;
    last_ = &operation;
  }
  void pop() { first_ = first_->next; }

 private:
  Operation *first_ = nullptr, *last_ = nullptr;
};

}  // namespace ropewalk
