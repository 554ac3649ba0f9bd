// Puts to one peer that were accepted and are not yet done.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "transports/tcp/frame.h"

namespace ropewalk::tcp {

/// A bounded queue of puts. The peer's streams claim the next piece each time they can write, so a
/// fast stream carries more than a slow one. Sources belong to the caller until the put is done.
class Outbox {
 public:
  static constexpr uint64_t kPutsMax = 128;  // a power of two, at most Inbox::kWindow

  struct Put {
    const std::byte* source = nullptr;
    uint64_t key = 0, offset = 0, cookie = 0;
    uint32_t bytes = 0, notice = 0;
    uint32_t claimed = 0;    // bytes given to streams
    uint32_t unwritten = 0;  // claimed pieces that the sockets have not taken whole
    bool all_claimed = false;
  };
  struct Piece {
    FrameHeader header;
    const std::byte* payload = nullptr;
  };

  bool full() const { return end_ - first_ == kPutsMax; }
  bool empty() const { return first_ == end_; }
  /// True where a piece can be claimed.
  bool pending() const { return next_ != end_; }

  /// Not when `full`.
  void post(const Put& put) {
    assert(!full() && put.claimed == 0);
    at(end_++) = put;
  }
  /// The sequence number of the next put.
  uint64_t next_sequence() const { return end_; }
  /// Counts a put that was written whole without having been posted; only when `empty`.
  void pass() {
    assert(empty());
    first_ = next_ = ++end_;
  }
  /// Bytes of the put that the next piece is of. Only when `pending`.
  uint32_t next_put_bytes() const {
    assert(pending());
    return puts_[next_ % kPutsMax].bytes;
  }
  /// The next piece, of at most `bytes_max`. Only when `pending`. Sequence numbers never fall.
  Piece claim(uint32_t bytes_max) {
    assert(pending());
    Put& put = at(next_);
    const uint32_t bytes = std::min(put.bytes - put.claimed, bytes_max);
    const Piece piece{
        {FrameKind::put, put.notice, put.key, put.offset + put.claimed, bytes, put.bytes, next_},
        bytes == 0 ? nullptr : put.source + put.claimed};
    put.claimed += bytes;
    ++put.unwritten;
    if (put.claimed == put.bytes) {
      put.all_claimed = true;
      ++next_;
    }
    return piece;
  }
  /// A claimed piece of put `sequence` was written whole.
  void written(uint64_t sequence) {
    assert(at(sequence).unwritten > 0);
    --at(sequence).unwritten;
  }

  /// True where the oldest put is written whole: its source is free again.
  bool done() const {
    const Put& put = puts_[first_ % kPutsMax];
    return !empty() && put.all_claimed && put.unwritten == 0;
  }
  /// Removes the oldest put and returns its cookie; only when `done`.
  uint64_t take() {
    assert(done());
    return at(first_++).cookie;
  }
  /// Forgets all puts.
  void clear() { first_ = next_ = end_; }
  /// The same, and numbers begin anew.
  void restart() { first_ = next_ = end_ = 0; }

 private:
  Put& at(uint64_t sequence) { return puts_[sequence % kPutsMax]; }

  std::array<Put, kPutsMax> puts_{};
  uint64_t first_ = 0;  // oldest put that was not taken
  uint64_t next_ = 0;   // first put with something to claim
  uint64_t end_ = 0;    // sequence number of the next put
};

}  // namespace ropewalk::tcp
