// The networks that hosts share, where they have an adapter to each of several.
#pragma once

#include <string>
#include <vector>

namespace ropewalk::tcp {

/// What a rank tells of its host's adapters, for `shared_networks`: an address of each with the
/// length of its network's prefix, and the link's speed in Mbit/s:
/// "10.77.0.1/24@10000 10.78.0.1/24@10000". Adapters that tell no speed may be of any kind, and
/// VLANs, bridges, tunnels and the like use another adapter: both count only where
/// `interface_prefix` names them, an unknown speed as 0. Throws Error(invalid_argument) where that
/// fits none.
std::string adapters_text(const std::string& interface_prefix);

/// The networks to carry data side by side, "10.77.0.0/24": all ranks have an adapter to each, with
/// the greatest speed that any adapter of any rank has. Hosts have addresses of their own in it,
/// which those of bridges for containers are not. Empty where that leaves less than two, or there
/// is but one host. `infos`: adapters_text of each rank. Pure, so that it is the same on every
/// rank. Throws Error(protocol) where a rank told nonsense.
std::vector<std::string> shared_networks(const std::vector<std::string>& infos);

/// What the slowest host moves each way: over those networks together, else over its only adapter;
/// 0: unknown. `infos` as above, not empty.
double host_bytes_per_s(const std::vector<std::string>& infos);

}  // namespace ropewalk::tcp
