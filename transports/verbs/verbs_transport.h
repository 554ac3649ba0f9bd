// The transport over RDMA adapters: InfiniBand and RoCE.
#pragma once

#include <array>
#include <cassert>
#include <memory>
#include <string>
#include <vector>

#include "ropewalk/transport.h"
#include "transports/network_transport.h"
#include "transports/verbs/peer.h"
#include "transports/verbs/ports.h"
#include "transports/verbs/registration.h"

namespace ropewalk {

/// A put is an RDMA write with immediate data, which is the notice; the adapter reads the source
/// and writes the target itself. docs/protocol.md has what ranks say to each other before.
///
/// Each pair of ranks has one or more reliable connections, its lanes, over one or more ports. Puts
/// of at least verbs::kStripeBytes are cut over all lanes; all others take the first.
///
/// After a link stands nothing here allocates or blocks, and no put or poll makes a system call
/// (but where the adapter is made in software). Limits, then `full`: 256 puts under way per peer,
/// fewer where the device's queues are shorter.
///
/// A peer is lost when the adapter gives up sending to it (ROPEWALK_IB_TIMEOUT, ROPEWALK_IB_RETRY),
/// when its process ends (the socket of the handshake stays open and tells), when the port is down
/// for longer than Options::port_down_max_ns, and when it does what it may not.
class VerbsTransport final : public GreetedTransport<verbs::Peer> {
 public:
  /// This rank's end of a lane.
  struct LaneEnd {
    uint8_t port = 0;    // an index
    std::string subnet;  // of the GID to be taken, where the port has one there; empty: any
  };

  struct Options {
    verbs::Settings settings;
    verbs::PortPreference preference;
    /// By rank of the peer, for all ranks; both ranks must have as many.
    std::vector<std::vector<LaneEnd>> lanes;
    /// A port that is down for longer costs its peers their links, made or being established.
    int64_t port_down_max_ns = 500'000'000;
  };

  /// `ports` (at least one) lie on at most verbs::kAdaptersMax adapters. `sockets` must outlive the
  /// transport. Throws Error(invalid_argument, exhausted, system).
  VerbsTransport(int rank, int size, SocketSource& sockets, std::vector<verbs::Port> ports,
                 Options options);
  /// Waits until peers have what was put to them, no longer than they would be waited for anyway.
  ~VerbsTransport() override;

  Capabilities capabilities() const override {
    return {.name = "verbs",
            .registered_sources = true,
            .inline_bytes_max = inline_bytes_max_,
            .op_bytes_max = put_bytes_max_,
            .silence_max_ns = options_.settings.silence_max_ns(),
            .event_fd = event_fd()};
  }
  std::unique_ptr<MemoryRegistration> register_memory(const Region& region) override;
  void connect(int peer, std::span<const std::byte> hello) override;
  Posted put(const PutRequest& request) override;
  void set_batching(bool on) override;
  bool has_unsent() override { return false; }  // the adapter sends by itself
  size_t poll(std::span<Completion> into) override;
  bool arm() override;
  void drop(int peer) override;
  void set_stopped(bool on) override;

 private:
  using Peer = verbs::Peer;
  /// An adapter, and the queue of all that its queue pairs complete.
  struct Device {
    /// `completions_all`: that all lanes on it may have at once.
    Device(std::shared_ptr<verbs::Adapter> adapter_, size_t completions_all);

    const std::shared_ptr<verbs::Adapter> adapter;
    const verbs::Owned<ibv_comp_channel, ibv_destroy_comp_channel> channel;
    verbs::Owned<ibv_cq, ibv_destroy_cq> cq;
    uint32_t completions = 0;  // that its queue pairs may have at once
    bool armed = false;        // the channel will tell of the next completion
    /// By port number: when it went down, in ns of MonotonicClock; 0: it is up.
    std::array<int64_t, 256> down_since_ns{};
  };

  // linking.cc
  void advance(Peer& peer) override;
  void add_port(const verbs::Port& port);
  size_t lanes_in_all() const;
  void make_room(Device& device, uint32_t completions);
  void prepare(Peer& peer);
  void prepare_again(Peer& peer);
  const std::vector<LaneEnd>& ends_to(const Peer& peer) const {
    return options_.lanes[static_cast<size_t>(peer.rank)];
  }
  bool find_addresses(Peer& peer);
  void add_lanes(Peer& peer);
  void end_lanes(Peer& peer);
  void start_lanes(Peer& peer);
  std::string refresh_addresses(Peer& peer);
  void poll_control();

  // verbs_transport.cc
  Posted put_copied(Peer& peer, const PutRequest& request);
  Posted put_registered(Peer& peer, const PutRequest& request);
  void release_held();
  bool leave(Peer& peer, verbs::Lane& lane, size_t bytes);
  size_t drain(std::span<Completion> into = {});
  bool pass(const ibv_wc& completion, Completion& into);
  void completed(const ibv_wc& completion);
  void arrived(Peer& peer, verbs::Lane& lane, const ibv_wc& completion);
  void give_credits(Peer& peer);

  // errors.cc
  void failed(Peer& peer, const verbs::Lane& lane, const ibv_wc& completion);
  void lose_failing();
  bool posted(Peer& peer, const verbs::Lane& lane, int error);
  void read_events(Device& device);
  void on_event(Device& device, const ibv_async_event& event);
  void check_ports();
  void lose_all_on(const Device& device, int port, const std::string& why,
                   const std::string& advice);
  std::string own_name(const verbs::Port& port) const;
  void close(Peer& peer);
  void flush_on_close();

  const std::vector<verbs::Port> ports_;
  const Options options_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::shared_ptr<verbs::Adapter>> adapters_;  // of devices_
  std::vector<uint8_t> device_of_port_;                    // by index into ports_
  RegistrationCache plain_memory_;
  std::vector<Peer*> held_;       // peers with puts to be released
  uint32_t address_changes_ = 0;  // that adapters have told of
  bool batching_ = false;
  uint32_t inline_bytes_max_ = verbs::Lane::kInlineMax;
  size_t put_bytes_max_ = size_t{1} << 30;
};

}  // namespace ropewalk
