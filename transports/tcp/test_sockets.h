// Sockets between ranks of one process, for tests and benchmarks.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bootstrap/sockets.h"

namespace ropewalk::tcp {

/// Two connected non-blocking sockets. Throws std::runtime_error.
inline std::array<int, 2> unix_pair() {
  std::array<int, 2> ends;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw std::runtime_error("socketpair");
  return ends;
}

/// From `from` to 127.0.0.1. What has another address than the peer is taken for a network.
inline std::array<int, 2> loopback_pair(const char* from = "127.0.0.1") {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  sockaddr_in source = address;
  source.sin_addr.s_addr = inet_addr(from);
  if (bind(near, reinterpret_cast<sockaddr*>(&source), sizeof source) != 0)
    throw std::runtime_error("bind");
  if (bind(listener, generic, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, generic, &length) != 0 || ::connect(near, generic, length) != 0)
    throw std::runtime_error("loopback connection");
  const int far = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  close(listener);
  if (far < 0 || fcntl(near, F_SETFL, O_NONBLOCK) != 0) throw std::runtime_error("accept");
  return {near, far};
}

/// Of one of two ends.
inline ConnectionKeys test_keys(bool first) {
  const Key one{1}, other{2};
  return first ? ConnectionKeys{one, other} : ConnectionKeys{other, one};
}

/// Makes the one connection of (two ranks, stream) when either side asks for it, and hands an end
/// to each. Thread-safe.
class LocalNetwork {
 public:
  enum class Kind { unix_sockets, loopback, network };
  /// `socket_buffer_bytes` > 0 fixes both buffers of every socket.
  LocalNetwork(int ranks, Kind kind, int socket_buffer_bytes = 0)
      : kind_(kind), socket_buffer_bytes_(socket_buffer_bytes) {
    for (int rank = 0; rank < ranks; ++rank)
      sources_.push_back(std::make_unique<Source>(*this, rank));
  }
  SocketSource& source(int rank) { return *sources_[static_cast<size_t>(rank)]; }
  /// From now on nothing of what comes for `rank` over its stream from `peer` arrives, not even
  /// that something was received. Sockets of loopback alone.
  void deafen(int rank, int peer, int stream) {
    sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    const sock_fprog filter{1, &drop};
    const std::lock_guard lock(mutex_);
    if (setsockopt(ends_.at({rank, peer, stream}), SOL_SOCKET, SO_ATTACH_FILTER, &filter,
                   sizeof filter) != 0)
      throw std::runtime_error("SO_ATTACH_FILTER");
  }

 private:
  class Source final : public SocketSource {
   public:
    Source(LocalNetwork& network, int rank)
        : network_(network), rank_(rank), event_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
    ~Source() override { close(event_fd_); }
    void request(int peer, int stream) override { network_.connect(rank_, peer, stream); }
    ConnectedSocket take(int peer, int stream) override {
      const std::lock_guard lock(network_.mutex_);
      auto found = sockets_.extract({peer, stream});
      eventfd_t ignored;
      if (sockets_.empty()) eventfd_read(event_fd_, &ignored);
      return found ? std::move(found.mapped()) : ConnectedSocket();
    }
    std::vector<int> offers() const override {
      const std::lock_guard lock(network_.mutex_);
      std::vector<int> peers;
      for (const auto& [id, socket] : sockets_)
        if (id.second == 0) peers.push_back(id.first);
      return peers;
    }
    int event_fd() const override { return event_fd_; }

    // Under the network's mutex.
    void give(int peer, int stream, int fd) {
      sockets_[{peer, stream}] = {UniqueFd(fd), test_keys(rank_ < peer)};
      eventfd_write(event_fd_, 1);
    }

   private:
    LocalNetwork& network_;
    const int rank_;
    const int event_fd_;
    std::map<std::pair<int, int>, ConnectedSocket> sockets_;  // by (peer, stream)
  };

  void connect(int a, int b, int stream) {
    const std::lock_guard lock(mutex_);
    if (ends_.contains({a, b, stream})) return;
    const auto ends = kind_ == Kind::unix_sockets ? unix_pair()
                      : kind_ == Kind::loopback   ? loopback_pair()
                                                  : loopback_pair("127.0.0.2");
    for (const int fd : ends) {
      if (socket_buffer_bytes_ <= 0) continue;
      setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &socket_buffer_bytes_, sizeof(int));
      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &socket_buffer_bytes_, sizeof(int));
    }
    ends_[{a, b, stream}] = ends[0];
    ends_[{b, a, stream}] = ends[1];
    sources_[static_cast<size_t>(a)]->give(b, stream, ends[0]);
    sources_[static_cast<size_t>(b)]->give(a, stream, ends[1]);
  }

  const Kind kind_;
  const int socket_buffer_bytes_;
  std::mutex mutex_;
  std::map<std::array<int, 3>, int> ends_;  // by (rank, peer, stream)
  std::vector<std::unique_ptr<Source>> sources_;
};

}  // namespace ropewalk::tcp
