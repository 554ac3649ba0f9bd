// A network, described: hosts with ranks, switches, the links between, and what messages cost.
// One format for tools/netlab, which makes such a network, and `ropewalk simulate`, which times
// schedules on it: docs/network.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/cost.h"

namespace ropewalk {

struct NetworkHost {
  std::string name;
  int ranks = 1;

  bool operator==(const NetworkHost&) const = default;
};

/// Both directions alike. A link between a host and a switch is an adapter of the host.
struct NetworkLink {
  int ends[2] = {};        // nodes: hosts by number, then switches
  double s_per_byte = 0;   // 0: not limited
  double latency_s = 0;    // beside `Network::between`'s
  double buffer_ms = 50;   // for netlab; the simulator drops nothing
  double bucket_kib = 32;  // likewise; in the simulator nothing passes faster than the link
  double delay_ms = 0;     // of netlab; comes on top of `latency_s`
  double jitter_ms = 0, loss_percent = 0, reorder_percent = 0;  // for netlab

  /// What it adds by itself before a first byte is there.
  double all_latency_s() const { return latency_s + 1e-3 * delay_ms; }
  bool operator==(const NetworkLink&) const = default;
};

/// Which costs of messages a description gives. The others are ordinary ones, which count for
/// nothing where something better is known.
struct GivenCosts {
  bool between_latency = false, between_overhead = false;
  bool within_latency = false, within_overhead = false, within_rate = false;
  bool receive = false, copy = false, add = false;

  static constexpr GivenCosts all() { return {true, true, true, true, true, true, true, true}; }
  bool operator==(const GivenCosts&) const = default;
};

struct Network {
  std::vector<NetworkHost> hosts;
  std::vector<std::string> switches;
  std::vector<NetworkLink> links;
  /// Of a message: links say how long its bytes take between hosts.
  LinkCost between{.latency_s = 2e-6, .overhead_s = 0.5e-6, .s_per_byte = 0};
  LinkCost within{.latency_s = 0.5e-6, .overhead_s = 0.1e-6, .s_per_byte = 50e-12};
  double receive_s = 0;        // of the receiver's CPU, for each message
  double copy_s_per_byte = 0;  // of the CPUs at both ends, between hosts
  double add_s_per_byte = kReducePerByte;
  GivenCosts given;

  int host_count() const { return static_cast<int>(hosts.size()); }
  int node_count() const { return static_cast<int>(hosts.size() + switches.size()); }
  int ranks() const;
  const std::string& name_of(int node) const {
    const auto i = static_cast<size_t>(node);
    return i < hosts.size() ? hosts[i].name : switches[i - hosts.size()];
  }
  /// By rank: number of its host. Ranks of a host follow each other.
  std::vector<int> host_of_rank() const;
  /// By host: number of the switch of its first adapter: its rack.
  std::vector<int> switch_of_host() const;
  /// To how many networks, of switches that are joined, all hosts have an adapter: TCP spreads long
  /// messages over as many. 0 where there is one host.
  int shared_networks() const;

  bool operator==(const Network&) const = default;
};

inline constexpr int kRanksPerHostMax = 1024;
inline constexpr int kNetworkRanksMax = 1 << 20;
inline constexpr size_t kNetworkTextMax = size_t{64} << 20;

/// Throws Error(invalid_argument) that names line and field.
Network parse_network(std::string_view text);
/// With the costs that are given, and others that are not the ordinary ones.
std::string text_of(const Network& network);

/// "flat", "racks:32x16:uplink=4", "fat-tree:k=8", "rail:hosts=4:gpus=8", "torus:4x4x4", each with
/// rate=100gbit, latency=2us, overhead=500ns, ranks=N (a host's). `ranks`: of all hosts together,
/// spread evenly; 0: as the words say. Throws Error(invalid_argument).
Network network_of_template(std::string_view words, int ranks);
/// A template, or the path of a file, which says itself how many ranks there are.
Network find_network(const std::string& words, int ranks);

/// Of `network` the host of that number, with so many ranks.
struct HostPart {
  int host = 0;
  int ranks = 1;
};
/// Those hosts alone, each once at most, in that order, and the links that are left. Pure.
Network network_of_hosts(const Network& network, const std::vector<HostPart>& parts);

/// The same with one host dropped and one whose links have a quarter of their rate, as `seed`
/// draws them; `told` says which. A network of few hosts loses none, and no host is slow where
/// links have no limit. Pure.
Network with_faults(const Network& network, uint64_t seed, std::string& told);

/// Hosts, by number, that share no network.
std::optional<std::pair<int, int>> hosts_apart(const Network& network);
/// Throws Error(invalid_argument) where there are such, or no hosts, or too many ranks.
void check_network(const Network& network);

}  // namespace ropewalk
