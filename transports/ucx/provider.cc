// Without UCX (ROPEWALK_WITH_UCX is not defined) ranks still read what others say of it.
#include "transport_choice/provider.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "ropewalk/status.h"
#ifdef ROPEWALK_WITH_UCX
#include "transports/shm/shm_transport.h"
#include "transports/ucx/resources.h"
#include "transports/ucx/ucx_sharing.h"
#include "transports/ucx/ucx_transport.h"
#include "transports/ucx/wires.h"
#endif

namespace ropewalk {
namespace {

// ---- What ranks tell ----

constexpr size_t kFabricsMax = 8, kNameBytesMax = 64;

/// "1.13.1 rc_mlx5/mlx5_0:1 dc_mlx5/mlx5_0:1"; empty without UCX.
struct Report {
  std::string version;
  std::vector<std::string> fabrics;  // that UCX reaches, but sockets
};

/// Of versions and fabrics: "rc_mlx5/mlx5_0:1".
bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || std::string_view("._-/:@").find(c) != std::string::npos;
         });
}

Report parse(std::string_view text) {
  Report report;
  std::string_view rest = text;
  for (size_t count = 0; !rest.empty(); ++count) {
    const size_t end = std::min(rest.find(' '), rest.size());
    const std::string_view name = rest.substr(0, end);
    if (!is_name(name) || count > kFabricsMax || end + 1 == rest.size())
      throw Error(ErrorCode::protocol, "communicator",
                  fmt::format("\"{}\" is not what a rank says of UCX", text),
                  "run the same version of Ropewalk on every rank");
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (count == 0)
      report.version = name;
    else
      report.fabrics.emplace_back(name);
  }
  return report;
}

Report report_of(const PeerRecord& rank) {
  return parse(info_of(rank, ucx_provider()));
}

