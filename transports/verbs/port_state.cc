#include "transports/verbs/port_state.h"

#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>

#include "topology/read_file.h"

namespace ropewalk::verbs {
namespace {

constexpr uint32_t kGidIndexMax = 255;  // an address handle has 8 bits for it
constexpr int kInfiniBandSubnetBits = 64;
constexpr const char* kStartSubnetManager =
    "start the fabric's subnet manager (sudo systemctl start opensm, on one host)";

GidType type_of(uint32_t type) {
  return type == IBV_GID_TYPE_ROCE_V2   ? GidType::roce_v2
         : type == IBV_GID_TYPE_ROCE_V1 ? GidType::roce_v1
                                        : GidType::infiniband;
}

std::string interface_named(uint32_t index) {
  char name[IF_NAMESIZE] = {};
  return index != 0 && if_indextoname(index, name) != nullptr ? name : "";
}

std::vector<GidEntry> gids_of(const Adapter& adapter, uint8_t number, int table_length) {
  const size_t most =
      static_cast<size_t>(std::max(table_length, 1)) * adapter.limits().phys_port_cnt;
  std::vector<ibv_gid_entry> table(most);
  const ssize_t count = ibv_query_gid_table(adapter.context(), table.data(), table.size(), 0);
  const InterfaceAddresses addresses;
  std::vector<GidEntry> gids;
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = table[static_cast<size_t>(i)];
    if (entry.port_num != number || entry.gid_index > kGidIndexMax) continue;
    GidEntry gid{
        {}, entry.gid_index, type_of(entry.gid_type), interface_named(entry.ndev_ifindex), {}};
    std::memcpy(gid.gid.data(), entry.gid.raw, gid.gid.size());
    if (is_zero(gid.gid)) continue;
    gid.subnet = gid.type == GidType::infiniband ? network_text(gid.gid, kInfiniBandSubnetBits)
                                                 : addresses.network_of(gid.interface, gid.gid);
    gids.push_back(std::move(gid));
  }
  return gids;
}

std::string line_of(const std::string& path) {
  const std::string text = read_file(path).value_or("");
  return text.substr(0, text.find('\n'));
}

/// A port without GIDs has one too: the first row's, or what Soft-RoCE was laid upon.
std::string interface_of(const std::string& device, uint8_t number,
                         const std::vector<GidEntry>& gids) {
  for (const GidEntry& entry : gids)
    if (!entry.interface.empty()) return entry.interface;
  const std::string folder = folder_of(device);
  const std::string first = line_of(fmt::format("{}/ports/{}/gid_attrs/ndevs/0", folder, number));
  return first.empty() ? line_of(folder + "/parent") : first;
}

/// The number in a file of `interface`: "1500", "0x1003"; 0 where there is none.
unsigned long number_of(const std::string& interface, const char* file) {
  const auto text = read_file(fmt::format("/sys/class/net/{}/{}", interface, file));
  return std::strtoul(text.value_or("0").c_str(), nullptr, 0);
}

bool is_up(const std::string& interface) {
  return (number_of(interface, "flags") & IFF_UP) != 0;
}

void find_why_down(PortState& port, uint8_t physical) {
  constexpr uint8_t kPolling = 2, kDisabled = 3;
  if (port.link_layer == LinkLayer::infiniband) {
    const bool trained = port.state == IBV_PORT_INIT || port.state == IBV_PORT_ARMED;
    port.advice = trained ? kStartSubnetManager
                  : physical == kPolling
                      ? "connect the cable, or switch on the port at its other end"
                  : physical == kDisabled ? "sudo ibportstate -D 0 1 enable"
                                          : "check the cable: ibstat, iblinkinfo";
  } else if (port.interface.empty()) {
    port.advice = "bring its network device up: rdma link, then sudo ip link set DEVICE up";
  } else {
    port.advice = is_up(port.interface) ? fmt::format("check the cable of {}: ethtool {}",
                                                      port.interface, port.interface)
                                        : fmt::format("sudo ip link set {} up", port.interface);
  }
}

void find_problem(PortState& port, uint8_t physical, const PortPreference& preference) {
  if (port.state != IBV_PORT_ACTIVE) {
    port.problem = fmt::format("is {}", name_of(port.state));
    find_why_down(port, physical);
  } else if (port.link_layer == LinkLayer::infiniband && port.lid == 0 && !port.needs_grh) {
    port.problem = "has no LID";
    port.advice = kStartSubnetManager;
  } else if (!port.gid.entry && preference.gid_index &&
             (port.link_layer == LinkLayer::infiniband || !port.gids.empty())) {
    port.problem = port.gid.reason;
    port.advice = "correct or unset ROPEWALK_IB_GID_INDEX";
  } else if (!port.gid.entry && port.link_layer == LinkLayer::ethernet) {
    port.problem = port.gid.reason;
    port.advice = port.interface.empty()
                      ? "give its network device an address: rdma link, then sudo ip addr add"
                      : fmt::format("sudo ip addr add ADDRESS/PREFIX dev {}", port.interface);
  }
}

/// Bits of the network where `address` is `gid`, else -1.
int prefix_bits(const ifaddrs& address, const Gid& gid) {
  const bool v4 = is_ipv4(gid);
  if (address.ifa_addr == nullptr || address.ifa_netmask == nullptr ||
      address.ifa_addr->sa_family != (v4 ? AF_INET : AF_INET6))
    return -1;
  const size_t at = v4 ? offsetof(sockaddr_in, sin_addr) : offsetof(sockaddr_in6, sin6_addr);
  const auto* own = reinterpret_cast<const uint8_t*>(address.ifa_addr) + at;
  const auto* mask = reinterpret_cast<const uint8_t*>(address.ifa_netmask) + at;
  const auto bytes = std::span(gid).subspan(v4 ? kIpv4At : 0);
  if (std::memcmp(own, bytes.data(), bytes.size()) != 0) return -1;
  int bits = 0;
  for (const uint8_t byte : std::span(mask, bytes.size())) bits += std::popcount(byte);
  return bits;
}

/// From ibv_port_attr's codes; 0 for codes that are not known.
uint32_t rate_gbps(uint8_t active_width, uint8_t active_speed) {
  struct Row {
    uint8_t code;
    double value;
  };
  constexpr Row kWidths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  constexpr Row kLaneGbps[] = {{1, 2.5}, {2, 5},   {4, 10},  {8, 10},
                               {16, 14}, {32, 25}, {64, 50}, {128, 100}};
  double width = 0, lane = 0;
  for (const Row& row : kWidths)
    if (row.code == active_width) width = row.value;
  for (const Row& row : kLaneGbps)
    if (row.code == active_speed) lane = row.value;
  return static_cast<uint32_t>(width * lane + 0.5);
}

}  // namespace

