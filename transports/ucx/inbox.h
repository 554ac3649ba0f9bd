// What has arrived from one peer: which puts are in place, and their notices in order.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>

namespace ropewalk::ucx {

/// A window over the peer's puts. UCX completes messages in any order: a long one fetches its bytes
/// while later ones arrive. Notices leave in the order of sequence numbers, which wrap at 2^32.
class Inbox {
 public:
  static constexpr uint32_t kWindow =
      256;  // puts that a peer may send before it is told of `taken`

  /// False where the put was sent twice, or lies beyond the window.
  bool begin(uint32_t sequence, uint32_t notice) {
    Put& put = at(sequence);
    if (sequence - taken_ >= kWindow || put.state != State::none) return false;
    put = {notice, State::begun};
    return true;
  }
  /// The same for a put that is whole and taken at once: true where it is the next to be taken.
  bool pass(uint32_t sequence) {
    if (sequence != taken_ || at(sequence).state != State::none) return false;
    ++taken_;
    return true;
  }
  /// The bytes of a put that has begun are in place.
  void arrived(uint32_t sequence) {
    assert(at(sequence).state == State::begun);
    at(sequence).state = State::whole;
  }

  bool ready() const { return puts_[taken_ % kWindow].state == State::whole; }
  /// Removes the oldest put and returns its notice; only when `ready`.
  uint32_t take() {
    assert(ready());
    Put& put = at(taken_++);
    put.state = State::none;
    return put.notice;
  }
  /// How many were taken, ever.
  uint32_t taken() const { return taken_; }

 private:
  enum class State : uint8_t { none, begun, whole };
  struct Put {
    uint32_t notice = 0;
    State state = State::none;
  };
  Put& at(uint32_t sequence) { return puts_[sequence % kWindow]; }

  std::array<Put, kWindow> puts_{};
  uint32_t taken_ = 0;
};

}  // namespace ropewalk::ucx
