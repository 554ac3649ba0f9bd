#include "transports/verbs/port_state.h"

#include <fmt/format.h>
#include <net/if.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "topology/read_file.h"
#include "transports/verbs/network.h"

namespace ropewalk::verbs {
namespace {

constexpr uint32_t kGidIndexMax = 255;  // an address handle has 8 bits for it
constexpr int kInfiniBandSubnetBits = 64;

GidType type_of(uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_ROCE_V2:
      return GidType::roce_v2;
    case IBV_GID_TYPE_ROCE_V1:
      return GidType::roce_v1;
    default:
      return GidType::infiniband;
  }
}

std::string interface_named(uint32_t index) {
  char name[IF_NAMESIZE] = {};
  return index != 0 && if_indextoname(index, name) != nullptr ? name : "";
}

std::string subnet_of(const GidEntry& entry, const InterfaceAddresses& addresses) {
  return entry.type == GidType::infiniband ? network_text(entry.gid, kInfiniBandSubnetBits)
                                           : addresses.network_of(entry.interface, entry.gid);
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
    gid.subnet = subnet_of(gid, addresses);
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

void find_why_down(PortState& port, uint8_t physical) {
  constexpr uint8_t kPolling = 2, kDisabled = 3;
  if (port.link_layer == LinkLayer::infiniband) {
    const bool trained = port.state == IBV_PORT_INIT || port.state == IBV_PORT_ARMED;
    port.advice =
        trained ? "start the fabric's subnet manager (sudo systemctl start opensm, on one host)"
        : physical == kPolling  ? "connect the cable, or switch on the port at its other end"
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
  } else if (port.link_layer == LinkLayer::infiniband) {
    if (port.lid == 0 && !port.needs_grh) {
      port.problem = "has no LID";
      port.advice = "start the fabric's subnet manager (sudo systemctl start opensm, on one host)";
    } else if (preference.gid_index && !port.gid.entry) {
      port.problem = port.gid.reason;
      port.advice = "correct or unset ROPEWALK_IB_GID_INDEX";
    }
  } else if (!port.gid.entry) {
    port.problem = port.gid.reason;
    port.advice = preference.gid_index && !port.gids.empty()
                      ? "correct or unset ROPEWALK_IB_GID_INDEX"
                  : port.interface.empty()
                      ? "give its network device an address: rdma link, then sudo ip addr add"
                      : fmt::format("sudo ip addr add ADDRESS/PREFIX dev {}", port.interface);
  }
}

}  // namespace

std::string folder_of(const std::string& device) {
  return "/sys/class/infiniband/" + device;
}

bool is_software(const std::string& device) {
  struct stat status;
  return ::stat((folder_of(device) + "/device").c_str(), &status) != 0;
}

std::string_view name_of(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "DOWN";
    case IBV_PORT_INIT:
      return "INIT";
    case IBV_PORT_ARMED:
      return "ARMED";
    case IBV_PORT_ACTIVE:
      return "ACTIVE";
    case IBV_PORT_ACTIVE_DEFER:
      return "ACTIVE_DEFER";
    default:
      return "in no known state";
  }
}

int bytes_of(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0;
}

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
