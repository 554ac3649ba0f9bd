#include "transports/verbs/ports.h"

#include <fmt/format.h>

#include "memory/lock_limit.h"
#include "ropewalk/status.h"
#include "topology/topology.h"
#include "transports/verbs/devices.h"
#include "transports/verbs/port_state.h"

namespace ropewalk::verbs {
namespace {

struct Found {
  std::vector<Port> ports;
  std::vector<PortCandidate> candidates;  // of the same index
};

void look_at_ports(const std::shared_ptr<Adapter>& adapter, const PortFilter& filter,
                   const PortPreference& preference, Found& found,
                   std::vector<std::string>& why_not) {
  const std::string& name = adapter->name();
  const double share = local_share(folder_of(name) + "/device");
  for (uint8_t number = 1; number <= adapter->limits().phys_port_cnt; ++number) {
    const Port port{adapter, number};
    if (!filter.allows(name, number)) {
      why_not.push_back(
          fmt::format("{}: ROPEWALK_IB_HCA={} leaves it out", name_of(port), preference.hca));
      continue;
    }
    PortState state = examine(*adapter, number, preference);
    if (!state.problem.empty()) {
      why_not.push_back(fmt::format("{}: {}; {}", name_of(port), state.problem, state.advice));
      continue;
    }
    if (state.subnets.size() > kSubnetsMax) state.subnets.resize(kSubnetsMax);
    found.ports.push_back(port);
    found.candidates.push_back(
        {{name, number, state.link_layer, std::move(state.subnets), state.rate_gbps}, share});
  }
}

void look_at_device(ibv_device* device, const PortFilter& filter, const PortPreference& preference,
                    Found& found, std::vector<std::string>& why_not) {
  const std::string name = ibv_get_device_name(device);
  if (!filter.allows_device(name)) {
    why_not.push_back(fmt::format("{}: ROPEWALK_IB_HCA={} leaves it out", name, preference.hca));
  } else if (!has_reliable_connections(*device)) {
    why_not.push_back(
        fmt::format("{}: it has no reliable connections of InfiniBand or RoCE; use TCP "
                    "on its network device",
                    name));
  } else if (!is_device_name(name)) {
    why_not.push_back(
        fmt::format("\"{}\": other ranks could not be told this name; "
                    "sudo rdma dev set \"{}\" name rdma0",
                    name, name));
  } else {
    try {
      look_at_ports(std::make_shared<Adapter>(device), filter, preference, found, why_not);
    } catch (const Error& error) {
      why_not.push_back(fmt::format("{}; {}", error.failure().reason, error.failure().advice));
    }
  }
}

PortState usable_state(const Port& port, const PortPreference& preference) {
  PortState state = examine(*port.adapter, port.number, preference);
  if (!state.problem.empty())
    throw Error(ErrorCode::unavailable, "verbs",
                fmt::format("{}: {}", name_of(port), state.problem), state.advice);
  return state;
}

}  // namespace

UsablePorts find_ports(const PortPreference& preference) {
  const auto filter = PortFilter::parse(preference.hca);
  if (!filter)
    throw Error(ErrorCode::invalid_argument, "verbs",
                fmt::format("ROPEWALK_IB_HCA=\"{}\" is no list of devices", preference.hca),
                "write mlx5_0, mlx5_0:1,mlx5_1, =mlx5_1 or ^mlx5_3");
  UsablePorts usable;
  std::vector<std::string>& why_not = usable.why_not;
  const DeviceList list;
  for (const DeviceList::Missing& missing : list.missing())
    why_not.push_back(fmt::format("{}: {}; {}", missing.device, missing.why, missing.advice));
  if (list.empty()) why_not.emplace_back("there is no RDMA adapter");
  const LockLimit limit = lock_limit();
  if (!list.devices().empty() && !limit.suffices()) {
    why_not.push_back(fmt::format("{}, RDMA needs {} MiB and more; {}", text_of(limit),
                                  kLockedBytesWanted >> 20, advice(limit)));
    return usable;
  }
  Found found;
  for (ibv_device* device : list.devices())
    look_at_device(device, *filter, preference, found, why_not);
  const bool named = !filter->allows_all();
  for (const size_t i : select_ports(found.candidates, named, why_not)) {
    usable.ports.push_back(found.ports[i]);
    usable.infos.push_back(found.candidates[i].info);
  }
  return usable;
}

std::string name_of(const Port& port) {
  return fmt::format("{} port {}", port.adapter->name(), port.number);
}

PortAddress address_of(const Port& port, const PortPreference& preference,
                       std::string_view subnet) {
  const PortState state = usable_state(port, preference);
  PortAddress address;
  address.link_layer = state.link_layer;
  address.lid = state.lid;
  address.needs_grh = state.needs_grh;
  address.mtu = static_cast<uint8_t>(state.mtu_active);
  if (const auto gid = choose_gid(state.gids, preference.gid_index, subnet).entry) {
    address.gid = gid->gid;
    address.gid_index = static_cast<uint8_t>(gid->index);
  }
  return address;
}

bool find_again(const Port& port, const PortPreference& preference, PortAddress& told) {
  PortState state = usable_state(port, preference);
  if (state.lid != told.lid) return false;
  if (is_zero(told.gid)) return true;  // InfiniBand goes by LIDs alone then
  std::erase_if(state.gids, [&](const GidEntry& entry) { return entry.gid != told.gid; });
  const auto gid = choose_gid(state.gids, preference.gid_index).entry;
  if (gid) told.gid_index = static_cast<uint8_t>(gid->index);
  return gid.has_value();
}

std::string text_of(const PortAddress& address) {
  const std::string gid = "GID " + text_of(address.gid);
  return address.link_layer == LinkLayer::ethernet ? gid
                                                   : fmt::format("{}, LID {}", gid, address.lid);
}

}  // namespace ropewalk::verbs
