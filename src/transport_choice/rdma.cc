#include "transport_choice/rdma.h"

#include <fmt/format.h>

#include "fabric/pair_lanes.h"
#include "ropewalk/status.h"
#include "transports/verbs/verbs_transport.h"

namespace ropewalk {
namespace {

verbs::PortPreference wishes_of(const Config& config) {
  return {config.ib_hca, config.ib_gid_index};
}

uint8_t mtu_code(int bytes) {
  uint8_t code = IBV_MTU_256;
  while (code < IBV_MTU_4096 && (256 << (code - IBV_MTU_256)) < bytes) ++code;
  return code;
}

verbs::Settings settings_of(const Config& config) {
  verbs::Settings settings;
  settings.service_level = static_cast<uint8_t>(config.ib_service_level);
  settings.traffic_class = static_cast<uint8_t>(config.ib_traffic_class);
  settings.pkey_index = static_cast<uint16_t>(config.ib_pkey_index);
  settings.timeout = static_cast<uint8_t>(config.ib_timeout);
  settings.retries = static_cast<uint8_t>(config.ib_retry);
  settings.mtu_max = mtu_code(config.ib_mtu);
  return settings;
}

}  // namespace

struct Rdma::Ports {
  std::vector<verbs::Port> ports;
};

Rdma::Rdma(const Config& config) : config_(config), ports_(std::make_unique<Ports>()) {
  const verbs::PortPreference preference = wishes_of(config_);
  for (verbs::Port& port : verbs::find_ports(preference, why_not_)) {
    try {
      infos_.push_back(verbs::info_of(port, preference));
      ports_->ports.push_back(std::move(port));
    } catch (const Error& error) {  // it went down just now
      why_not_.push_back(fmt::format("{}; {}", error.failure().reason, error.failure().advice));
    }
  }
}

Rdma::~Rdma() = default;

std::unique_ptr<Transport> Rdma::make_transport(
    int rank, SocketSource& sockets,
    const std::vector<std::vector<verbs::PortInfo>>& ports_of) const {
  VerbsTransport::Options options;
  options.settings = settings_of(config_);
  options.preference = wishes_of(config_);
  const auto own = static_cast<size_t>(rank);
  for (size_t peer = 0; peer < ports_of.size(); ++peer) {
    std::vector<VerbsTransport::LaneEnd>& lanes = options.lanes.emplace_back();
    if (peer == own) continue;
    const bool is_lower = own < peer;
    const auto& low = ports_of[is_lower ? own : peer];
    const auto& high = ports_of[is_lower ? peer : own];
    for (const verbs::LanePair& pair : verbs::pair_lanes(low, high, config_.ib_lanes))
      lanes.push_back({is_lower ? pair.a : pair.b, pair.subnet});
  }
  return std::make_unique<VerbsTransport>(rank, static_cast<int>(ports_of.size()), sockets,
                                          ports_->ports, std::move(options));
}

}  // namespace ropewalk
