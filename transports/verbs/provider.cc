// Without libibverbs (ROPEWALK_WITH_VERBS is not defined) ranks still read what others say of their
// ports.
#include "transport_choice/provider.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "fabric/port_info.h"
#include "ropewalk/status.h"
#ifdef ROPEWALK_WITH_VERBS
#include "fabric/pair_lanes.h"
#include "transports/verbs/doctor.h"
#include "transports/verbs/verbs_transport.h"
#else
#include <filesystem>
#endif

namespace ropewalk {
namespace {

using verbs::LinkLayer;
using verbs::PortInfo;

// ---- What ranks tell: their ports, or why there are none ----

std::vector<PortInfo> ports_of(std::string_view info) {
  return verbs::parse_no_ports(info) ? std::vector<PortInfo>() : verbs::parse_port_list(info);
}

/// Of the fastest port; how many are used side by side depends on the peer.
double find_rate(const PeerTable& ranks) {
  uint32_t slowest_gbps = std::numeric_limits<uint32_t>::max();
  for (const PeerRecord& rank : ranks) {
    uint32_t fastest = 0;
    for (const PortInfo& port : ports_of(info_of(rank, verbs_provider())))
      fastest = std::max(fastest, port.rate_gbps);
    slowest_gbps = std::min(slowest_gbps, fastest);
  }
  return slowest_gbps * 1e9 / 8;
}

Obstacle find_obstacle(const PeerTable& ranks, bool) {
  std::vector<std::vector<PortInfo>> ports;
  for (const PeerRecord& rank : ranks) ports.push_back(ports_of(info_of(rank, verbs_provider())));
  const auto lacks = [](const std::vector<PortInfo>& of_rank) { return of_rank.empty(); };
  const auto first = std::find_if(ports.begin(), ports.end(), lacks);
  if (first != ports.end()) {
    const auto count = static_cast<size_t>(std::count_if(ports.begin(), ports.end(), lacks));
    const PeerRecord& rank = ranks[static_cast<size_t>(first - ports.begin())];
    const auto why = verbs::parse_no_ports(info_of(rank, verbs_provider()));
    std::string text =
        fmt::format("{}: {}", name_of(rank), why.value_or("it did not look for RDMA ports"));
    if (count > 1)
      text += fmt::format("; {} other rank{} too can use no RDMA port", count - 1,
                          count == 2 ? "" : "s");
    return {text, count < ranks.size()};
  }
  /// The first rank that has no such port, if there is one.
  const auto without = [&](LinkLayer layer) -> const PeerRecord* {
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      if (std::none_of(ports[rank].begin(), ports[rank].end(),
                       [layer](const PortInfo& port) { return port.link_layer == layer; }))
        return &ranks[rank];
    return nullptr;
  };
  const PeerRecord* no_infiniband = without(LinkLayer::infiniband);
  const PeerRecord* no_ethernet = without(LinkLayer::ethernet);
  if (no_infiniband == nullptr || no_ethernet == nullptr) return {};
  return {fmt::format("the ranks' ports have no link layer in common: {} has no InfiniBand, {} no "
                      "Ethernet (RoCE)",
                      name_of(*no_infiniband), name_of(*no_ethernet)),
          true};
}

// ---- What this machine has ----

#ifdef ROPEWALK_WITH_VERBS

/// By peer: on which ports its lanes begin here.
std::vector<std::vector<VerbsTransport::LaneEnd>> lanes_of(int rank, int lanes_wanted,
                                                           const std::vector<std::string>& infos) {
  const auto own = static_cast<size_t>(rank);
  const std::vector<PortInfo> own_ports = ports_of(infos[own]);
  std::vector<std::vector<VerbsTransport::LaneEnd>> lanes(infos.size());
  for (size_t peer = 0; peer < infos.size(); ++peer) {
    if (peer == own) continue;
    const std::vector<PortInfo> peer_ports = ports_of(infos[peer]);
    const bool is_lower = own < peer;
    for (const verbs::LanePair& pair : is_lower
                                           ? verbs::pair_lanes(own_ports, peer_ports, lanes_wanted)
                                           : verbs::pair_lanes(peer_ports, own_ports, lanes_wanted))
      lanes[peer].push_back({is_lower ? pair.a : pair.b, pair.subnet});
  }
  return lanes;
}

VerbsTransport::Options options_of(const Config& config) {
  const auto retries = static_cast<uint8_t>(config.ib_retry);
  const int timeout =
      config.ib_timeout.value_or(verbs::timeout_within(config.link_timeout, retries));
  return {.settings = {.service_level = static_cast<uint8_t>(config.ib_service_level),
                       .traffic_class = static_cast<uint8_t>(config.ib_traffic_class),
                       .pkey_index = static_cast<uint16_t>(config.ib_pkey_index),
                       .timeout = static_cast<uint8_t>(timeout),
                       .retries = retries,
                       // An ibv_mtu: 1 is 256 bytes, 2 is 512.
                       .mtu_max = static_cast<uint8_t>(std::bit_width(config.ib_mtu / 256u))},
          .preference = {config.ib_hca, config.ib_gid_index},
          .lanes = {},
          .port_down_max_ns = config.link_timeout.count()};
}

/// `ports` hold the adapters open.
MakeTransport maker_of(const Config& config, int rank, const std::vector<verbs::Port>& ports) {
  return [rank, ports, lanes = config.ib_lanes, options = options_of(config)](
             const std::vector<std::string>& infos, SocketSource& sockets) mutable {
    options.lanes = lanes_of(rank, lanes, infos);
    return std::make_unique<VerbsTransport>(rank, static_cast<int>(infos.size()), sockets, ports,
                                            options);
  };
}

TransportOffer find(const Config& config, int rank, int) {
  const verbs::UsablePorts found = verbs::find_ports({config.ib_hca, config.ib_gid_index});
  TransportOffer offer;
  const std::string list = verbs::port_list_text(found.infos);
  const LogLevel level = found.infos.empty() ? LogLevel::debug : LogLevel::info;
  offer.notes.emplace_back(level, "RDMA ports: " + list);
  for (const std::string& why : found.why_not) offer.notes.emplace_back(level, why);
  if (found.infos.empty()) {
    offer.why_not = fmt::format("{}", fmt::join(found.why_not, ", and "));
    offer.info = verbs::no_ports_text(offer.why_not);
  } else {
    offer.info = list;
    offer.make = maker_of(config, rank, found.ports);
  }
  return offer;
}

#else

constexpr const char* kNotBuiltIn =
    "its Ropewalk is built without verbs; sudo apt-get install libibverbs-dev, then build again "
    "with meson setup -Dverbs=enabled";

TransportOffer find(const Config&, int, int) {
  return {.info = verbs::no_ports_text(kNotBuiltIn),
          .why_not = kNotBuiltIn,
          .notes = {{LogLevel::debug, "RDMA ports: "}, {LogLevel::debug, kNotBuiltIn}}};
}

std::vector<Diagnosis> diagnose() {
  std::vector<std::string> devices;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", error))
    devices.push_back(entry.path().filename());
  if (devices.empty())
    return {{Severity::ok, "rdma", "no RDMA adapter here: shared memory and TCP are used", ""}};
  return {{Severity::warn, "rdma",
           fmt::format("{}: not used: {}", fmt::join(devices, ", "), kNotBuiltIn), ""}};
}

#endif

}  // namespace

const TransportProvider& verbs_provider() {
#ifdef ROPEWALK_WITH_VERBS
  using verbs::diagnose;
#endif
  // An adapter of 100 Gb/s.
  static const TransportProvider provider = {
      .name = "verbs",
      .cost = {.latency_s = 1.5e-6, .overhead_s = 300e-9, .s_per_byte = 83e-12},
      .is_rdma = true,
      .find = find,
      .find_obstacle = find_obstacle,
      .find_rate = find_rate,
      .why_chosen = "every rank has a usable RDMA port",
      .assumed = "assumed:1|infiniband||0",
      .diagnose = diagnose};
  return provider;
}

}  // namespace ropewalk
