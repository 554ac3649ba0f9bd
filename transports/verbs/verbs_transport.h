// The transport over RDMA adapters: InfiniBand and RoCE.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bootstrap/sockets.h"
#include "memory/memfd.h"
#include "ropewalk/transport.h"
#include "transports/network_peers.h"
#include "transports/socket_watch.h"
#include "transports/verbs/lane.h"
#include "transports/verbs/ports.h"
#include "transports/verbs/registration.h"

namespace ropewalk {

/// A put is an RDMA write with immediate data, which is the notice; the adapter reads the source
/// and writes the target itself. docs/protocol.md has what ranks say to each other before.
///
/// Each pair of ranks has one or more reliable connections, its lanes, over one or more ports. Puts
/// of at least kStripeBytes are cut over all lanes; all others take the first.
///
/// After a link stands nothing here allocates or blocks, and no put or poll makes a system call
/// (but where the adapter is made in software). Limits, then `full`: 256 puts under way per peer,
/// fewer where the device's queues are shorter.
///
/// A peer is lost when the adapter gives up sending to it (ROPEWALK_IB_TIMEOUT, ROPEWALK_IB_RETRY),
/// when its process ends (the socket of the handshake stays open and tells), when the port is down
/// for longer than Options::port_down_max_ns, and when it does what it may not.
class VerbsTransport final : public Transport {
 public:
  static constexpr size_t kStripeBytes = 32 << 10;

  /// This rank's end of a lane.
  struct LaneEnd {
    uint8_t port = 0;    // an index
    std::string subnet;  // of the GID to be taken, where the port has one there; empty: any
  };

  struct Options {
    verbs::Settings settings;
    verbs::PortPreference preference;
    /// By peer; both ranks must have as many. Where empty, one lane on each port.
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
            .silence_max_ns = options_.settings.silence_max_ns()};
  }
  MappedMemory* mapped_memory() override { return nullptr; }
  std::unique_ptr<MemoryRegistration> register_memory(const Region& region) override;
  void connect(int peer, std::span<const std::byte> hello) override;
  std::optional<std::span<const std::byte>> hello_of(int peer) const override;
  bool is_wanted(int peer) const override;
  Posted put(const PutRequest& request) override;
  void set_batching(bool on) override;
  bool has_unsent() override { return false; }  // the adapter sends by itself
  size_t poll(std::span<Completion> into) override;
  int event_fd() const override { return epoll_fd_.get(); }
  bool arm() override;
  void drop(int peer) override;
  void stop() override;
  LossReason why_lost(int peer) const override;

 private:
  struct Peer;
  struct Device;                 // an adapter in use
  enum class Source : uint32_t;  // what an epoll event speaks of

  // linking.cc
  static uint64_t tag_of(Source source, uint32_t index) {
    return static_cast<uint64_t>(source) << 32 | index;
  }
  bool watch(Source source, uint32_t index, int fd);
  void watch_for_sockets(bool on);
  void add_port(const verbs::Port& port);
  size_t lanes_in_all() const;
  void make_room(Device& device, uint32_t completions);
  void prepare(Peer& peer);
  void prepare_again(Peer& peer);
  std::vector<LaneEnd> ends_to(const Peer& peer) const;
  bool find_addresses(Peer& peer, std::span<const LaneEnd> ends);
  void add_lanes(Peer& peer, std::span<const LaneEnd> ends);
  void take_sockets();
  void advance(Peer& peer);
  void take_greeting(Peer& peer, std::byte byte);
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
  size_t collect(std::span<Completion> into);
  void give_credits(Peer& peer);

  // errors.cc
  void failed(Peer& peer, const verbs::Lane& lane, const ibv_wc& completion);
  void lose_failing();
  void failed_to_post(Peer& peer, const verbs::Lane& lane, int error);
  void read_events(Device& device);
  void on_event(Device& device, const ibv_async_event& event);
  void check_ports();
  void lose_all_on(const Device& device, int port, const std::string& why,
                   const std::string& advice);
  std::string own_name(const verbs::Port& port) const;
  void close(Peer& peer);
  void flush_on_close();

  const int rank_;
  const int size_;
  SocketSource& sockets_;
  const std::vector<verbs::Port> ports_;
  const Options options_;
  UniqueFd epoll_fd_;
  SocketWatch socket_watch_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::shared_ptr<verbs::Adapter>> adapters_;  // of devices_
  std::vector<uint8_t> device_of_port_;                    // by index into ports_
  RegistrationCache plain_memory_;
  NetworkPeers<Peer> peers_;      // lost when the completion queues are empty
  std::vector<Peer*> linking_;    // peers not yet linked
  std::vector<Peer*> held_;       // peers with puts to be released
  uint32_t address_changes_ = 0;  // that adapters have told of
  bool batching_ = false;
  // Since `arm` last said so a link came to stand, or credits or room in a queue came back: what
  // `poll` has no word for.
  bool progress_made_ = false;
  uint32_t polls_ = 0;
  uint32_t inline_bytes_max_ = verbs::Lane::kInlineMax;
  size_t put_bytes_max_ = size_t{1} << 30;
};

}  // namespace ropewalk
