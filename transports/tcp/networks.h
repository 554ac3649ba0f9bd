// The networks that hosts share, where they have an adapter to each of several.
#pragma once

#include <string>
#include <vector>

namespace ropewalk::tcp {

/// Of this host, which are up and lead to a network.
struct LocalAdapters {
  /// What a rank tells of those that count, for `shared_networks`: an address of each with the
  /// length of its network's prefix, and the link's speed in Mbit/s:
  /// "10.77.0.1/24@10000 10.78.0.1/24@10000".
  std::string text;
  std::vector<std::string> counted;                 // "eth0 (10000 Mbit/s)"
  std::vector<std::string> speedless, passed_over;  // "eth2 tells no speed"
};
/// Adapters that tell no speed may be of any kind, and VLANs, bridges, tunnels and the like use
/// another adapter: both count only where `interface_prefix` names them, an unknown speed as 0.
/// Throws Error(invalid_argument) where that fits none.
LocalAdapters find_adapters(const std::string& interface_prefix);

/// The networks to carry data side by side, "10.77.0.0/24": all hosts have one adapter to each,
/// whose speed is the greatest that every host has some adapter of: a faster one that some hosts
/// lack keeps nobody from the others. Hosts have addresses of their own in it, which those of
/// bridges for containers are not. Empty where that leaves less than two, or there is but one host.
/// `infos`: LocalAdapters::text of each rank. Pure, so that it is the same on every rank. Throws
/// Error(protocol) where a rank told nonsense.
std::vector<std::string> shared_networks(const std::vector<std::string>& infos);

/// Why other networks of hosts are not among them: "10.9.0.0/16: 1 of 4 hosts has no adapter to
/// it". Nothing where hosts have but one adapter each. `infos` as above. Pure.
std::vector<std::string> unused_networks(const std::vector<std::string>& infos);

/// What the slowest host moves each way: over those networks together, else over its only adapter;
/// 0: unknown. `infos` as above, not empty.
double host_bytes_per_s(const std::vector<std::string>& infos);

}  // namespace ropewalk::tcp
