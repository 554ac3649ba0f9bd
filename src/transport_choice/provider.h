// All that the rest knows of a transport: what it is called, what a rank tells the others of it,
// which ranks it reaches, what it costs, what `ropewalk doctor` says of it.
//
// A transport is a folder in transports/, whose provider.cc defines NAME_provider(), and a line
// here. src/ includes no file of transports/.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "bootstrap/peer_table.h"
#include "bootstrap/world.h"
#include "ropewalk/transport.h"
#include "schedule/cost.h"

namespace ropewalk {

/// F(name, other name): `auto` takes the first that will do.
#define ROPEWALK_TRANSPORTS(F) \
  F(shm, "")                   \
  F(verbs, "rdma")             \
  F(ucx, "")                   \
  F(tcp, "")

/// Makes what was offered, once, when all have joined. `infos`: what each rank told of this
/// transport, by rank; where it maps memory, empty for ranks of other hosts. `sockets` must outlive
/// the transport. Throws Error.
using MakeTransport = std::function<std::unique_ptr<Transport>(
    const std::vector<std::string>& infos, SocketSource& sockets)>;

struct TransportProvider;

/// What a rank has of a transport.
struct TransportOffer {
  const TransportProvider* provider = nullptr;
  std::string info = {};     // for the other ranks; only this provider reads it
  std::string why_not = {};  // why this rank cannot use it, and what to do; empty where it can
  std::vector<std::pair<LogLevel, std::string>> notes = {};  // to be logged
  MakeTransport make = {};                                   // null where it cannot be used
};

/// What keeps a job from a transport.
struct Obstacle {
  std::string reason;     // that names a rank and what it lacks; empty: nothing
  bool some_can = false;  // though some ranks could use it
};

enum class Severity { ok, warn, fail };

/// A finding of `ropewalk doctor`.
struct Diagnosis {
  Severity severity = Severity::ok;
  std::string name, text;
  std::string advice;  // a command; empty where all is well
};
/// "ok   memlock: text; advice: command".
std::string line_of(const Diagnosis& diagnosis);

struct TransportProvider {
  std::string_view name;  // "verbs"
  LinkCost cost;          // to predict times where nothing was measured
  /// It reaches ranks of its host only, and they map each other's memory.
  bool maps = false;
  /// It is what ROPEWALK_REQUIRE=rdma demands, where `find_obstacle` finds nothing.
  bool is_rdma = false;
  /// It seals what it sends with ROPEWALK_SECURE=1.
  bool seals = false;
  /// Looks at this machine, before `rank` of `size` joins. Throws Error.
  TransportOffer (*find)(const Config& config, int rank, int size) = nullptr;
  /// Pure. `asked`: by name, so that it need not be better than another. Null: there is never any.
  /// Throws Error(protocol) where a rank tells nonsense.
  Obstacle (*find_obstacle)(const PeerTable& ranks, bool asked) = nullptr;
  /// Bytes a second that the system says the adapters of the slowest rank move, each way; 0:
  /// unknown. Pure. Null: never known. Throws Error(protocol) where a rank tells nonsense.
  double (*find_rate)(const PeerTable& ranks) = nullptr;
  /// Capabilities::spread_bytes_min of the transport that those ranks make; `tcp_streams`: as in
  /// Config. Pure. Null: SIZE_MAX. Throws Error(protocol) where a rank tells nonsense.
  size_t (*find_spread_bytes_min)(const PeerTable& ranks, int tcp_streams) = nullptr;
  /// Of a job in which `auto` takes it: "every rank has a usable RDMA port".
  std::string_view why_chosen = {};
  /// What a rank would tell that has it, for `ropewalk explain --assume`.
  std::string_view assumed = {};
  /// Where this is asked for, ranks of one host take that instead, if nothing hinders.
  const TransportProvider* within_host = nullptr;
  std::vector<Diagnosis> (*diagnose)() = nullptr;
};

#define ROPEWALK_DECLARE_PROVIDER(name, other_name) const TransportProvider& name##_provider();
ROPEWALK_TRANSPORTS(ROPEWALK_DECLARE_PROVIDER)
#undef ROPEWALK_DECLARE_PROVIDER

/// In the order of ROPEWALK_TRANSPORTS.
const std::vector<const TransportProvider*>& transport_providers();
/// Whether others on the network can neither read nor change what it sends, with ROPEWALK_SECURE=1.
inline bool is_secure(const TransportProvider& provider) {
  return provider.maps || provider.seals;
}
/// "none" for null.
std::string_view name_of(const TransportProvider* provider);
/// What `record`'s rank tells of `provider`; empty: nothing.
inline std::string_view info_of(const PeerRecord& record, const TransportProvider& provider) {
  const auto found = record.transport_infos.find(provider.name);
  return found == record.transport_infos.end() ? std::string_view() : found->second;
}
/// "rank 3 (host b)".
std::string name_of(const PeerRecord& record);

/// What this rank has of the transports that config.transport lets it use. To look may open
/// devices, so of those that could join all ranks none is looked at after one that will do, except
/// such as never meet an obstacle.
std::vector<TransportOffer> find_transports(const Config& config, int rank, int size);

}  // namespace ropewalk
