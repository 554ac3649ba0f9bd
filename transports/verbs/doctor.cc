#include "transports/verbs/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "ropewalk/status.h"
#include "topology/read_file.h"
#include "transports/verbs/devices.h"
#include "transports/verbs/ports.h"

namespace ropewalk::verbs {
namespace {

using Diagnoses = std::vector<Diagnosis>;

// ---- One port ----

constexpr size_t kGidsShown = 8;
constexpr int kLongestPacket = 4096;

std::string facts_of(const SeenPort& port) {
  const PortState& state = port.state;
  std::string text = fmt::format("{}, {}", name_of(state.state),
                                 state.link_layer == LinkLayer::infiniband ? "InfiniBand" : "RoCE");
  if (!state.interface.empty()) text += " on " + state.interface;
  if (state.rate_gbps > 0) text += fmt::format(", {} Gb/s", state.rate_gbps);
  if (state.link_layer == LinkLayer::infiniband) text += fmt::format(", LID {}", state.lid);
  text += fmt::format(", packets of {} bytes", bytes_of(state.mtu_active));
  if (port.is_software) text += ", made in software: slower than TCP, for trying";
  return text;
}

std::string gids_of(const SeenPort& port) {
  const PortState& state = port.state;
  const size_t shown = std::min(state.gids.size(), kGidsShown);
  std::string text = list_of(std::span(state.gids).first(shown));
  if (shown < state.gids.size()) text += fmt::format(", {} more", state.gids.size() - shown);
  if (state.gid.entry)
    text += fmt::format("; takes {}: {}", state.gid.entry->index, state.gid.reason);
  if (state.subnets.size() > 1)
    text += fmt::format("; another for peers that it meets only in {}",
                        fmt::join(std::span(state.subnets).subspan(1), ", "));
  return text;
}

// ---- The machine ----

/// Addresses on the PCI bus of adapters that the kernel has no RDMA driver for: InfiniBand
/// controllers, and all of Mellanox, which can do RoCE.
std::vector<std::string> adapters_without_driver() {
  std::vector<std::string> addresses;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/pci/devices", error)) {
    const std::string folder = entry.path();
    const std::string vendor = read_file(folder + "/vendor").value_or("");
    const std::string kind = read_file(folder + "/class").value_or("");
    const bool could =
        kind.starts_with("0x0207") || (vendor.starts_with("0x15b3") && kind.starts_with("0x02"));
    if (could && !std::filesystem::exists(folder + "/infiniband", error))
      addresses.push_back(entry.path().filename());
  }
  return addresses;
}

Diagnosis without_devices() {
  const auto addresses = adapters_without_driver();
  if (addresses.empty())
    return {Severity::ok, "rdma", "no RDMA adapter here: shared memory and TCP are used", ""};
  return {Severity::warn, "rdma",
          fmt::format("an adapter is at {}, but the kernel has no RDMA driver for it",
                      fmt::join(addresses, ", ")),
          "sudo modprobe -a mlx5_ib ib_uverbs"};
}

Diagnosis check_modules() {
  constexpr const char* kDrivers[] = {"mlx5_ib", "mlx4_ib", "irdma", "bnxt_re",  "hns_roce_hw_v2",
                                      "qedr",    "hfi1",    "efa",   "rdma_rxe", "siw"};
  std::vector<std::string> loaded;
  std::error_code error;
  for (const char* name : kDrivers)
    if (std::filesystem::exists(fmt::format("/sys/module/{}", name), error)) loaded.push_back(name);
  const bool has_uverbs = std::filesystem::exists("/sys/class/infiniband_verbs", error);
  return {has_uverbs ? Severity::ok : Severity::warn, "rdma modules",
          fmt::format("ib_uverbs {}; drivers: {}", has_uverbs ? "is there" : "is not loaded",
                      loaded.empty() ? "none known" : fmt::format("{}", fmt::join(loaded, ", "))),
          has_uverbs ? "" : "sudo modprobe ib_uverbs"};
}

/// After the devices were listed.
Diagnosis check_forks() {
  switch (ibv_is_fork_initialized()) {
    case IBV_FORK_UNNEEDED:
      return {Severity::ok, "rdma fork", "the kernel copies registered pages for children", ""};
    case IBV_FORK_ENABLED:
      return {Severity::ok, "rdma fork",
              "children do not have the parent's registered memory: they must not touch it (Linux "
              "5.12 and newer copy it)",
              ""};
    case IBV_FORK_DISABLED:
      break;
  }
  return {Severity::warn, "rdma fork",
          "a fork would part registered memory from the adapters: data would be lost silently",
          "export IBV_FORK_SAFE=1"};
}

Diagnoses check_device(ibv_device* device, const PortPreference& preference) {
  const std::string name = ibv_get_device_name(device);
  const std::string title = "rdma " + name;
  if (!has_reliable_connections(*device))
    return {{Severity::ok, title, "not InfiniBand or RoCE: TCP on its network device is used", ""}};
  Diagnoses found;
  try {
    const Adapter adapter(device);
    for (uint8_t number = 1; number <= adapter.limits().phys_port_cnt; ++number) {
      SeenPort port{name, number, is_software(name), 0, examine(adapter, number, preference)};
      if (!port.state.interface.empty()) port.interface_mtu = interface_mtu(port.state.interface);
      for (Diagnosis& diagnosis : diagnose(port)) found.push_back(std::move(diagnosis));
    }
  } catch (const Error& error) {
    found.push_back({Severity::warn, "rdma", error.failure().reason, error.failure().advice});
  }
  return found;
}

/// What a rank that is started here would use.
Diagnosis check_choice(const Config& config) {
  const bool demanded = config.transport == "verbs" || config.require == "rdma";
  const UsablePorts usable = find_ports({config.ib_hca, config.ib_gid_index});
  if (usable.infos.empty())
    return {demanded ? Severity::fail : Severity::warn, "rdma choice",
            fmt::format("no port can be used{}: {}",
                        demanded ? ", and ROPEWALK_* variables demand RDMA" : "",
                        fmt::join(usable.why_not, "; ")),
            ""};
  std::string text = port_list_text(usable.infos);
  if (!usable.why_not.empty()) text += fmt::format("; not: {}", fmt::join(usable.why_not, "; "));
  return {Severity::ok, "rdma choice", text, ""};
}

}  // namespace

