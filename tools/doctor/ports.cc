#include "tools/doctor/ports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

namespace ropewalk::tools {
namespace {

using verbs::LinkLayer;

constexpr size_t kGidsShown = 8;
constexpr int kLongestPacket = 4096;

std::string title_of(const SeenPort& port) {
  return fmt::format("rdma {} port {}", port.device, port.number);
}

std::string facts_of(const SeenPort& port) {
  const verbs::PortState& state = port.state;
  std::string text = fmt::format("{}, {}", verbs::name_of(state.state),
                                 state.link_layer == LinkLayer::infiniband ? "InfiniBand" : "RoCE");
  if (!state.interface.empty()) text += " on " + state.interface;
  if (state.rate_gbps > 0) text += fmt::format(", {} Gb/s", state.rate_gbps);
  if (state.link_layer == LinkLayer::infiniband) text += fmt::format(", LID {}", state.lid);
  text += fmt::format(", packets of {} bytes", verbs::bytes_of(state.mtu_active));
  if (port.is_software) text += ", made in software: slower than TCP, for trying";
  return text;
}

std::string gids_of(const SeenPort& port) {
  const verbs::PortState& state = port.state;
  std::string text;
  size_t shown = 0;
  for (const verbs::GidEntry& gid : state.gids) {
    if (shown++ == kGidsShown) {
      text += fmt::format(", {} more", state.gids.size() - kGidsShown);
      break;
    }
    text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", gid.index,
                        verbs::text_of(gid.gid), name_of(gid.type));
  }
  if (state.gid.entry)
    text += fmt::format("; takes {}: {}", state.gid.entry->index, state.gid.reason);
  if (state.subnets.size() > 1)
    text += fmt::format("; another for peers that it meets only in {}",
                        fmt::join(std::span(state.subnets).subspan(1), ", "));
  return text;
}

}  // namespace

std::vector<Diagnosis> diagnose(const SeenPort& port) {
  const verbs::PortState& state = port.state;
  const std::string title = title_of(port);
  std::vector<Diagnosis> found;
  if (state.problem.empty())
    found.push_back({Severity::ok, title, facts_of(port), ""});
  else
    found.push_back({Severity::warn, title, state.problem, state.advice});
  if (!state.gids.empty()) found.push_back({Severity::ok, title + " GIDs", gids_of(port), ""});
  const int packet = verbs::bytes_of(state.mtu_active);
  const bool could_be_longer = packet < std::min(verbs::bytes_of(state.mtu_max), kLongestPacket);
  if (state.problem.empty() && state.link_layer == LinkLayer::ethernet && could_be_longer) {
    const std::string interface = state.interface.empty() ? "its network device" : state.interface;
    const std::string why = port.interface_mtu > 0
                                ? fmt::format("{} has an MTU of {}", interface, port.interface_mtu)
                                : fmt::format("of the MTU of {}", interface);
    found.push_back(
        {Severity::warn, title + " MTU",
         fmt::format("packets of {} bytes, because {}: raise it on all hosts and switches", packet,
                     why),
         fmt::format("sudo ip link set {} mtu 9000",
                     state.interface.empty() ? "DEVICE" : state.interface)});
  }
  return found;
}

}  // namespace ropewalk::tools
