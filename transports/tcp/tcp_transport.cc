#include "transports/tcp/tcp_transport.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <utility>

#include "bootstrap/net.h"
#include "transports/region_memory.h"

namespace ropewalk {
namespace {

using tcp::Stream;

// Up to this many sockets each is read in turn: the call that would tell which are readable costs
// as much as the one that reads.
constexpr size_t kReadEachMax = 4;
constexpr int kEventsMax = 64;
// Up to this a put may be held back: copying it costs less than a system call.
constexpr uint32_t kHeldPutBytes = 2 << 10;
// A put writes at most about this much before it returns, a poll reads at most so often per socket:
// neither direction waits long for the other.
constexpr int kSendCallsMax = 16;
constexpr int kReceiveCallsMax = 4;
// Between looks at what peers have acknowledged.
constexpr int64_t kLookInterval_ns = 100 * kMillisecond_ns;
constexpr const char* kClosed = "connection closed by the peer";

}  // namespace

TcpTransport::TcpTransport(int rank, int size, SocketSource& sockets, const Options& options)
    : NetworkTransport("tcp", rank, size, sockets, options.streams),
      silence_max_ns_(options.silence_max.count()),
      secure_(options.secure) {
  const int streams = options.streams;
  if (streams < 1 || streams > static_cast<int>(tcp::kStreamsMax))
    throw Error(ErrorCode::invalid_argument, "tcp", fmt::format("{} streams per peer", streams),
                fmt::format("set ROPEWALK_TCP_STREAMS to 1 to {}", tcp::kStreamsMax));
  const auto count = static_cast<size_t>(size);
  links_.reserve(count * static_cast<size_t>(streams));
  held_back_.reserve(count);
}

std::unique_ptr<MemoryRegistration> TcpTransport::register_memory(const Region& region) {
  return std::make_unique<RegionMemory>(regions_, region);
}

// ---- Putting ----

Posted TcpTransport::put(const PutRequest& request) {
  assert(request.bytes <= tcp::kPutBytesMax);
  Posted answer;
  Peer* const p = target_of(request, answer);
  if (p == nullptr) return answer;
  if (p->ended > 0) return Posted::lost;
  if (request.urgent) return put_urgent(*p, request);
  tcp::Outbox& outbox = p->outbox;
  if (outbox.full()) return Posted::full;
  const tcp::Outbox::Put put{request.source,
                             request.key.id,
                             request.offset,
                             request.cookie,
                             static_cast<uint32_t>(request.bytes),
                             request.notice};
  const bool was_empty = outbox.empty();
  if (was_empty && streams_ == 1 && p->links[0]->stream.idle() &&
      put.bytes <= p->links[0]->stream.piece_bytes_max()) {
    if (write_now(*p->links[0], put)) return p->open() ? Posted::done : Posted::lost;
  } else {
    if (put.bytes > kHeldPutBytes) ++p->turn;
    outbox.post(put);
    flush(*p);
  }
  if (!p->open()) return Posted::lost;
  if (was_empty && outbox.done()) {
    outbox.take();
    return Posted::done;
  }
  peers_.publish(*p);
  return Posted::posted;
}

// On stream 0, past what is queued there.
Posted TcpTransport::put_urgent(Peer& peer, const PutRequest& request) {
  assert(request.bytes <= kUrgentPutBytesMax);
  PeerStream& link = *peer.links[0];
  const auto bytes = static_cast<uint32_t>(request.bytes);
  if (!link.stream.hold({tcp::FrameKind::urgent, request.notice, request.key.id, request.offset,
                         bytes, bytes, peer.urgent_puts},
                        request.source))
    return Posted::full;
  ++peer.urgent_puts;
  hold_back(link);
  return peer.open() ? Posted::done : Posted::lost;
}

// What the stream holds leaves with the batch, or at once.
void TcpTransport::hold_back(PeerStream& link) {
  if (!std::exchange(link.is_held_back, true)) held_back_.push_back(&link);
  if (!batching_) release_held();
}

// The short way for the only stream with nothing queued. True where the put needs nothing more;
// else what is left of it is posted, or the peer is lost.
bool TcpTransport::write_now(PeerStream& link, const tcp::Outbox::Put& put) {
  Stream& stream = link.stream;
  tcp::Outbox& outbox = link.peer.outbox;
  const tcp::FrameHeader header{
      tcp::FrameKind::put,   put.notice, put.key, put.offset, put.bytes, put.bytes,
      outbox.next_sequence()};
  if (put.bytes <= kHeldPutBytes && stream.hold(header, put.source)) {
    outbox.pass();
    hold_back(link);
    return true;
  }
  const size_t written = stream.send_now(header, put.source);
  if (written == tcp::kFrameHeaderBytes + put.bytes) {
    outbox.pass();
    if (stream.has_output()) watch(link);  // sealed, and the socket took no more
    return true;
  }
  outbox.post(put);
  stream.resume(written);
  if (check_broken(link)) watch(link);
  return false;
}

bool TcpTransport::has_unsent() {
  return std::ranges::any_of(links_,
                             [](const PeerStream* link) { return link->stream.has_output(); });
}

void TcpTransport::set_batching(bool on) {
  batching_ = on;
  if (!on) release_held();
}

void TcpTransport::release_held() {
  while (!held_back_.empty()) {
    PeerStream& link = *held_back_.back();
    held_back_.pop_back();
    link.is_held_back = false;
    if (link.stream.held() == 0 || link.stream.blocked() || !link.peer.open()) continue;
    link.stream.send();
    if (check_broken(link)) watch(link);
    peers_.publish(link.peer);  // an urgent put may have taken the last piece of another with it
  }
}

// False where the socket has failed, and the peer is lost. After a reset what the peer sent before
// it may still be read: `receive` will find the end.
bool TcpTransport::check_broken(PeerStream& link) {
  const int error = link.stream.error();
  if (error == 0 || error == EPIPE || error == ECONNRESET) return true;
  lose_for(link.peer, error);
  return false;
}

// Writes to the peer's streams in turn until they take no more or nothing is left. Each long put
// begins with another stream, or the first would get all that it can take before the others.
void TcpTransport::flush(Peer& peer) {
  int calls = 0;
  const size_t count = peer.links.size();
  for (bool more = true; more && calls < kSendCallsMax;) {
    more = false;
    for (size_t i = 0; i < count; ++i) {
      auto& link = peer.links[(peer.turn + i) % count];
      Stream& stream = link->stream;
      if (stream.fd() < 0 || stream.blocked() || stream.broken() || !stream.has_output()) continue;
      more |= stream.send();
      ++calls;
      if (!check_broken(*link)) return;
    }
  }
  for (auto& link : peer.links)
    if (link->stream.has_output()) watch(*link);
}

// ---- Polling ----

size_t TcpTransport::poll(std::span<Completion> into) {
  if (any_stalled_) resume_stalled();
  if (!peers_.any_ready()) {
    const bool each = !awaits_sockets_ && links_.size() <= kReadEachMax;
    watch_links(!each);
    if (each) {
      poll_each();
    } else {
      poll_events();
    }
  }
  lose_failing();
  return peers_.collect(into, [](Peer&) {});
}

bool TcpTransport::arm() {
  if (any_stalled_) resume_stalled();
  if (awaits_sockets_) take_sockets();
  watch_links(true);
  for (PeerStream* link : links_) watch(*link);
  check_silence();
  lose_failing();
  return !peers_.any_ready();
}

void TcpTransport::poll_each() {
  // From the last: a stream that ends, the one at hand, gives its place to one behind it.
  for (size_t i = links_.size(); i-- > 0;) {
    PeerStream& link = *links_[i];
    receive(link);
    if (link.stream.has_output()) send_more(link);
  }
}

void TcpTransport::poll_events() {
  std::array<epoll_event, kEventsMax> events;
  const int count = epoll_wait(epoll_fd_.get(), events.data(), kEventsMax, 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.u64 == kSocketsTag) {
      take_sockets();
      continue;
    }
    PeerStream& link = *static_cast<PeerStream*>(event.data.ptr);
    if (link.stream.fd() >= 0 && (event.events & ~uint32_t{EPOLLOUT}) != 0) receive(link);
    if ((event.events & EPOLLOUT) != 0) send_more(link);
  }
}

