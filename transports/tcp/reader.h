// The receiving half of one TCP stream, without the socket: bytes in, puts and notices out.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bootstrap/secure_channel.h"
#include "memory/regions.h"
#include "ropewalk/transport.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/inbox.h"
#include "transports/tcp/records.h"

namespace ropewalk::tcp {

/// Says where the next bytes of the stream belong (`prepare`), so that a large payload goes from
/// the kernel straight into its region, and digests them (`consume`). Small frames come, many at a
/// time, through a buffer. Trusts nothing: every frame is checked before a byte of it is stored.
/// Regions may be removed at any time between calls: the target is looked up for every piece.
class Reader {
 public:
  /// What the hello must say.
  struct Expected {
    int peer = 0;
    uint32_t stream = 0, streams = 1;
    bool sealed = false;  // what follows it
  };
  /// `regions`, `inbox`, `channel`, by which the hello is sealed, and `opener`, null unless data is
  /// sealed, must outlive the reader. Allocates its buffer here, and nothing after the hello.
  Reader(const Regions& regions, Inbox& inbox, SecureChannel& channel, RecordOpener* opener,
         const Expected& expected);

  /// Fills `into` with one or two places for the next bytes of the stream, in order, and returns
  /// how many; 0 where `stalled` or `violation`.
  int prepare(std::array<iovec, 2>& into);
  /// The next `bytes` of the stream are where the last `prepare` said.
  void consume(size_t bytes);

  /// True where the next frame lies beyond the inbox's window: nothing is read until `resume`.
  bool stalled() const { return stalled_; }
  /// Goes on with what is in the buffer if the window has moved far enough.
  void resume();

  /// Passes over what comes until the peer's next fence: nothing of it is stored. Each end restarts
  /// as often as the other; this one, before it has come to the fence of the time before, too.
  void restart();

  /// Null, or what the peer did wrong ("sent a frame outside registered memory"). Final.
  const char* violation() const { return violation_; }
  /// True where no frame has begun and not ended: here a stream may end.
  bool between_frames() const {
    return left_ == 0 && begin_ == end_ && (opener_ == nullptr || opener_->empty());
  }

  bool has_hello() const { return has_hello_; }
  std::span<const std::byte> hello() const { return hello_; }

 private:
  void parse();
  void open_records();
  void open_record(size_t bytes);
  bool open_hello();
  const char* wrong_in_hello(std::span<const std::byte> frame);
  bool begin_frame();
  bool begin_put(const FrameHeader& header);
  bool begin_urgent(const FrameHeader& header);
  void begin_payload(const FrameHeader& header);
  bool copy_payload();
  void payload_arrived(uint32_t bytes);

  const Regions& regions_;
  Inbox& inbox_;
  SecureChannel& channel_;
  RecordOpener* const opener_;
  Expected expected_;

  std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0, end_ = 0;  // bytes in the buffer that were not digested
  size_t read_bytes_;           // how much to read into an empty buffer

  FrameHeader frame_;            // the put whose payload is arriving
  uint32_t left_ = 0;            // payload of it that is still to come
  std::byte* target_ = nullptr;  // of that payload; only within one `parse`
  uint32_t direct_ = 0;          // of that, what the last `prepare` pointed straight at the region

  bool stalled_ = false;
  uint32_t fences_due_ = 0;  // until the last of them it passes over what comes
  const char* violation_ = nullptr;
  uint64_t last_sequence_ = 0;

  bool has_hello_ = false;
  std::vector<std::byte> hello_;
};

}  // namespace ropewalk::tcp
