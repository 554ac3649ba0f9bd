// The transport over stream sockets: for ranks that share neither memory nor an RDMA fabric.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "memory/regions.h"
#include "ropewalk/transport.h"
#include "transports/network_transport.h"
#include "transports/tcp/peer.h"

namespace ropewalk {

/// A put travels as a frame, header and payload, and is received straight into its region; memory
/// need not be registered to be a source. docs/protocol.md has every byte.
///
/// After a link stands nothing here allocates or blocks. A small put costs the sender one system
/// call and the receiver one, or a part of one while batching is on. Limits: 128 puts
/// under way per peer, and 40 KiB of urgent ones (then `full`); 256 notices per peer that were not
/// polled, and as many urgent ones (then the peer's frames wait in the socket); 1 GiB per put.
///
/// Over a network an urgent put stands behind the rest of a piece and behind what the kernel has
/// not sent (TCP_NOTSENT_LOWAT), each of a millisecond or 128 KiB, and not behind the puts that
/// wait.
///
/// A peer is lost when a stream ends or fails, or when it sends what it may not. What arrived whole
/// before comes out of `poll` first. So it is when what it was sent is not acknowledged for
/// `silence_max`: a network swallows it, for the peer's kernel answers even while the peer
/// computes. `arm` looks for that, as waits that take long call it.
class TcpTransport final : public NetworkTransport<tcp::Peer> {
 public:
  struct Options {
    /// Sockets per peer, 1 to 16, the same on every rank; with more than one, the pieces of a put
    /// travel side by side.
    int streams = 1;
    std::chrono::nanoseconds silence_max = std::chrono::seconds(22);
    /// Data is sealed: it can be neither read nor changed on its way. The same on every rank.
    bool secure = false;
  };
  /// `sockets` must outlive the transport. Throws Error(invalid_argument, system).
  TcpTransport(int rank, int size, SocketSource& sockets, const Options& options);

  static size_t spread_bytes_min(int streams) {
    return streams > 1 ? tcp::kSharedBytesMin : SIZE_MAX;
  }
  Capabilities capabilities() const override {
    return {.name = "tcp",
            .op_bytes_max = tcp::kPutBytesMax,
            .spread_bytes_min = spread_bytes_min(streams_),
            .polls_kernel = true,
            .silence_max_ns = silence_max_ns_,
            .restarts = streams_ == 1 && !secure_,
            .event_fd = event_fd()};
  }
  /// The region must not end while a peer may still write it: a put to a region that has gone
  /// costs the peer its link.
  std::unique_ptr<MemoryRegistration> register_memory(const Region& region) override;
  void connect(int peer, std::span<const std::byte> hello) override;
  Posted put(const PutRequest& request) override;
  void set_batching(bool on) override;
  bool has_unsent() override;
  size_t poll(std::span<Completion> into) override;
  bool arm() override;
  void drop(int peer) override;
  void set_stopped(bool on) override;

 private:
  using Peer = tcp::Peer;
  using PeerStream = tcp::PeerStream;

  void take_socket(Peer& peer, int stream, ConnectedSocket socket) override;
  void watch(PeerStream& link);
  void watch_links(bool on);

  void poll_each();
  void poll_events();
  void send_more(PeerStream& link);
  void receive(PeerStream& link);
  void received(PeerStream& link);
  void resume_stalled();
  void release_held();
  Posted put_urgent(Peer& peer, const PutRequest& request);
  void hold_back(PeerStream& link);
  bool write_now(PeerStream& link, const tcp::Outbox::Put& put);
  bool check_broken(PeerStream& link);
  void flush(Peer& peer);

  void check_silence();
  void end_stream(PeerStream& link);
  void check_stuck(Peer& peer);
  /// For what a system call on one of its sockets said.
  void lose_for(Peer& peer, int error);
  void lose_failing();
  /// Nothing passes any more. The sockets of a peer that fell silent stay open until it is dropped:
  /// else it might hear of their end before it hears why, and take this rank for dead.
  void release(Peer& peer);
  void close(PeerStream& link);
  void unwatch(PeerStream& link);

  // The sockets are in the epoll set. While each is read in turn they are not: every packet would
  // cost its sender a wake-up that nobody waits for.
  bool watching_links_ = true;
  bool batching_ = false;
  const MonotonicClock clock_;
  const int64_t silence_max_ns_;
  const bool secure_;
  int64_t next_look_ns_ = 0;  // of check_silence
  bool any_stalled_ = false;  // some reader waits for its peer's window to move
  Regions regions_;
  std::vector<PeerStream*> links_;      // open sockets
  std::vector<PeerStream*> held_back_;  // open sockets with puts to be released
};

}  // namespace ropewalk
