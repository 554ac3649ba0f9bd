// Frames over one non-blocking socket, sealed.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/poll_set.h"
#include "bootstrap/sockets.h"
#include "bootstrap/wire.h"

namespace ropewalk::bootstrap {

struct Frame {
  FrameType type = FrameType::heartbeat;
  Bytes payload;
};

/// One thread. What the socket does not take at once is queued; the protocol bounds how much that
/// can be (docs/protocol.md, "Limits").
class FrameStream {
 public:
  explicit FrameStream(ConnectedSocket socket) : fd_(std::move(socket.fd)), channel_(socket.keys) {}
  FrameStream(FrameStream&&) = default;
  ~FrameStream();

  /// Also sends what was given to `send`.
  void prepare(PollSet& set);
  /// Moves bytes where poll said so; gives the whole frames that came.
  std::vector<Frame> advance(const PollSet& set);
  /// False once the connection is over, after its last frame was delivered; then why() says why.
  bool is_open() const { return is_open_; }
  /// Goes out with the next `prepare`, or `flush`, or at the end: many frames at once.
  void send(const Bytes& frame);
  void flush();
  /// Has this kernel acknowledge what has come at once, not only after some 40 ms: for last words,
  /// whose sender waits for that.
  void acknowledge() const;
  /// Every byte sent is acknowledged by the other side's kernel (or the connection is over).
  bool flushed() const;
  bool idle() const { return unsent_.empty() && queue_.empty(); }
  /// "connection reset by peer"; says whose fault it is only as far as the kernel knows.
  const std::string& why() const { return why_; }
  /// True when it is over because the other end has closed it, after all that it had to say.
  bool was_closed() const { return !is_open_ && error_ == 0; }
  /// True when it is over because the other host no longer acknowledges.
  bool cut_off() const;
  /// True when it is over because what came is no frame.
  bool nonsense() const;
  /// True when it is over because what came is not what the other end sent.
  bool forged() const;

 private:
  void end(int error, std::string why);
  void write_queue();
  bool read_some();
  bool open_records();
  bool cut_frames(std::vector<Frame>& into);

  UniqueFd fd_;
  SecureChannel channel_;
  bool is_open_ = true;
  bool write_broken_ = false;
  Bytes unsent_;    // whole frames, not yet sealed
  Bytes queue_;     // sealed, not yet taken by the kernel
  Bytes received_;  // not yet a whole record
  Bytes buffer_;    // not yet cut into frames
  int error_ = 0;   // errno of the end, where there is one
  std::string why_;
};

}  // namespace ropewalk::bootstrap
