// What has arrived from one peer: which puts are whole, and their notices in order.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>

#include "transports/tcp/frame.h"

namespace ropewalk::tcp {

/// A window over the peer's puts. With several streams the pieces of a put arrive in any order, and
/// a later put may be whole before an earlier one; notices leave in the order of sequence numbers.
///
/// A stream whose next frame lies beyond the window must pause. That cannot deadlock: a stream's
/// sequence numbers never fall, so whatever the first put of the window still lacks stands, in its
/// own stream, behind nothing that lies beyond the window.
class Inbox {
 public:
  static constexpr uint64_t kWindow = 256;  // puts; a power of two

  /// True where the put of `sequence` lies beyond the window.
  bool beyond(uint64_t sequence) const { return sequence >= first_ + kWindow; }

  /// A frame begins (not `beyond`). Null, or what is wrong with it.
  const char* begin(const FrameHeader& frame) {
    assert(!beyond(frame.sequence));
    if (frame.sequence < first_) return "sent a put a second time";
    Put& put = at(frame.sequence);
    if (!put.begun) {
      put = {frame.put_bytes, frame.notice, frame.put_bytes, frame.put_bytes, true};
    } else if (put.bytes != frame.put_bytes || put.notice != frame.notice) {
      return "sent pieces of a put that contradict each other";
    } else if (put.unclaimed == 0) {
      return "sent a put a second time";
    }
    if (frame.bytes > put.unclaimed) return "sent more bytes than its put has";
    put.unclaimed -= frame.bytes;
    return nullptr;
  }
  /// `bytes` of payload (for a pure notice: none) of put `sequence` are in place.
  void arrived(uint64_t sequence, uint32_t bytes) {
    assert(at(sequence).begun && bytes <= at(sequence).missing);
    at(sequence).missing -= bytes;
  }

  /// True where no urgent put may begin before one is taken.
  bool urgent_full() const { return urgent_end_ - urgent_first_ == kWindow; }
  /// How many urgent puts have arrived, ever.
  uint64_t urgent_count() const { return urgent_end_; }
  /// One is whole; only when not `urgent_full`.
  void urgent_arrived(uint32_t notice) {
    assert(!urgent_full());
    urgent_[urgent_end_++ % kWindow] = notice;
  }

  /// Forgets all puts, and numbers begin anew.
  void restart() { *this = Inbox(); }

  /// True where an urgent put, or the oldest of the others, is whole.
  bool ready() const {
    const Put& put = puts_[first_ % kWindow];
    return urgent_first_ != urgent_end_ || (put.begun && put.missing == 0);
  }
  /// Removes an urgent put, else the oldest of the others, and returns its notice; only when
  /// `ready`.
  uint32_t take() {
    assert(ready());
    if (urgent_first_ != urgent_end_) return urgent_[urgent_first_++ % kWindow];
    Put& put = at(first_++);
    put.begun = false;
    return put.notice;
  }

 private:
  struct Put {
    uint32_t bytes = 0, notice = 0;
    uint32_t unclaimed = 0;  // bytes for which no frame has begun
    uint32_t missing = 0;    // bytes that are not in place
    bool begun = false;
  };
  Put& at(uint64_t sequence) { return puts_[sequence % kWindow]; }

  std::array<Put, kWindow> puts_{};
  uint64_t first_ = 0;  // sequence number of the oldest put whose notice was not taken
  std::array<uint32_t, kWindow> urgent_{};  // notices of whole puts
  uint64_t urgent_first_ = 0, urgent_end_ = 0;
};

}  // namespace ropewalk::tcp