// The socket may take something again.
void TcpTransport::send_more(PeerStream& link) {
  if (!link.peer.open() || link.stream.fd() < 0) return;
  link.stream.unblock();
  flush(link.peer);
  watch(link);
  peers_.publish(link.peer);
}

void TcpTransport::receive(PeerStream& link) {
  Peer& peer = link.peer;
  for (int calls = 0; calls < kReceiveCallsMax && peer.open(); ++calls) {
    const Stream::Received result = link.stream.receive();
    if (result == Stream::Received::nothing && link.stream.reader().violation() == nullptr) return;
    if (result == Stream::Received::end) return end_stream(link);
    if (result == Stream::Received::error) return lose_for(peer, link.stream.error());
    received(link);
    if (result != Stream::Received::more || peer.inbox.ready()) return;
  }
}

// Looks at what the reader made of new bytes.
void TcpTransport::received(PeerStream& link) {
  Peer& peer = link.peer;
  const tcp::Reader& reader = link.stream.reader();
  if (reader.violation() != nullptr)
    return peers_.refuse(peer, fmt::format("it {}", reader.violation()));
  const auto has_hello = [](const auto& each) { return each->stream.reader().has_hello(); };
  if (peer.state == Peer::State::linking && peer.sockets == streams_ &&
      std::ranges::all_of(peer.links, has_hello))
    set_linked(peer);
  if (reader.stalled()) {
    any_stalled_ = true;
    check_stuck(peer);
  }
  peers_.publish(peer);
}

