// The transport over UCX, for fabrics that Ropewalk does not speak itself.
#pragma once

#include <cassert>
#include <chrono>
#include <memory>
#include <vector>

#include "memory/regions.h"
#include "ropewalk/transport.h"
#include "transports/network_transport.h"
#include "transports/ucx/peer.h"
#include "transports/ucx/worker.h"

namespace ropewalk {

/// A put is an active message: a short one carries its bytes, of a long one UCX fetches them
/// straight into the region (rendezvous). README.md tells why. Which wires, devices and lanes are
/// used is UCX's to choose, by its own variables (UCX_TLS, UCX_NET_DEVICES, UCX_MAX_RNDV_RAILS,
/// ...).
///
/// Limits, then `full`: 256 puts under way per peer, or that the peer has not polled. Ropewalk's
/// own code allocates nothing after a link stands; UCX keeps pools, which grow.
///
/// A peer is lost when its process ends (the socket of the handshake stays open and tells), when it
/// does what it may not, and when UCX says that its endpoint failed. Endpoints that are to tell so
/// use no shared memory (UCX 1.13): for that there is ucx_sharing.h.
class UcxTransport final : public GreetedTransport<ucx::Peer> {
 public:
  /// `sockets` must outlive the transport. Throws Error(invalid_argument, unavailable, system).
  UcxTransport(int rank, int size, SocketSource& sockets);
  /// Waits until what was `done` has left, a second at most.
  ~UcxTransport() override;

  Capabilities capabilities() const override {
    return {.name = "ucx", .uses_poll_timer = true, .event_fd = event_fd()};
  }
  /// The region must not end while a peer may still write it: a put to a region that has gone
  /// costs the peer its link.
  std::unique_ptr<MemoryRegistration> register_memory(const Region& region) override;
  void connect(int peer, std::span<const std::byte> hello) override;
  Posted put(const PutRequest& request) override;
  void set_batching(bool) override {}  // UCX decides what leaves together
  bool has_unsent() override;
  size_t poll(std::span<Completion> into) override;
  bool arm() override;
  void drop(int peer) override;
  void set_stopped(bool on) override;

 private:
  using Peer = ucx::Peer;
  using Put = ucx::Put;
  using Receive = ucx::Receive;

  // linking.cc
  void advance(Peer& peer) override;
  void start(Peer& peer);
  ucs_status_t open_endpoint(Peer& peer);
  void finish_link(Peer& peer);
  void poll_control();
  bool watch_worker(bool on);
  void nap();

  // ucx_transport.cc
  // The peer is told of so many of its puts at once.
  static constexpr uint32_t kCreditsAtOnce = ucx::Inbox::kWindow / 4;
  static ucs_status_ptr_t send(const Peer& peer, Put& put, const ucx::PutHeader& header,
                               const std::byte* source, size_t bytes);
  void drain();
  void note_progress() {
    progress_made_ = true;
    busy_arms_ = 0;
  }
  void give_credits(Peer& peer);
  void tell(Peer& peer, uint32_t flags);
  bool take_credits(Peer& peer, uint16_t low);
  void publish(Peer& peer);

  // messages.cc; UCX calls the static ones while it progresses
  void set_handler(unsigned id, ucp_am_recv_callback_t handler);
  Peer* find_link(uint32_t link) const;
  static ucs_status_t on_put(void* self, const void* header, size_t header_bytes, void* data,
                             size_t bytes, const ucp_am_recv_param_t* about);
  static ucs_status_t on_compact_put(void* self, const void* header, size_t header_bytes,
                                     void* data, size_t bytes, const ucp_am_recv_param_t* about);
  static ucs_status_t on_credit(void* self, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* about);
  static void on_sent(void* request, ucs_status_t status, void* put);
  static void on_flushed(void* request, ucs_status_t status, void* peer);
  static void on_credit_sent(void* request, ucs_status_t status, void* peer);
  static void on_received(void* request, ucs_status_t status, size_t bytes, void* receive);
  static void on_failure(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  bool has_begun(Peer& peer, ucs_status_ptr_t request, const char* what);
  static bool has_ended(Peer& peer, void* request, ucs_status_t status, const char* what);
  void arrived(const ucx::PutHeader& header, void* data, size_t bytes, bool is_rendezvous);
  bool may_give(const Peer& peer) const;
  void give(Peer& peer, uint32_t notice);
  void receive(Peer& peer, uint32_t sequence, std::byte* target, void* data, size_t bytes);

  // errors.cc
  void lose_failing();
  void close(Peer& peer);
  void begin_close(Peer& peer);
  void finish_close(Peer& peer, std::chrono::steady_clock::time_point deadline);
  void stop_after(const Peer& lost);
  bool settle();
  void flush_on_close();

  UniqueFd poll_timer_fd_;  // a timer, in the epoll set
  Regions regions_;
  std::span<Completion> to_fill_;  // of `poll`, while UCX progresses in it
  bool watching_worker_ = false;
  bool stopped_ = false;    // UCX is never to move anything again
  bool abandoned_ = false;  // nor to be ended
  bool unflushed_ = false;  // something was put since the last flush began
  void* flush_ = nullptr;   // UCX's request, while a flush is under way
  uint32_t busy_arms_ = 0;  // since anything came
  // Last: at its end UCX completes what was under way, and calls.
  ucx::Worker worker_;
  const std::vector<std::byte> address_;  // of worker_
};

}  // namespace ropewalk