/// "1.13" of "1.13.1".
std::string_view release_of(std::string_view version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

Obstacle find_obstacle(const PeerTable& ranks, bool asked) {
  const std::string first = ranks.empty() ? std::string() : report_of(ranks[0]).version;
  for (const PeerRecord& rank : ranks) {
    const std::string version = report_of(rank).version;
    if (version.empty()) return {name_of(rank) + " has no UCX"};
    if (release_of(version) != release_of(first))
      return {fmt::format("{} has UCX {}, {} has {}", name_of(ranks[0]), first, name_of(rank),
                          version)};
  }
  if (asked) return {};
  for (const PeerRecord& rank : ranks)
    if (report_of(rank).fabrics.empty())
      return {name_of(rank) +
              ": UCX reaches no fabric but sockets that UCX_TLS and UCX_NET_DEVICES allow"};
  return {};
}

/// A rank that has neighbours on its host, but no mailbox in UCX's memory.
Obstacle find_obstacle_within(const PeerTable& ranks, bool) {
  const TransportProvider& shared = *ucx_provider().within_host;
  std::map<std::string_view, int> ranks_on;
  for (const PeerRecord& rank : ranks) ++ranks_on[rank.host_id];
  for (const PeerRecord& rank : ranks)
    if (ranks_on[rank.host_id] > 1 && info_of(rank, shared).empty())
      return {name_of(rank) + " has no shared memory through UCX"};
  return {};
}

// ---- What this machine has ----

#ifdef ROPEWALK_WITH_UCX

/// Of all transports of UCX with their devices ("posix/memory") those that reach hosts better than
/// sockets do, and that UCX_TLS and UCX_NET_DEVICES allow.
std::vector<std::string> find_fabrics(std::vector<std::string>& all) {
  const ucx::Config config;
  const std::string wires = config.wires(), devices = config.devices();
  std::vector<std::string> fabrics;
  for (const ucx::Resource& resource : ucx::find_resources()) {
    all.push_back(resource.transport + "/" + resource.device);
    if (resource.is_fabric() && ucx::allows_transport(wires, resource.transport) &&
        ucx::allows_device(devices, resource.device))
      fabrics.push_back(all.back());
  }
  return fabrics;
}

/// Opens devices.
TransportOffer find(const Config& config, int rank, int size) {
  TransportOffer offer;
  try {
    const std::string version = ucx::version();
    std::vector<std::string> all, fabrics = find_fabrics(all);
    offer.notes = {{LogLevel::debug, fmt::format("UCX {}: {}", version, fmt::join(fabrics, ", "))}};
    std::erase_if(fabrics, [](const std::string& name) { return !is_name(name); });
    if (fabrics.size() > kFabricsMax) fabrics.resize(kFabricsMax);
    fabrics.insert(fabrics.begin(), version);
    offer.info = fmt::format("{}", fmt::join(fabrics, " "));
    offer.make = [rank, size](const auto&, SocketSource& sockets) {
      return std::make_unique<UcxTransport>(rank, size, sockets);
    };
  } catch (const Error& error) {
    offer.why_not = error.failure().reason + "; " + error.failure().advice;
    offer.notes = {{config.transport == "ucx" ? LogLevel::warn : LogLevel::debug,
                    "UCX cannot be used: " + offer.why_not}};
  }
  return offer;
}

/// Without it ranks of this host talk by UCX's messages, if UCX_TLS has another wire for them.
TransportOffer find_within(const Config&, int rank, int size) try {
  if (ucx::allows_shared_memory(ucx::Config().wires()))
    return offer_shared_memory(
        std::make_unique<ShmTransport>(rank, size, std::make_unique<ucx::UcxSharing>()));
  TransportOffer offer;
  offer.why_not = "UCX_TLS allows no shared memory";
  return offer;
} catch (const Error& error) {
  TransportOffer offer;
  offer.why_not = error.failure().text();
  offer.notes = {{LogLevel::warn, "no shared memory through UCX: " + offer.why_not}};
  return offer;
}

std::vector<Diagnosis> diagnose() {
  try {
    std::vector<std::string> all;
    const std::string version = ucx::version();
    const std::vector<std::string> fabrics = find_fabrics(all);
    const bool shares = ucx::allows_shared_memory(ucx::Config().wires());
    return {{Severity::ok, "ucx",
             fmt::format("version {}; transports and devices: {}; shared memory: {}; fabrics "
                         "besides sockets that UCX_TLS and UCX_NET_DEVICES allow: {}",
                         version, fmt::join(all, ", "), shares ? "yes" : "no",
                         fabrics.empty() ? "none" : fmt::format("{}", fmt::join(fabrics, ", "))),
             ""}};
  } catch (const Error& error) {
    return {{Severity::ok, "ucx",
             fmt::format("ROPEWALK_TRANSPORT=ucx cannot be used: {}; {}", error.failure().reason,
                         error.failure().advice),
             ""}};
  }
}

#else

constexpr const char* kNotBuiltIn =
    "it is not built in; sudo apt-get install libucx-dev, then build again with meson setup "
    "-Ducx=enabled";

TransportOffer find(const Config& config, int, int) {
  return {.why_not = kNotBuiltIn,
          .notes = {{config.transport == "ucx" ? LogLevel::warn : LogLevel::debug,
                     fmt::format("UCX cannot be used: {}", kNotBuiltIn)}}};
}

TransportOffer find_within(const Config& config, int rank, int size) {
  return find(config, rank, size);
}

std::vector<Diagnosis> diagnose() {
  return {{Severity::ok, "ucx",
           fmt::format("ROPEWALK_TRANSPORT=ucx cannot be used: {}", kNotBuiltIn), ""}};
}

#endif

}  // namespace

const TransportProvider& ucx_provider() {
  static const TransportProvider shared_memory = {.name = "ucx/shm",
                                                  .cost = shm_provider().cost,
                                                  .maps = true,
                                                  .find = find_within,
                                                  .find_obstacle = find_obstacle_within};
  // A fabric of 100 Gb/s, or memory that its processes share.
  static const TransportProvider provider = {
      .name = "ucx",
      .cost = {.latency_s = 2e-6, .overhead_s = 500e-9, .s_per_byte = 100e-12},
      .is_rdma = true,
      .find = find,
      .find_obstacle = find_obstacle,
      .why_chosen = "UCX reaches a fabric on every rank",
      .assumed = "assumed",
      .within_host = &shared_memory,
      .diagnose = diagnose};
  return provider;
}

}  // namespace ropewalk
