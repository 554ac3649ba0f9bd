#include "transport_choice/rdma.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "bootstrap/config.h"
#include "ropewalk/status.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/ports.h"
#include "topology/read_file.h"
#include "transports/verbs/adapter.h"
#include "transports/verbs/device_list.h"
#include "transports/verbs/network.h"

namespace ropewalk::tools {
namespace {

using Diagnoses = std::vector<Diagnosis>;

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

Diagnoses check_device(ibv_device* device, const verbs::PortPreference& preference) {
  const std::string name = ibv_get_device_name(device);
  const std::string title = "rdma " + name;
  if (!verbs::has_reliable_connections(*device))
    return {{Severity::ok, title, "not InfiniBand or RoCE: TCP on its network device is used", ""}};
  Diagnoses found;
  try {
    const verbs::Adapter adapter(device);
    for (uint8_t number = 1; number <= adapter.limits().phys_port_cnt; ++number) {
      SeenPort port{name, number, verbs::is_software(name), 0,
                    verbs::examine(adapter, number, preference)};
      if (!port.state.interface.empty())
        port.interface_mtu = verbs::interface_mtu(port.state.interface);
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
  const Rdma rdma(config);
  std::string text = verbs::port_list_text(rdma.ports());
  if (rdma.ports().empty()) {
    return {demanded ? Severity::fail : Severity::warn, "rdma choice",
            fmt::format("no port can be used{}: {}",
                        demanded ? ", and ROPEWALK_* variables demand RDMA" : "",
                        fmt::join(rdma.why_not(), "; ")),
            ""};
  }
  if (!rdma.why_not().empty()) text += fmt::format("; not: {}", fmt::join(rdma.why_not(), "; "));
  return {Severity::ok, "rdma choice", text, ""};
}

}  // namespace

std::vector<Diagnosis> check_rdma() {
  try {
    const Config config = config_from_environment();
    const verbs::DeviceList list;
    if (list.empty() && config.transport != "verbs" && config.require != "rdma")
      return {without_devices()};
    Diagnoses found;
    if (list.empty()) {
      found.push_back(without_devices());
    } else {
      found.push_back(check_modules());
      found.push_back(check_forks());
    }
    for (const verbs::DeviceList::Missing& missing : list.missing())
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

}  // namespace ropewalk::tools