InterfaceAddresses::InterfaceAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) list_.reset(list);
}

std::string InterfaceAddresses::network_of(const std::string& interface, const Gid& gid) const {
  for (const ifaddrs* address = list_.get(); address != nullptr; address = address->ifa_next) {
    if (interface != address->ifa_name) continue;
    const int bits = prefix_bits(*address, gid);
    if (bits >= 0) return network_text(gid, bits);
  }
  return {};
}

int interface_mtu(const std::string& interface) {
  return static_cast<int>(number_of(interface, "mtu"));
}

std::string folder_of(const std::string& device) {
  return "/sys/class/infiniband/" + device;
}

bool is_software(const std::string& device) {
  struct stat status;
  return ::stat((folder_of(device) + "/device").c_str(), &status) != 0;
}

std::string_view name_of(ibv_port_state state) {
  constexpr std::string_view kNames[] = {"in no known state", "DOWN", "INIT", "ARMED", "ACTIVE",
                                         "ACTIVE_DEFER"};
  static_assert(IBV_PORT_DOWN == 1 && IBV_PORT_ACTIVE_DEFER == 5);
  const auto at = static_cast<size_t>(state);
  return kNames[at < std::size(kNames) ? at : 0];
}

int bytes_of(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0;
}

PortState examine(const Adapter& adapter, uint8_t number, const PortPreference& preference) {
  PortState port;
  ibv_port_attr attributes{};
  const int error = ibv_query_port(adapter.context(), number, &attributes);
  if (error != 0) {
    port.problem = fmt::format("cannot be queried: {}", std::strerror(error));
    port.advice = "dmesg | tail, for what the driver says";
    return port;
  }
  port.state = attributes.state;
  port.link_layer = attributes.link_layer == IBV_LINK_LAYER_ETHERNET ? LinkLayer::ethernet
                                                                     : LinkLayer::infiniband;
  port.lid = attributes.lid;
  port.needs_grh = (attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
  port.mtu_active = attributes.active_mtu;
  port.mtu_max = attributes.max_mtu;
  port.rate_gbps = rate_gbps(attributes.active_width, attributes.active_speed);
  port.gids = gids_of(adapter, number, attributes.gid_tbl_len);
  if (port.link_layer == LinkLayer::ethernet)
    port.interface = interface_of(adapter.name(), number, port.gids);
  port.gid = choose_gid(port.gids, preference.gid_index);
  if (port.gid.entry)
    port.subnets = subnets_beside(*port.gid.entry, preference.gid_index
                                                       ? std::span(&*port.gid.entry, 1)
                                                       : std::span<const GidEntry>(port.gids));
  find_problem(port, attributes.phys_state, preference);
  return port;
}

}  // namespace ropewalk::verbs
