// How the transport comes by its links: a handshake over an authenticated socket per peer, which
// stays open and tells when the peer has gone.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "transports/verbs/verbs_transport.h"

namespace ropewalk {

using verbs::Lane;
using verbs::LaneAddress;

namespace {

// Per lane and direction; fewer where the device allows fewer.
constexpr uint32_t kSends = 256;
constexpr uint32_t kNotices = 256;
constexpr size_t kFirstCompletions = 4096;
constexpr uint32_t kShortestQueue = 128;
// A port that is away is looked at so often: that asks the kernel, and the adapter.
constexpr int64_t kPrepareAgainNs = 2'000'000;
// Tags of epoll events; a peer's is its rank, an adapter's events' this and its index.
constexpr uint64_t kCompletionsTag = uint64_t{1} << 32, kEventsTag = kCompletionsTag + 1;

verbs::QueueDepths depths_on(const verbs::Adapter& adapter) {
  const auto most = static_cast<uint32_t>(adapter.limits().max_qp_wr);
  if (most < kShortestQueue)
    throw Error(ErrorCode::unavailable, "verbs",
                fmt::format("{}: its queue pairs hold {} requests, fewer than {}", adapter.name(),
                            most, kShortestQueue),
                "leave it out with ROPEWALK_IB_HCA, or use ROPEWALK_TRANSPORT=tcp");
  // A ring of notices is counted modulo 2^32.
  return {std::min(kSends, most),
          std::min(kNotices, std::bit_floor(most - Lane::kSpare)) + Lane::kSpare};
}

/// Not every driver can.
bool can_lengthen(ibv_cq* cq) {
  const int error = ibv_resize_cq(cq, cq->cqe);
  return error != EOPNOTSUPP && error != ENOSYS;
}

}  // namespace

VerbsTransport::Device::Device(std::shared_ptr<verbs::Adapter> adapter_, size_t completions_all)
    : adapter(std::move(adapter_)), channel(ibv_create_comp_channel(adapter->context())) {
  if (!channel) fail_system("verbs", "ibv_create_comp_channel");
  fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  const auto create = [&](size_t completions) {
    const auto most = static_cast<size_t>(adapter->limits().max_cqe);
    const auto length = static_cast<int>(std::min(completions, most));
    cq.reset(ibv_create_cq(adapter->context(), length, nullptr, channel.get(), 0));
  };
  create(kFirstCompletions);
  if (cq && completions_all > kFirstCompletions && !can_lengthen(cq.get())) {
    cq.reset();
    create(completions_all);
  }
  if (!cq) fail_system("verbs", "ibv_create_cq");
}

VerbsTransport::VerbsTransport(int rank, int size, SocketSource& sockets,
                               std::vector<verbs::Port> ports, Options options)
    : GreetedTransport("verbs", rank, size, sockets),
      ports_(std::move(ports)),
      options_(std::move(options)),
      plain_memory_([this](const Region& pages) {
        return std::make_unique<verbs::AdapterPages>(pages, adapters_);
      }) {
  assert(options_.lanes.size() == static_cast<size_t>(size));
  for (const verbs::Port& port : ports_) add_port(port);
  if (adapters_.empty() || adapters_.size() > verbs::kAdaptersMax)
    throw Error(
        ErrorCode::invalid_argument, "verbs",
        fmt::format("{} adapters; 1 to {} can be used", adapters_.size(), verbs::kAdaptersMax),
        "set ROPEWALK_IB_HCA");
  held_.reserve(static_cast<size_t>(size));
}

void VerbsTransport::add_port(const verbs::Port& port) {
  ibv_port_attr attributes{};
  if (ibv_query_port(port.adapter->context(), port.number, &attributes) == 0)
    put_bytes_max_ = std::min<size_t>(put_bytes_max_, attributes.max_msg_sz);
  const auto found = std::find(adapters_.begin(), adapters_.end(), port.adapter);
  const auto index = static_cast<uint32_t>(found - adapters_.begin());
  device_of_port_.push_back(static_cast<uint8_t>(index));
  if (found != adapters_.end()) return;
  adapters_.push_back(port.adapter);
  const verbs::QueueDepths depths = depths_on(*port.adapter);
  devices_.push_back(
      std::make_unique<Device>(port.adapter, lanes_in_all() * (depths.sends + depths.receives)));
  Device& device = *devices_.back();
  // What is no longer goes into the request itself; only a queue pair tells how long that may be,
  // and one that is as deep as the lanes, since depth and length share what the device has.
  const verbs::QueuePair probe(port, options_.settings, device.cq.get(), depths);
  inline_bytes_max_ = std::min(inline_bytes_max_, probe.inline_bytes_max());
  const int events = port.adapter->context()->async_fd;
  fcntl(events, F_SETFL, fcntl(events, F_GETFL) | O_NONBLOCK);
  if (!watch(events, kEventsTag + index) || !watch(device.channel->fd, kCompletionsTag))
    fail_system("verbs", "epoll_ctl");
}

VerbsTransport::~VerbsTransport() {
  flush_on_close();
  for (Peer& peer : peers_.added())
    if (!peer.released()) close(peer);
}

size_t VerbsTransport::lanes_in_all() const {
  size_t lanes = 0;
  for (const auto& to_peer : options_.lanes) lanes += to_peer.size();
  return lanes;
}

// ---- Linking ----

void VerbsTransport::connect(int peer, std::span<const std::byte> hello) {
  if (!is_new(peer, hello)) return;
  auto added = std::make_unique<Peer>(peer, hello);
  added->prepare_by_ns = MonotonicClock().now_ns() + options_.port_down_max_ns;
  prepare(*added);
  begin_link(std::move(added));
}

// Makes the peer's lanes and the handshake; nothing yet while a port is away: it could be used when
// the job began, and may only flap.
void VerbsTransport::prepare(Peer& peer) {
  if (!find_addresses(peer)) return;
  add_lanes(peer);
  verbs::Handshake own;
  own.rank = static_cast<uint32_t>(rank_);
  own.notices = verbs::kNoticesMax;
  for (const auto& lane : peer.lanes) own.notices = std::min(own.notices, lane->notices_max());
  own.hello = peer.hello;
  for (size_t i = 0; i < peer.lanes.size(); ++i) {
    const Lane& lane = *peer.lanes[i];
    own.lanes.push_back({peer.own_ports[i], lane.queue_pair().number(),
                         lane.queue_pair().packet_number(), lane.adapter});
  }
  peer.greeting.queue(verbs::encode(own));
}

// Afresh for each link: addresses change. False where one is to be asked for again.
bool VerbsTransport::find_addresses(Peer& peer) {
  peer.own_ports.clear();
  peer.address_changes = address_changes_;
  try {
    for (const LaneEnd& end : ends_to(peer)) {
      peer.own_ports.push_back(
          verbs::address_of(ports_[end.port], options_.preference, end.subnet));
      uint8_t& mtu = peer.own_ports.back().mtu;
      mtu = std::min(mtu, options_.settings.mtu_max);
    }
    return true;
  } catch (const Error& error) {
    const int64_t now_ns = MonotonicClock().now_ns();
    if (now_ns >= peer.prepare_by_ns) throw;
    if (peer.prepare_again_ns == 0)
      log(LogLevel::warn, rank_, "the link with rank {} waits: {}", peer.rank,
          error.failure().reason);
    peer.prepare_again_ns = now_ns + kPrepareAgainNs;
    return false;
  }
}

void VerbsTransport::prepare_again(Peer& peer) {
  if (MonotonicClock().now_ns() < peer.prepare_again_ns) return;
  try {
    prepare(peer);
  } catch (const Error& error) {
    peers_.lose(peer, fmt::format("rank {}'s {}", rank_, error.failure().reason),
                error.failure().advice);
  } catch (const std::exception& error) {
    peers_.lose(peer, fmt::format("rank {} could make no queue pair: {}", rank_, error.what()));
  }
}

// Makes the completion queue long enough for so many more.
void VerbsTransport::make_room(Device& device, uint32_t completions) {
  const uint32_t wanted = device.completions + completions;
  if (wanted > static_cast<uint32_t>(device.cq->cqe)) {
    const auto most = static_cast<uint32_t>(device.adapter->limits().max_cqe);
    const uint32_t length = std::max(wanted, std::min(2 * wanted, most));
    if (const int error = ibv_resize_cq(device.cq.get(), static_cast<int>(length)); error != 0)
      throw Error(ErrorCode::exhausted, "connect",
                  fmt::format("{}: no completion queue of {} entries (the device allows {}): {}",
                              device.adapter->name(), length, most, errno_text(error)),
                  error == ENOMEM || error == EAGAIN
                      ? "raise the memlock limit (ulimit -l unlimited), or lower ROPEWALK_IB_LANES"
                      : "lower ROPEWALK_IB_LANES, or name more adapters in ROPEWALK_IB_HCA");
  }
}

void VerbsTransport::add_lanes(Peer& peer) {
  for (const LaneEnd& end : ends_to(peer)) {
    const verbs::Port& port = ports_[end.port];
    Device& device = *devices_[device_of_port_[end.port]];
    const verbs::QueueDepths depths = depths_on(*port.adapter);
    try {
      make_room(device, depths.sends + depths.receives);
      auto lane = std::make_unique<Lane>(port, options_.settings, device.cq.get(), depths,
                                         static_cast<uint32_t>(peer.rank),
                                         static_cast<uint8_t>(peer.lanes.size()));
      if (lane->queue_pair().inline_bytes_max() < inline_bytes_max_)
        throw Error(ErrorCode::exhausted, "connect",
                    fmt::format("{}: no queue pair more whose requests hold {} bytes",
                                name_of(port), inline_bytes_max_),
                    "lower ROPEWALK_IB_LANES, or start fewer ranks per adapter");
      lane->adapter = device_of_port_[end.port];
      device.completions += lane->completions_max();
      peer.lanes.push_back(std::move(lane));
    } catch (const Error&) {
      end_lanes(peer);
      throw;
    }
  }
}

void VerbsTransport::end_lanes(Peer& peer) {
  for (const auto& lane : peer.lanes)
    devices_[lane->adapter]->completions -= lane->completions_max();
  peer.lanes.clear();
}

void VerbsTransport::advance(Peer& peer) {
  if (!peer.prepared()) prepare_again(peer);
  if (!peer.prepared()) return;
  greet(
      peer, [&] { start_lanes(peer); },
      [&](std::byte byte) {
        if (peer.state != Peer::State::linking || byte != verbs::kReady) return false;
        set_linked(peer);
        progress_made_ = true;
        peers_.publish(peer);  // it may have been the first to be ready, and have put something
        return true;
      });
}

// An address that the peer has been told may have moved to another row of the port's table, or
// gone; what is in its row now must not be taken for it. What is wrong, or nothing. May lose the
// peer.
std::string VerbsTransport::refresh_addresses(Peer& peer) {
  for (const auto& device : devices_) read_events(*device);
  if (!peer.open() || peer.address_changes == address_changes_) return {};
  const std::vector<LaneEnd>& ends = ends_to(peer);
  for (size_t i = 0; i < ends.size(); ++i) {
    verbs::PortAddress& told = peer.own_ports[i];
    try {
      const verbs::Port& port = ports_[ends[i].port];
      if (verbs::find_again(port, options_.preference, told)) continue;
      const verbs::PortAddress now = verbs::address_of(port, options_.preference, ends[i].subnet);
      return fmt::format("{} was {} when rank {} was told of it, and is {} now", own_name(port),
                         text_of(told), peer.rank, text_of(now));
    } catch (const Error& error) {
      return fmt::format("rank {}'s {}", rank_, error.failure().reason);
    }
  }
  return {};
}

// Both sides' addresses are known. May lose the peer.
void VerbsTransport::start_lanes(Peer& peer) {
  const verbs::Handshake& theirs = peer.greeting.reader.handshake();
  std::string error;
  if (theirs.lanes.size() != peer.lanes.size())
    error = fmt::format("rank {} offers {} lanes, this rank {}: set ROPEWALK_IB_LANES alike",
                        peer.rank, theirs.lanes.size(), peer.lanes.size());
  else
    error = refresh_addresses(peer);
  for (size_t i = 0; error.empty() && peer.open() && i < peer.lanes.size(); ++i) {
    Lane& lane = *peer.lanes[i];
    const LaneAddress& address = theirs.lanes[i];
    lane.set_peer(theirs.notices, address.adapter);
    error = lane.queue_pair().start(peer.own_ports[i], address);
    if (!error.empty()) error = fmt::format("{}: {}", own_name(lane.queue_pair().port()), error);
  }
  if (!error.empty()) return peers_.lose(peer, std::move(error));
  if (!peer.open()) return;
  peer.greeting.queue(std::span(&verbs::kReady, 1));
  peer.greeting.send();
}

// ---- Waiting ----

// Sockets and events: what never comes with a completion.
void VerbsTransport::poll_control() {
  look_at_sockets([this](uint64_t tag) {
    if (tag != kCompletionsTag) read_events(*devices_[tag - kEventsTag]);  // `arm` reads the others
  });
  check_ports();
  if (!peers_.failing().empty()) drain();
}

bool VerbsTransport::arm() {
  poll_control();
  for (const auto& device : devices_) {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    while (device->armed && ibv_get_cq_event(device->channel.get(), &queue, &context) == 0) {
      ibv_ack_cq_events(queue, 1);
      device->armed = false;
    }
    if (!device->armed && ibv_req_notify_cq(device->cq.get(), 0) != 0) return false;
    device->armed = true;
  }
  drain();  // what came before the request will not be told
  return !peers_.any_ready() && peers_.failing().empty() &&
         std::ranges::all_of(linking_, &Peer::prepared) && !std::exchange(progress_made_, false);
}

}  // namespace ropewalk
