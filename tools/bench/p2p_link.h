// One end of the link between two ranks that `ropewalk bench put|pingpong|signal` measures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "bootstrap/monitor.h"
#include "memory/registered_memory.h"
#include "ropewalk/transport.h"

namespace ropewalk::tools {

/// Uses the transport itself, without the engine. Every wait spins, then yields, and throws:
/// Error(timeout) or Error(peer_lost) that names the peer and which the job has learned of, or the
/// job's failure. One thread.
class P2pLink {
 public:
  struct Setup {
    Transport& transport;
    Monitor& monitor;
    std::string operation;  // for errors
    int rank = 0, peer = 1;
    size_t bytes_max = 0;  // of a put
    int64_t timeout_ns = 0;
  };
  /// Links with the peer, which does the same.
  explicit P2pLink(const Setup& setup);

  /// What puts read here, and where the peer's puts land here: bytes_max each.
  std::byte* out() { return out_.data(); }
  std::byte* in() { return in_.data(); }

  /// Puts the first `bytes` of out() into the peer's in(), with a notice; 0 is a pure notice. Waits
  /// only while the transport is full.
  void put(size_t bytes);
  /// The same from in(): what arrived goes back from where it lies. The peer must not put before it
  /// has it all.
  void put_back(size_t bytes);
  /// Until `count` more puts than at the last call have arrived.
  void await_puts(uint64_t count);
  /// Until the transport needs out() no longer.
  void await_out();
  /// Takes what has arrived, without waiting.
  bool poll();

  /// Tells the peer `value` and returns what the peer tells. Both have then done all that came
  /// before.
  uint64_t exchange(uint64_t value);

  /// Notices of puts that came twice, never, or in another order, so far.
  uint64_t misplaced() const { return misplaced_; }

 private:
  /// How long one has waited without anything coming.
  struct WaitState {
    uint32_t polls = 0;
    int64_t since_ns = 0;
    int64_t left_ns = 0;  // when the peer was first seen to have left
  };
  template <class Reached>
  void wait_until(Reached reached);
  void idle(WaitState& wait);
  void post(const RegisteredMemory& memory, size_t bytes, uint64_t offset, uint32_t notice);
  void on_notice(uint32_t notice);
  [[noreturn]] void fail(ErrorCode code, const std::string& reason);

  const Setup setup_;
  const MonotonicClock clock_;
  RegisteredMemory out_, in_;
  RemoteKey peers_in_;
  uint64_t puts_sent_ = 0, puts_here_ = 0, puts_awaited_ = 0;
  uint64_t exchanges_ = 0, exchanges_here_ = 0;
  uint64_t under_way_ = 0;                  // put_dones still to come
  std::array<Completion, 64> completions_;  // of one poll
  uint64_t misplaced_ = 0;
};

}  // namespace ropewalk::tools
