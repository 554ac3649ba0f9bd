#include "transports/tcp/stream.h"

#include <linux/tcp.h>  // not netinet/tcp.h, whose tcp_info ends before the delivery rate
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "bootstrap/net.h"

namespace ropewalk::tcp {
namespace {

// A put is cut where there are streams to share it: large enough to hide the cost of a call, small
// enough to keep four streams busy with one slice of a megabyte.
constexpr uint32_t kStripeBytes = 256 << 10;
// Over a network an urgent put waits for the rest of a piece, and for what the socket holds without
// having sent it: for as much of each as the network takes in a millisecond, but no less than keeps
// the kernel busy. Over loopback nothing waits, and both limits would cost a fifth of the
// bandwidth.
constexpr uint64_t kNetworkPieceMin = 128 << 10, kNetworkPieceMax = 4 << 20;
constexpr uint64_t kPiecesPerSecond = 1000;
// Within a host a socket holds no more than stays in the processors' caches until the peer reads
// it: the kernel would let it grow to megabytes. It counts twice as much, for its own structures.
constexpr int kLocalSendBufferBytes = 256 << 10;
// The kernel queues about a millisecond of the rate that it paces a socket at, of which BBR thinks
// too much where a link takes bursts. What one direction has queued delays the acknowledgements of
// the other, and both wait for windows. So that rate gets a limit, well above what was measured;
// single measurements may be far off. Fast links have none. Reno does not need it (measured), and
// the limit would make the kernel pace what it does not pace now.
constexpr uint64_t kPaceOverRate = 4;
constexpr uint64_t kPaceMin = 1 << 20, kPaceMax = uint64_t{4} << 30;  // bytes a second
constexpr uint64_t kMeasureEveryBytes = 1 << 20;

// The C library's send and recv are cancellation points: in a process with threads each pays two
// atomic operations for what nothing here uses. No call here blocks.
template <class... Arguments>
ssize_t call(long number, Arguments... arguments) {
  return ::syscall(number, arguments...);
}

/// Whether both ends have one address, so that no network lies between. Also for what is no IP.
bool is_local(int fd) {
  return bootstrap::local_address(fd).ip() == bootstrap::peer_address(fd).ip();
}

template <class Records>
std::optional<Records> if_sealed(const Reader::Expected& expected, const Key& key) {
  return expected.sealed ? std::optional<Records>(std::in_place, key) : std::optional<Records>();
}

}  // namespace

Stream::Stream(ConnectedSocket socket, int rank, const Reader::Expected& expected,
               std::span<const std::byte> hello, const Regions& regions, Inbox& inbox,
               Outbox& outbox)
    : socket_(std::move(socket.fd)),
      channel_(socket.keys),
      sealer_(if_sealed<RecordSealer>(expected, socket.keys.send)),
      opener_(if_sealed<RecordOpener>(expected, socket.keys.receive)),
      streams_(expected.streams),
      whole_piece_bytes_(streams_ > 1 ? kStripeBytes : kFrameBytesMax),
      piece_bytes_max_(whole_piece_bytes_),
      pace_(kPaceMax),
      reader_(regions, inbox, channel_, opener_ ? &*opener_ : nullptr, expected),
      outbox_(outbox) {
  assert(fd() >= 0);
  const int on = 1;
  // These fail on what is not TCP: no matter.
  setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  is_networked_ = !is_local(fd());
  if (is_networked_) {
    limit_unsent(kNetworkPieceMin);
    std::array<char, 16> control{};
    socklen_t length = control.size() - 1;
    getsockopt(fd(), IPPROTO_TCP, TCP_CONGESTION, control.data(), &length);
    is_bbr_ = std::string_view(control.data()).starts_with("bbr");
  } else {
    limit_send_buffer();
  }
  enqueue_hello({FrameKind::hello, kProtocolVersion, static_cast<uint64_t>(rank), expected.stream,
                 static_cast<uint32_t>(hello.size()), expected.streams, expected.sealed ? 1u : 0u},
                hello);
}

void Stream::enqueue_hello(const FrameHeader& header, std::span<const std::byte> hello) {
  std::vector<std::byte> frame(kFrameHeaderBytes);
  encode(header, frame.data());
  frame.insert(frame.end(), hello.begin(), hello.end());
  channel_.seal(frame, sealed_hello_);
  if (sealer_) return sealer_->add_sealed(sealed_hello_);
  Outgoing& out = queue_[count_++];
  out = {};
  out.payload = sealed_hello_.data();
  out.payload_bytes = static_cast<uint32_t>(sealed_hello_.size());
}

void Stream::limit_unsent(uint32_t bytes) {
  if (bytes == unsent_bytes_max_) return;
  unsent_bytes_max_ = bytes;
  piece_bytes_max_ = std::min(bytes, whole_piece_bytes_);
  setsockopt(fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

/// Where it is not smaller. The kernel tells twice what was set, for its own structures.
void Stream::limit_send_buffer() {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  if (getsockopt(fd(), SOL_SOCKET, SO_SNDBUF, &bytes, &length) != 0) return;
  if (bytes <= 2 * kLocalSendBufferBytes) return;
  setsockopt(fd(), SOL_SOCKET, SO_SNDBUF, &kLocalSendBufferBytes, sizeof kLocalSendBufferBytes);
}

void Stream::limit_pace(uint64_t rate) {
  const uint64_t pace = std::clamp(std::min(rate, kPaceMax) * kPaceOverRate,
                                   std::max(pace_ / 2, kPaceMin), std::min(pace_ * 2, kPaceMax));
  if (pace == pace_) return;
  pace_ = pace;
  const uint64_t limit = pace < kPaceMax ? pace : ~uint64_t{0};
  setsockopt(fd(), SOL_SOCKET, SO_MAX_PACING_RATE, &limit, sizeof limit);
}

// By what the network has taken of late.
void Stream::adapt_to_network() {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return;
  limit_unsent(static_cast<uint32_t>(std::clamp<uint64_t>(
      info.tcpi_delivery_rate / kPiecesPerSecond, kNetworkPieceMin, kNetworkPieceMax)));
  if (is_bbr_ && info.tcpi_delivery_rate_app_limited == 0) limit_pace(info.tcpi_delivery_rate);
}

Stream::Received Stream::receive() {
  std::array<iovec, 2> places;
  const int count = reader_.prepare(places);
  if (count == 0) return Received::nothing;
  ssize_t bytes;
  do {
    bytes = count == 1 ? call(SYS_recvfrom, fd(), places[0].iov_base, places[0].iov_len, 0, nullptr,
                              nullptr)
                       : call(SYS_readv, fd(), places.data(), count);
  } while (bytes < 0 && errno == EINTR);
  if (bytes == 0) return Received::end;
  if (bytes < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Received::nothing;
    if (error_ == 0) error_ = errno;
    return Received::error;
  }
  const size_t asked = places[0].iov_len + (count > 1 ? places[1].iov_len : 0);
  reader_.consume(static_cast<size_t>(bytes));
  return static_cast<size_t>(bytes) == asked ? Received::more : Received::some;
}

void Stream::restart() {
  assert(!sealer_);
  Outgoing& out = queue_[first_];
  if (count_ > 0 && (sent_ > 0 || !out.put)) {
    const size_t of_head = std::min<size_t>(sent_, out.head_bytes);
    const size_t of_payload = sent_ - of_head;
    rest_.insert(rest_.end(), out.head.data() + of_head, out.head.data() + out.head_bytes);
    if (out.put)
      rest_zeros_ += static_cast<uint32_t>(out.payload_bytes - of_payload);
    else  // the hello is this end's own
      rest_.insert(rest_.end(), out.payload + of_payload, out.payload + out.payload_bytes);
  }
  first_ = count_ = sent_ = 0;
  if (held_end_ + kFrameHeaderBytes > kHeldBytes) {
    rest_.insert(rest_.end(), rest_zeros_, std::byte{0});
    rest_zeros_ = 0;
    rest_.insert(rest_.end(), held_.data() + held_begin_, held_.data() + held_end_);
    held_begin_ = held_end_ = 0;
  }
  encode({.kind = FrameKind::fence}, held_.data() + held_end_);
  held_end_ += kFrameHeaderBytes;
  reader_.restart();
}

/// False where some of it is left.
bool Stream::send_rest() {
  static constexpr std::array<std::byte, 64 << 10> kZeros{};
  while (has_rest() && !blocked_ && error_ == 0) {
    const size_t zeros = std::min<size_t>(rest_zeros_, kZeros.size());
    const std::array<iovec, 2> pieces = {iovec{rest_.data(), rest_.size()},
                                         iovec{const_cast<std::byte*>(kZeros.data()), zeros}};
    const size_t written = write_plain(pieces, rest_.size() + zeros);
    const size_t of_rest = std::min(written, rest_.size());
    rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(of_rest));
    rest_zeros_ -= static_cast<uint32_t>(written - of_rest);
  }
  return !has_rest();
}

bool Stream::send() {
  if (!send_rest()) return false;
  fill();
  if (!has_output() || error_ != 0) return false;
  std::array<iovec, 2 * kBatch + 1> pieces;
  size_t total = 0;
  const size_t count = gather(pieces, total);
  const size_t bytes = write(std::span(pieces).first(count), total);
  retire(bytes);
  return !blocked_ && error_ == 0;
}

// Returns how much of `total` is done with, and notes why it was not all.
size_t Stream::write(std::span<iovec> pieces, size_t total) {
  return sealer_ ? write_sealed(pieces) : write_plain(pieces, total);
}

// What was sealed before goes first. A limit, as the peer may read as fast as this end seals, and
// what comes has to be read, too.
size_t Stream::write_sealed(std::span<iovec> pieces) {
  constexpr int kCallsMax = 4;
  size_t sealed = 0;
  for (int calls = 0; calls < kCallsMax; ++calls) {
    if (!has_sealed()) sealed += sealer_->seal(pieces);
    if (!has_sealed()) break;
    const auto unsent = sealer_->unsent();
    const iovec record = {const_cast<std::byte*>(unsent.data()), unsent.size()};
    sealer_->sent(write_plain({&record, 1}, unsent.size()));
    if (has_sealed()) break;  // the socket took no more
  }
  return sealed;
}

// One system call.
size_t Stream::write_plain(std::span<const iovec> pieces, size_t total) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  ssize_t bytes;
  do {
    bytes = pieces.size() == 1 ? call(SYS_sendto, fd(), pieces[0].iov_base, pieces[0].iov_len,
                                      MSG_NOSIGNAL, nullptr, 0)
                               : call(SYS_sendmsg, fd(), &message, MSG_NOSIGNAL);
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
    error_ = errno;
    return 0;
  }
  const size_t written = bytes < 0 ? 0 : static_cast<size_t>(bytes);
  unmeasured_bytes_ += written;
  if (unsent_bytes_max_ > 0 && unmeasured_bytes_ >= kMeasureEveryBytes) {
    unmeasured_bytes_ = 0;
    adapt_to_network();
  }
  blocked_ = written < total;
  return written;
}

bool Stream::hold(const FrameHeader& header, const std::byte* payload) {
  assert(idle() || header.kind == FrameKind::urgent);
  const size_t bytes = kFrameHeaderBytes + header.bytes;
  if (held() >= kHeldLongEnough) return false;
  assert(held() + bytes <= kHeldBytes);
  if (held_end_ + bytes > kHeldBytes) {
    std::memmove(held_.data(), held_.data() + held_begin_, held());
    held_end_ = held();
    held_begin_ = 0;
  }
  encode(header, held_.data() + held_end_);
  held_end_ += kFrameHeaderBytes;
  if (header.bytes > 0) std::memcpy(held_.data() + held_end_, payload, header.bytes);
  held_end_ += header.bytes;
  return true;
}

size_t Stream::send_now(const FrameHeader& header, const std::byte* payload) {
  assert(idle() && header.bytes <= piece_bytes_max_);
  FrameBytes head;
  encode(header, head.data());
  std::array<iovec, 3> pieces = {iovec{held_.data() + held_begin_, held()},
                                 iovec{head.data(), head.size()},
                                 iovec{const_cast<std::byte*>(payload), size_t{header.bytes}}};
  return retire_held(write(pieces, held() + head.size() + header.bytes));
}

// Returns how many of the `bytes` written stood behind those held back.
size_t Stream::retire_held(size_t bytes) {
  const size_t of_held = std::min(bytes, held());
  held_begin_ += of_held;
  if (held() == 0) held_begin_ = held_end_ = 0;
  return bytes - of_held;
}

void Stream::resume(size_t bytes) {
  assert(count_ == 0);
  // Whole, as its header says, also where pieces have become shorter since.
  enqueue(outbox_.claim(kPutBytesMax));
  sent_ = bytes;
}

void Stream::enqueue(const Outbox::Piece& piece) {
  Outgoing& out = queue_[(first_ + count_++) % kBatch];
  encode(piece.header, out.head.data());
  out.head_bytes = kFrameHeaderBytes;
  out.payload_bytes = piece.header.bytes;
  out.payload = piece.payload;
  out.sequence = piece.header.sequence;
  out.put = piece.header.kind == FrameKind::put;
  if (out.payload_bytes > 0 && out.payload_bytes <= kInlineBytes) {
    std::memcpy(out.head.data() + kFrameHeaderBytes, piece.payload, out.payload_bytes);
    out.head_bytes += out.payload_bytes;
    out.payload_bytes = 0;
  }
}

uint32_t Stream::share_of(uint32_t put_bytes) const {
  if (streams_ == 1 || !is_networked_) return piece_bytes_max_;
  const uint32_t share = put_bytes / streams_ + (put_bytes % streams_ != 0);
  return std::min(piece_bytes_max_, std::max(share, kSharedBytesMin));
}

// Claims pieces for one system call; with several streams not more than a stripe's worth, nor more
// than a share of one put, so that the others get theirs.
void Stream::fill() {
  uint64_t bytes = 0;
  for (size_t i = 0; i < count_; ++i) bytes += queue_[(first_ + i) % kBatch].payload_bytes;
  while (count_ < kBatch && bytes < piece_bytes_max_ && outbox_.pending()) {
    const Outbox::Piece piece = outbox_.claim(share_of(outbox_.next_put_bytes()));
    bytes += piece.header.bytes;
    enqueue(piece);
    if (streams_ > 1 && piece.header.bytes < piece.header.put_bytes) break;
  }
}

size_t Stream::gather(std::array<iovec, 2 * kBatch + 1>& into, size_t& total) const {
  size_t count = 0, skip = 0;
  const auto add = [&](const std::byte* from, size_t bytes) {
    const size_t skipped = std::min(skip, bytes);
    skip -= skipped;
    if (skipped == bytes) return;
    into[count++] = {const_cast<std::byte*>(from) + skipped, bytes - skipped};
    total += bytes - skipped;
  };
  const auto add_held = [&] { add(held_.data() + held_begin_, held()); };
  if (sent_ == 0) add_held();
  skip = sent_;
  for (size_t i = 0; i < count_; ++i) {
    const Outgoing& out = queue_[(first_ + i) % kBatch];
    add(out.head.data(), out.head_bytes);
    add(out.payload, out.payload_bytes);
    if (i == 0 && sent_ > 0) add_held();
  }
  return count;
}

void Stream::retire(size_t bytes) {
  bool held_first = sent_ == 0;
  if (held_first) bytes = retire_held(bytes);
  while (count_ > 0) {
    const Outgoing& out = queue_[first_];
    const size_t left = size_t{out.head_bytes} + out.payload_bytes - sent_;
    if (bytes < left) {
      sent_ += bytes;
      return;
    }
    bytes -= left;
    sent_ = 0;
    if (out.put) outbox_.written(out.sequence);
    first_ = (first_ + 1) % kBatch;
    --count_;
    if (!std::exchange(held_first, true)) bytes = retire_held(bytes);
  }
}

// Answers are acknowledgements: of what was sent again, as it was not acknowledged; where the
// peer's window is shut, of probes, of which one may be under way, or be lost, long before the
// next.
int64_t Stream::silent_ns(int64_t now_ns) {
  assert(fd() >= 0);
  constexpr int64_t kClockStep_ns = 10 * kMillisecond_ns;     // of the kernel's, at most
  constexpr int64_t kLooksApart_ns = 1000 * kMillisecond_ns;  // else nobody knows what was between
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
  const bool awaits_answer = (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) ||
                             (info.tcpi_unacked == 0 && info.tcpi_probes > 1);
  const int64_t answered_ns = now_ns - info.tcpi_last_ack_recv * kMillisecond_ns;
  const bool begins = silent_since_ns_ == 0 || now_ns - looked_ns_ > kLooksApart_ns ||
                      answered_ns > silent_since_ns_ + kClockStep_ns;
  looked_ns_ = now_ns;
  if (!awaits_answer)
    silent_since_ns_ = 0;
  else if (begins)
    silent_since_ns_ = now_ns;
  return silent_since_ns_ == 0 ? 0 : now_ns - silent_since_ns_;
}

}  // namespace ropewalk::tcp
