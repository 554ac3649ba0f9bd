// What the transports over a network have in common: how links begin, over the sockets of a
// SocketSource, and what is answered alike of their peers.
#pragma once

#include <fmt/format.h>
#include <sys/epoll.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/unique_fd.h"
#include "bootstrap/sockets.h"
#include "ropewalk/transport.h"
#include "transports/network_peers.h"

namespace ropewalk {

inline std::string errno_text(int error) {
  return std::generic_category().message(error);
}

/// What of errno says why `call`, which makes a descriptor, has failed.
[[noreturn]] inline void fail_system(const char* transport, const char* call) {
  const int error = errno;
  throw Error(ErrorCode::system, transport, fmt::format("{}: {}", call, errno_text(error)),
              advice_for_descriptors(error));
}

/// `Peer` is as NetworkPeers wants it.
template <class Peer>
class NetworkTransport : public Transport {
 public:
  MappedMemory* mapped_memory() final { return nullptr; }
  std::optional<std::span<const std::byte>> hello_of(int peer) const final {
    const Peer* p = peers_.find(peer);
    if (p == nullptr || p->state != Peer::State::linked) return {};
    return p->hello_here();
  }
  void find_wanted(std::vector<int>& peers) final {
    for (const int peer : sockets_.offers())
      if (peers_.find(peer) == nullptr) peers.push_back(peer);
  }
  LossReason why_lost(int peer) const final {
    const Peer* p = peers_.find(peer);
    return p == nullptr ? LossReason() : p->why;
  }

 protected:
  int event_fd() const { return epoll_fd_.get(); }

  /// Comes with an event of the source of sockets. No rank and no address.
  static constexpr uint64_t kSocketsTag = ~uint64_t{0};

  /// `streams`: sockets per peer. Throws Error(invalid_argument, system).
  NetworkTransport(const char* name, int rank, int size, SocketSource& sockets, int streams = 1)
      : rank_(rank),
        size_(size),
        streams_(streams),
        sockets_(sockets),
        epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
        peers_(size) {
    if (size < 1 || rank < 0 || rank >= size)
      throw Error(ErrorCode::invalid_argument, name, fmt::format("rank {} of {}", rank, size));
    if (!epoll_fd_) fail_system(name, "epoll_create1");
    linking_.reserve(static_cast<size_t>(size));
  }

  // --- linking ---
  /// For `connect`; false where that is a repeated call. Throws Error(invalid_argument).
  bool is_new(int peer, std::span<const std::byte> hello) const {
    if (peer < 0 || peer >= size_ || peer == rank_)
      throw Error(ErrorCode::invalid_argument, "connect",
                  fmt::format("rank {} cannot link with rank {} of {}", rank_, peer, size_));
    if (hello.size() > kHelloBytesMax)
      throw Error(ErrorCode::invalid_argument, "connect",
                  fmt::format("a hello of {} bytes; {} at most", hello.size(), kHelloBytesMax));
    return peers_.find(peer) == nullptr;
  }
  /// Throws Error(system).
  void begin_link(std::unique_ptr<Peer> added) {
    Peer& peer = peers_.add(std::move(added));
    linking_.push_back(&peer);
    await_sockets(true);
    for (int stream = 0; stream < streams_; ++stream) sockets_.request(peer.rank, stream);
    take_sockets();
  }
  void set_linked(Peer& peer) {
    peer.state = Peer::State::linked;
    unlist(peer);
  }
  /// It is linked, or will not be.
  void unlist(Peer& peer) {
    std::erase(linking_, &peer);
    if (linking_.empty()) await_sockets(false);
  }

  /// One of the peer's, which wants it. May lose the peer, or link it.
  virtual void take_socket(Peer& peer, int stream, ConnectedSocket socket) = 0;
  /// For all peers that lack some.
  void take_sockets() {
    bool all = true;
    // From the last: one whose link stands then, the one at hand, leaves the list.
    for (size_t i = linking_.size(); i-- > 0;) {
      Peer& peer = *linking_[i];
      while (peer.open() && peer.sockets < streams_) {
        ConnectedSocket socket = sockets_.take(peer.rank, peer.sockets);
        all &= static_cast<bool>(socket);
        if (!socket) break;
        take_socket(peer, peer.sockets++, std::move(socket));
      }
    }
    if (all) await_sockets(false);
  }
  /// Has the epoll set tell of new sockets, or not. Edge-triggered: sockets that other ranks
  /// opened, and nobody here has asked for yet, keep the source's descriptor readable. Throws
  /// Error(system), only where `on`.
  void await_sockets(bool on) {
    if (on == awaits_sockets_) return;
    const int fd = sockets_.event_fd();
    if (!on)
      epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
    else if (fd >= 0 && !watch(fd, kSocketsTag, EPOLLIN | EPOLLET))
      throw Error(ErrorCode::system, "connect", "cannot watch for sockets: " + errno_text(errno),
                  advice_to_watch(errno));
    awaits_sockets_ = on;
  }

  /// Has the epoll set tell with `tag` when `fd` is readable. False where it cannot, with errno.
  bool watch(int fd, uint64_t tag, uint32_t events = EPOLLIN) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = tag;
    return epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }
  /// `error`: of epoll_ctl.
  void lose_unwatched(Peer& peer, int error) {
    peers_.lose(peer, "cannot watch its socket: " + errno_text(error), advice_to_watch(error));
  }

