#include "integrations/nccl/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "fabric/port_info.h"
#include "fabric/select_ports.h"
#include "integrations/nccl/handle.h"
#include "integrations/nccl/logging.h"
#include "topology/read_file.h"

namespace ropewalk::nccl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRdmaFolder = "/sys/class/infiniband";
constexpr const char* kInterfaceFolder = "/sys/class/net";

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

/// Empty for an adapter in software.
std::string pci_path_of(const fs::path& folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder / "device", error);
  return error ? std::string() : path.string();
}

long number_in(const fs::path& file) {
  const auto text = read_file(file);
  return text ? std::strtol(text->c_str(), nullptr, 10) : 0;
}

/// "0002:c903:00a1:b2c3", as the kernel tells it.
uint64_t guid_in(const fs::path& file) {
  std::string text = read_file(file).value_or("");
  std::erase(text, ':');
  return std::strtoull(text.c_str(), nullptr, 16);
}

/// Of the interfaces that are up, at most kHandleAddressesMax; of loopback's where there is no
/// other.
std::vector<bootstrap::LocalAddress> usable_addresses(const Config& config) {
  std::vector<bootstrap::LocalAddress> found = bootstrap::local_addresses(config.socket_ifname);
  std::erase_if(found, [](const auto& local) { return !local.is_up; });
  const auto is_loopback = [](const auto& local) { return local.address.is_loopback(); };
  if (!std::ranges::all_of(found, is_loopback)) std::erase_if(found, is_loopback);
  return found;
}

/// What the provider offers to either end of a pair; or why it offers nothing.
std::string take_offers(Device& device) {
  for (int rank = 0; rank < 2; ++rank) {
    TransportOffer offer = device.provider->find(device.config, rank, 2);
    if (!offer.make) return offer.why_not;
    device.info = std::move(offer.info);
    device.make[static_cast<size_t>(rank)] = std::move(offer.make);
  }
  return {};
}

/// A port that can be used, or a line in the log why not.
void add_rdma_port(const Config& config, const std::string& adapter, int port,
                   const std::vector<bootstrap::SocketAddress>& addresses,
                   std::vector<Device>& into) {
  Device device;
  device.name = fmt::format("{}:{}", adapter, port);
  device.config = config;
  device.config.ib_hca = "=" + device.name;
  device.provider = &verbs_provider();
  if (const std::string why_not = take_offers(device); !why_not.empty())
    return info("{} is not used: {}", device.name, why_not);
  const verbs::PortInfo told = verbs::parse_port_list(device.info).at(0);
  const fs::path folder = fs::path(kRdmaFolder) / adapter;
  device.pci_path = pci_path_of(folder);
  device.guid = guid_in(folder / "node_guid");
  device.port = port;
  device.speed_mbps = static_cast<int>(told.rate_gbps) * 1000;
  // Link-local networks are called the same wherever they are.
  if (!told.subnets.empty() && !told.subnets[0].starts_with("fe80:"))
    device.subnet = told.subnets[0];
  device.addresses = addresses;
  into.push_back(std::move(device));
}

std::vector<Device> find_rdma_ports(const Config& config) {
  const auto filter = verbs::PortFilter::parse(config.ib_hca);
  if (!filter)
    throw Error(ErrorCode::invalid_argument, "init",
                fmt::format("ROPEWALK_IB_HCA=\"{}\" is no list of devices", config.ib_hca),
                "give for example mlx5_0,mlx5_1:1");
  std::vector<bootstrap::SocketAddress> addresses;
  for (const auto& local : usable_addresses(config))
    if (addresses.size() < kHandleAddressesMax) addresses.push_back(local.address);
  std::vector<Device> devices;
  for (const std::string& adapter : names_in(kRdmaFolder))
    for (const std::string& port : names_in(fs::path(kRdmaFolder) / adapter / "ports")) {
      const int number = std::atoi(port.c_str());
      if (filter->allows(adapter, static_cast<uint8_t>(number)))
        add_rdma_port(config, adapter, number, addresses, devices);
    }
  return devices;
}

/// Of bridges and the like only where there is nothing else, or ROPEWALK_SOCKET_IFNAME names them.
std::vector<Device> find_interfaces(const Config& config) {
  std::vector<Device> devices;
  std::set<std::string> seen;
  for (const bootstrap::LocalAddress& local : usable_addresses(config)) {
    if (!seen.insert(local.interface).second) continue;
    const fs::path folder = fs::path(kInterfaceFolder) / local.interface;
    Device device;
    device.name = local.interface;
    device.provider = &tcp_provider();
    device.config = config;
    take_offers(device);
    device.info.clear();  // or each connection would use all networks that both hosts share
    device.pci_path = pci_path_of(folder);
    device.guid = devices.size();
    const long told_mbps = number_in(folder / "speed");
    device.speed_mbps = told_mbps > 0 ? static_cast<int>(told_mbps)
                                      : static_cast<int>(8e-6 / device.provider->cost.s_per_byte);
    if (!local.address.is_loopback())
      device.subnet = bootstrap::network_of(local.address.ip(), local.prefix_bits);
    device.addresses = {local.address};
    devices.push_back(std::move(device));
  }
  const auto is_virtual = [](const Device& device) { return device.pci_path.empty(); };
  if (config.socket_ifname.empty() && !std::ranges::all_of(devices, is_virtual))
    std::erase_if(devices, is_virtual);
  return devices;
}

}  // namespace

void number_rails(std::vector<Device>& devices) {
  std::set<std::string> subnets;
  for (const Device& device : devices)
    if (!device.subnet.empty()) subnets.insert(device.subnet);
  for (Device& device : devices) {
    const auto found = subnets.find(device.subnet);
    device.rail = subnets.size() < 2 || found == subnets.end()
                      ? int16_t{-1}
                      : static_cast<int16_t>(std::distance(subnets.begin(), found));
  }
}

namespace {

/// Throws Error(invalid_argument).
void check_settings(const Config& config, bool wants_rdma) {
  if (config.transport != "auto" && config.transport != "verbs" && config.transport != "tcp")
    throw Error(
        ErrorCode::invalid_argument, "init",
        fmt::format("ROPEWALK_TRANSPORT={} is none of NCCL's network plugin", config.transport),
        "set it to auto, verbs or tcp");
  if (!config.secure) return;
  if (config.job_key.empty())
    throw Error(ErrorCode::invalid_argument, "init", "ROPEWALK_SECURE=1 without a ROPEWALK_JOB_KEY",
                kKeyAdvice);
  if (wants_rdma)
    throw Error(ErrorCode::invalid_argument, "init",
                "nothing seals what adapters read and write by themselves",
                "unset ROPEWALK_SECURE, or let ROPEWALK_TRANSPORT be tcp");
}

}  // namespace

std::vector<Device> find_devices(const Config& config) {
  const bool wants_rdma = config.transport == "verbs" || config.require == "rdma";
  const bool wants_tcp = config.transport == "tcp" || config.require == "tcp" || config.secure;
  check_settings(config, wants_rdma);
  std::vector<Device> devices;
  if (!wants_tcp) devices = find_rdma_ports(config);
  if (devices.empty() && !wants_rdma) devices = find_interfaces(config);
  if (devices.empty())
    throw Error(ErrorCode::unavailable, "init",
                wants_rdma ? "no RDMA port can be used" : "no network interface is up",
                wants_rdma ? "run `ropewalk doctor`, or set ROPEWALK_TRANSPORT=auto for TCP"
                           : "ip link set lo up, at least");
  number_rails(devices);
  return devices;
}

}  // namespace ropewalk::nccl