std::vector<Diagnosis> diagnose(const SeenPort& port) {
  const PortState& state = port.state;
  const std::string title = fmt::format("rdma {} port {}", port.device, port.number);
  std::vector<Diagnosis> found;
  if (state.problem.empty())
    found.push_back({Severity::ok, title, facts_of(port), ""});
  else
    found.push_back({Severity::warn, title, state.problem, state.advice});
  if (!state.gids.empty()) found.push_back({Severity::ok, title + " GIDs", gids_of(port), ""});
  const int packet = bytes_of(state.mtu_active);
  const bool could_be_longer = packet < std::min(bytes_of(state.mtu_max), kLongestPacket);
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

std::vector<Diagnosis> diagnose() {
  try {
    const Config config = config_from_environment();
    const DeviceList list;
    if (list.empty() && config.transport != "verbs" && config.require != "rdma")
      return {without_devices()};
    Diagnoses found;
    if (list.empty()) {
      found.push_back(without_devices());
    } else {
      found.push_back(check_modules());
      if (!list.devices().empty()) found.push_back(check_forks());
    }
    for (const DeviceList::Missing& missing : list.missing())
      found.push_back({Severity::warn, "rdma " + missing.device, missing.why, missing.advice});
    for (ibv_device* device : list.devices())
      for (Diagnosis& diagnosis : check_device(device, {config.ib_hca, config.ib_gid_index}))
        found.push_back(std::move(diagnosis));
    found.push_back(check_choice(config));
    return found;
  } catch (const Error& error) {
    return {{Severity::fail, "rdma", error.failure().reason, error.failure().advice}};
  }
}

}  // namespace ropewalk::verbs
