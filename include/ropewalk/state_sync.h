// Giving the state of a job, named buffers, to ranks that lack it: newcomers and stragglers get it
// from all ranks that have it, each of which sends a part, while those go on.
//
//   std::array state{NamedBuffer("weights", weights), NamedBuffer("momentum", momentum)};
//   StateSync sync = comm->start_sync_state(state, step);  // on all ranks
//   ...                                                    // who has the state computes
//   StateReport report = sync.wait();                      // now all have it
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/call.h"

namespace ropewalk {

/// A part of the state. All ranks give the same names and sizes, in the same order.
struct NamedBuffer {
  NamedBuffer(std::string name_, std::span<std::byte> bytes_)
      : name(std::move(name_)), bytes(bytes_) {}
  NamedBuffer(std::string name_, MutableElements auto&& elements)
      : NamedBuffer(std::move(name_), std::as_writable_bytes(std::span(elements))) {}

  std::string name;
  std::span<std::byte> bytes;
};

/// Whose state all are to have; the same on every rank.
struct StateSource {
  enum class Kind : uint8_t { newest, majority, rank };

  /// The state of the highest revision. It is an error where ranks that have it differ.
  static constexpr StateSource newest() { return {}; }
  /// What most ranks have, of those the newest. It is an error where that leaves two.
  static constexpr StateSource majority() { return {Kind::majority, -1}; }
  static constexpr StateSource from(int rank) { return {Kind::rank, rank}; }

  Kind kind = Kind::newest;
  int of_rank = -1;  // Kind::rank
};

struct StateReport {
  uint64_t revision = 0;             // of the state that was chosen
  std::string hash;                  // of its buffers, 32 hexadecimal digits; this rank has it
  std::vector<int> sources;          // the ranks that had it, whatever revision they gave
  std::vector<std::string> changed;  // buffers that this rank has received; their hashes are right
  uint64_t bytes_received = 0, bytes_sent = 0;  // by this rank
};

/// A synchronization under way. Destroying it waits for its end. May outlive its Communicator; what
/// has not ended by then fails. Movable. Threads: one at a time.
class StateSync {
 public:
  StateSync(StateSync&&) noexcept;
  StateSync& operator=(StateSync&&) noexcept;
  ~StateSync();

  /// True when `wait` does not wait for others; throws Error when this failed. Makes progress.
  bool done();
  /// Returns once this rank has the state, and has sent what others get from it. At most for
  /// `timeout`; default: the communicator's, and a second for each 4 MB that this rank sends or
  /// receives. Throws Error; then buffers that were to be received have unspecified content, and
  /// after a timeout the synchronization has failed on all ranks, but not the communicator. May be
  /// called again.
  const StateReport& wait(std::optional<std::chrono::nanoseconds> timeout = {});

  class Impl;  // src/communicator/state_sync.cc
  explicit StateSync(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ropewalk
