// One socket to a peer.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/sockets.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/outbox.h"
#include "transports/tcp/reader.h"
#include "transports/tcp/records.h"

namespace ropewalk::tcp {

/// Owns the socket. Neither call blocks or allocates.
class Stream {
 public:
  /// `socket` is a connected, non-blocking stream socket; TCP's delays are switched off. `hello` is
  /// sent first, sealed; and so is all that follows where `expected.sealed`, of both ends.
  Stream(ConnectedSocket socket, int rank, const Reader::Expected& expected,
         std::span<const std::byte> hello, const Regions& regions, Inbox& inbox, Outbox& outbox);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int fd() const { return socket_.get(); }
  /// Longer puts are cut into pieces of this size.
  uint32_t piece_bytes_max() const { return piece_bytes_max_; }
  Reader& reader() { return reader_; }
  const Reader& reader() const { return reader_; }

  enum class Received : uint8_t {
    nothing,
    some,   // and the socket is empty now
    more,   // and there may be more
    end,    // the peer has closed its end
    error,  // see error()
  };
  /// At most one system call. Nothing where the reader is stalled; look for a violation afterwards.
  Received receive();

  /// Writes as one message what is queued (at most kBatch frames); one system call, or a few where
  /// it is sealed. True where another call may write more.
  bool send();
  /// Copies one put, at most kUrgentPutBytesMax, behind what is held back; one that is not urgent
  /// only when `idle`. False where enough is held for one write.
  bool hold(const FrameHeader& header, const std::byte* payload);
  /// Bytes held back: whole frames, except that a socket may have taken a part. They go before what
  /// is queued, and behind the rest of a queued frame that the socket took in part.
  size_t held() const { return held_end_ - held_begin_; }
  /// Writes what is held back and one put, of one piece, past the queues; only when `idle`. Returns
  /// how many bytes of the put's header and payload were written, or sealed to be written by
  /// `send`; if that is not all, the put has to be posted and handed to `resume`.
  size_t send_now(const FrameHeader& header, const std::byte* payload);
  /// Claims the put just posted, of which `bytes` are written already.
  void resume(size_t bytes);
  /// Gives up what is queued, and says so; passes over what the peer has sent before it does the
  /// same. Of a frame that the socket took in part zeros follow. Not where it is sealed.
  void restart();
  /// Nothing is queued behind what is held back, and the socket may take something.
  bool idle() const { return !queued() && !has_rest() && !blocked_ && error_ == 0; }
  bool has_output() const { return held() > 0 || queued() || has_sealed() || has_rest(); }
  /// The socket took no more; to be tried again when it is writable.
  bool blocked() const { return blocked_; }
  void unblock() { blocked_ = false; }
  /// The socket will never take anything again. What the peer sent before may still be read.
  bool broken() const { return error_ != 0; }

  /// How long what was sent has been without an answer of the peer's kernel, as far as it was
  /// looked at; 0 where there is nothing to answer.
  int64_t silent_ns(int64_t now_ns);
  /// errno of the call that failed, or 0.
  int error() const { return error_; }
  /// Closes the socket; `fd` is -1 from then on.
  void close() { socket_.reset(); }

  static constexpr uint32_t kNotWatched = ~0u;
  uint32_t interest = kNotWatched;  // what epoll watches for; kept here by the transport

 private:
  static constexpr size_t kBatch = 16;           // frames in one system call
  static constexpr uint32_t kInlineBytes = 216;  // payload copied behind its header
  // Once so much is held it leaves. The peer begins with the first of some short messages while
  // others are on their way; a virtual network hands on what is written at once only when it is
  // whole.
  static constexpr size_t kHeldLongEnough = 12 << 10;
  // One more put, the longest, and a fence.
  static constexpr size_t kHeldBytes = kHeldLongEnough + kUrgentPutBytesMax + 2 * kFrameHeaderBytes;
  static_assert(kHeldBytes <= RecordCipher::kMixedBytesMax);

  struct Outgoing {
    std::array<std::byte, kFrameHeaderBytes + kInlineBytes> head;  // header, then a small payload
    const std::byte* payload;                                      // a larger one
    uint32_t head_bytes, payload_bytes;
    uint64_t sequence;
    bool put;  // counts in the outbox
  };

  bool queued() const { return count_ > 0 || outbox_.pending(); }
  bool has_rest() const { return !rest_.empty() || rest_zeros_ > 0; }
  bool send_rest();
  bool has_sealed() const { return sealer_ && !sealer_->unsent().empty(); }
  void limit_unsent(uint32_t bytes);
  void limit_send_buffer();
  void limit_pace(uint64_t rate);
  void adapt_to_network();
  size_t write(std::span<iovec> pieces, size_t total);
  size_t write_plain(std::span<const iovec> pieces, size_t total);
  size_t write_sealed(std::span<iovec> pieces);
  size_t retire_held(size_t bytes);
  void enqueue_hello(const FrameHeader& header, std::span<const std::byte> hello);
  void enqueue(const Outbox::Piece& piece);
  uint32_t share_of(uint32_t put_bytes) const;
  void fill();
  size_t gather(std::array<iovec, 2 * kBatch + 1>& into, size_t& total) const;
  void retire(size_t bytes);

  UniqueFd socket_;
  SecureChannel channel_;
  std::vector<std::byte> sealed_hello_;
  std::optional<RecordSealer> sealer_;
  std::optional<RecordOpener> opener_;
  const uint32_t streams_;            // of this peer
  const uint32_t whole_piece_bytes_;  // where the network does not want shorter ones
  uint32_t piece_bytes_max_;
  uint32_t unsent_bytes_max_ = 0;  // 0: no limit
  bool is_networked_ = false;      // both ends have addresses of their own
  bool is_bbr_ = false;            // the congestion control, over a network
  uint64_t pace_;                  // bytes a second, at most
  uint64_t unmeasured_bytes_ = 0;  // written since the network's rate was looked up
  Reader reader_;
  Outbox& outbox_;
  std::array<Outgoing, kBatch> queue_;
  size_t first_ = 0, count_ = 0;  // of queue_, a ring
  size_t sent_ = 0;               // bytes of the first that are written; then all held stand behind
  std::array<std::byte, kHeldBytes> held_;
  size_t held_begin_ = 0, held_end_ = 0;
  std::vector<std::byte> rest_;  // of the frame that was given up; goes before all else
  uint32_t rest_zeros_ = 0;      // then so many
  bool blocked_ = false;
  int error_ = 0;
  int64_t silent_since_ns_ = 0;  // the first look since the last answer; 0: none is due
  int64_t looked_ns_ = 0;
};

}  // namespace ropewalk::tcp