void TcpTransport::resume_stalled() {
  any_stalled_ = false;
  for (PeerStream* link : links_) {
    if (!link->peer.open() || !link->stream.reader().stalled()) continue;
    link->stream.reader().resume();
    received(*link);
    watch(*link);
  }
}

// ---- Losing ----

// The first look at which something was on its way, and after which no answer came, begins it.
void TcpTransport::check_silence() {
  const int64_t now_ns = clock_.now_ns();
  if (now_ns < next_look_ns_) return;
  next_look_ns_ = now_ns + kLookInterval_ns;
  for (PeerStream* link : links_) {
    const int64_t silent_ns = link->stream.silent_ns(now_ns);
    if (silent_ns < silence_max_ns_) continue;
    const int fd = link->stream.fd();
    peers_.lose_silent(
        link->peer,
        fmt::format("nothing sent to it was acknowledged for {:.3g} s on the path {} to {}",
                    static_cast<double>(silent_ns) / 1e9, bootstrap::local_address(fd).text(),
                    bootstrap::peer_address(fd).text()));
  }
}

// A peer that leaves closes its streams one by one: what is still in the others is read first.
void TcpTransport::end_stream(PeerStream& link) {
  Peer& peer = link.peer;
  const bool whole = link.stream.reader().between_frames();
  const int error = link.stream.error();
  if (error != 0 && error != EPIPE) return lose_for(peer, error);
  if (!whole)
    return peers_.lose_closed(peer, "connection closed by the peer in the middle of a message");
  close(link);
  ++peer.ended;
  peer.why.text = kClosed;  // nothing can be put, though others may still bring something
  peer.why.closed = true;
  if (peer.state == Peer::State::linking) return peers_.lose_closed(peer, kClosed);
  check_stuck(peer);
}

// Loses a peer of which no stream can bring anything more: each has ended, or waits for the window
// to move, and what would move the window is in none of them.
void TcpTransport::check_stuck(Peer& peer) {
  if (!peer.open() || peer.sockets < streams_) return;
  for (const auto& link : peer.links) {
    if (link->stream.fd() < 0) continue;
    if (!link->stream.reader().stalled() || peer.inbox.ready()) return;
  }
  peers_.lose(peer, peer.ended > 0 ? kClosed : "it left out a put");
}

void TcpTransport::lose_for(Peer& peer, int error) {
  if (error == ECONNRESET || error == EPIPE) return peers_.lose_closed(peer, errno_text(error));
  if (error != EFAULT) return peers_.lose(peer, errno_text(error));
  peers_.lose(peer, "memory of a call was unmapped or freed on this side while the call ran",
              "keep every buffer until its call has ended");
}

void TcpTransport::lose_failing() {
  if (peers_.failing().empty()) return;
  peers_.lose_failing([this](Peer& peer) { release(peer); });
}

// What is read from here on, up to the peer's fence, was for memory that callers have back.
void TcpTransport::set_stopped(bool on) {
  if (on) return lose_failing();
  assert(capabilities().restarts);
  for (size_t i = links_.size(); i-- > 0;) {
    PeerStream& link = *links_[i];
    link.peer.outbox.restart();
    link.peer.inbox.restart();
    link.peer.urgent_puts = 0;
    link.stream.restart();
    link.stream.unblock();
    received(link);
    if (link.peer.open()) flush(link.peer);
    watch(link);
  }
}

void TcpTransport::drop(int peer) {
  Peer* p = peers_.find(peer);
  if (p == nullptr) return;
  release(*p);
  for (auto& link : p->links) close(*link);
  peers_.drop(*p);
}

void TcpTransport::release(Peer& peer) {
  for (auto& link : peer.links) peer.why.silent ? unwatch(*link) : close(*link);
  unlist(peer);
  peer.outbox.clear();
}

void TcpTransport::close(PeerStream& link) {
  unwatch(link);
  link.stream.close();
}

void TcpTransport::unwatch(PeerStream& link) {
  const auto watched = std::find(links_.begin(), links_.end(), &link);
  if (watched == links_.end()) return;
  // Explicitly: a forked child may hold the socket open, and then closing does not remove it.
  epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, link.stream.fd(), nullptr);
  std::erase(held_back_, &link);
  *watched = links_.back();
  links_.pop_back();
}

}  // namespace ropewalk