  // --- putting ---
  /// Whom the put is for. Null where it cannot be posted, and `answer` says why.
  Peer* target_of(const PutRequest& request, Posted& answer) {
    Peer* const peer = peers_.find(request.peer);
    assert(peer != nullptr);
    if (peer->state == Peer::State::linked && is_within_key(request)) return peer;
    answer = peer->state == Peer::State::linked
                 ? refuse(*peer, "it does not lie in the peer's region")
                 : (peer->open() ? Posted::full : Posted::lost);
    return nullptr;
  }
  /// Loses the peer.
  Posted refuse(Peer& peer, const std::string& why) {
    peers_.lose(peer, "a put was refused: " + why);
    return Posted::lost;
  }

  const int rank_;
  const int size_;
  const int streams_;
  SocketSource& sockets_;
  UniqueFd epoll_fd_;
  NetworkPeers<Peer> peers_;
  std::vector<Peer*> linking_;   // those not yet linked
  bool awaits_sockets_ = false;  // some of them lack a socket

 private:
  static std::string advice_to_watch(int error) {
    return error == ENOSPC ? "raise the limit: sysctl fs.epoll.max_user_watches" : std::string();
  }
};

/// One whose links are made by a handshake over a socket per peer. The socket stays open and tells
/// when the peer has gone; everything else takes another way. A `Peer` also has a Greeting, named
/// `greeting`.
template <class Peer>
class GreetedTransport : public NetworkTransport<Peer> {
 protected:
  using Base = NetworkTransport<Peer>;
  using Base::Base;
  using Base::linking_, Base::peers_;

  /// Goes as far with the link as the socket allows.
  virtual void advance(Peer& peer) = 0;
  void take_socket(Peer& peer, int, ConnectedSocket socket) final {
    peer.greeting.begin(std::move(socket));
    if (this->watch(peer.greeting.socket.get(), static_cast<uint64_t>(peer.rank)))
      return advance(peer);
    this->lose_unwatched(peer, errno);
  }
  /// Sends and reads what the socket lets pass. Calls `complete()` once the peer's handshake is,
  /// and `more(byte)` for what follows, which is false where it may not. False where the peer has
  /// gone.
  template <class Complete, class More>
  bool greet(Peer& peer, Complete&& complete, More&& more) {
    auto& greeting = peer.greeting;
    if (!peer.open() || !greeting.socket) return false;
    greeting.send();
    const std::string error = greeting.receive([&](std::byte byte) {
      auto& reader = greeting.reader;
      if (reader.complete()) {
        if (!more(byte)) peers_.lose(peer, "it sent bytes after its handshake");
      } else if (!reader.take(byte)) {
        peers_.lose(peer, fmt::format("it {}", reader.violation()));
      } else if (reader.complete()) {
        const uint32_t rank = reader.handshake().rank;
        if (rank == static_cast<uint32_t>(peer.rank))
          complete();
        else
          peers_.lose(peer, fmt::format("it calls itself rank {} of the job", rank));
      }
      return peer.open();
    });
    if (error.empty()) return true;
    // One that has gone makes the descriptor readable for ever.
    epoll_ctl(this->epoll_fd_.get(), EPOLL_CTL_DEL, greeting.socket.get(), nullptr);
    peers_.lose_later(peer, error);
    return false;
  }
  /// For a peer that is lost. The socket stays open: its end would tell the peer that this process
  /// has gone, before it hears the true reason.
  void end_greeting(Peer& peer) {
    if (peer.greeting.socket)
      epoll_ctl(this->epoll_fd_.get(), EPOLL_CTL_DEL, peer.greeting.socket.get(), nullptr);
    this->unlist(peer);
  }

  /// For `poll`: whether to look at sockets, which no completion tells of. Seldom while all peers
  /// are linked.
  bool is_time_to_look() {
    constexpr uint32_t kPollsPerLook = 4096;
    return !linking_.empty() || ++polls_ % kPollsPerLook == 0;
  }
  /// Looks at them. Calls `on_event(tag)` for what else the epoll set tells of.
  template <class OnEvent>
  void look_at_sockets(OnEvent&& on_event) {
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(this->epoll_fd_.get(), events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) {
      const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
      if (tag == Base::kSocketsTag) continue;
      if (tag >= static_cast<uint64_t>(this->size_))
        on_event(tag);
      else if (peers_[tag].state == Peer::State::linked)
        advance(peers_[tag]);  // the others below
    }
    if (this->awaits_sockets_) this->take_sockets();
    // From the last: one whose link stands then, the one at hand, leaves the list.
    for (size_t i = linking_.size(); i-- > 0;) {
      Peer& peer = *linking_[i];
      const bool was_open = peer.open();
      advance(peer);
      // It may have taken long: verbs looks for a way to the peer for up to a second. The others'
      // turn is the next poll.
      if (was_open && !peer.open()) break;
    }
  }

  // Since `arm` last said so a link came to stand, or credits or room came back: what `poll` has no
  // word for.
  bool progress_made_ = false;

 private:
  uint32_t polls_ = 0;
};

}  // namespace ropewalk
