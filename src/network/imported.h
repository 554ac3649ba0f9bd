// Descriptions in the formats of other simulators, where each of their fields has its like here.
// Pure; all throw Error(invalid_argument) that names line and field.
#pragma once

#include <string_view>

#include "network/located_json.h"
#include "network/network.h"

namespace ropewalk {

/// A network.yml of ASTRA-sim's analytical back end (astra-network-analytical): dimensions of
/// Ring, FullyConnected or Switch, each in place of the one before it fastest. An NPU is a host
/// with one rank; messages cost nothing beside links, nor does adding. As there, a GB has 2^30
/// bytes.
Network network_of_astra_sim(std::string_view text);

/// A topology file of TACCL, which describes a node all of whose GPUs reach each other alike:
/// `ranks` / gpus_per_node of them are hosts, whose adapters one switch joins. Costs are those of
/// so many MB (10^6 bytes) as the name ends with: "DGX2_1MB".
Network network_of_taccl(const LocatedJson& json, int ranks);
/// Whether it is meant to be one.
bool is_of_taccl(const LocatedJson& json);

}  // namespace ropewalk
