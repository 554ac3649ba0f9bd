// What UCX_TLS and UCX_NET_DEVICES allow.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace ropewalk::ucx {

/// Whether such a list ("mlx5_0:1,eth0", "^eth0", "all") allows a name that it may hold under any
/// of `names`.
inline bool allows(std::string_view list, const std::vector<std::string_view>& names) {
  const bool excludes = list.starts_with('^');
  if (excludes) list.remove_prefix(1);
  const std::string fenced = "," + std::string(list) + ",";
  const bool is_named = std::any_of(names.begin(), names.end(), [&fenced](std::string_view name) {
    return fenced.find("," + std::string(name) + ",") != std::string::npos;
  });
  return is_named != excludes;
}

inline bool allows_device(std::string_view devices, std::string_view device) {
  return allows(devices, {"all", device});
}

/// As UCX_TLS names them: alone, or with others of their kind.
inline bool allows_transport(std::string_view wires, std::string_view transport) {
  const std::string strictly = "\\" + std::string(transport);  // without what UCX would add
  std::vector<std::string_view> names = {"all", transport, strictly};
  const auto is_one_of = [transport](auto... members) { return ((transport == members) || ...); };
  if (is_one_of("posix", "sysv", "xpmem")) names.insert(names.end(), {"mm", "sm", "shm"});
  if (is_one_of("cma", "knem")) names.insert(names.end(), {"sm", "shm"});
  if (is_one_of("rc_verbs")) names.insert(names.end(), {"ib", "rc", "rc_v"});
  if (is_one_of("rc_mlx5")) names.insert(names.end(), {"ib", "rc", "rc_x"});
  if (is_one_of("ud_verbs")) names.insert(names.end(), {"ib", "ud", "ud_v"});
  if (is_one_of("ud_mlx5")) names.insert(names.end(), {"ib", "ud", "ud_x"});
  if (is_one_of("dc_mlx5")) names.insert(names.end(), {"ib", "dc", "dc_x"});
  if (transport.starts_with("ugni_")) names.push_back("ugni");
  return allows(wires, names);
}

/// Whether there may be memory that UCX allocates and peers map. (Over xpmem, too, peers map what
/// others allocate; that is not tried.)
inline bool allows_shared_memory(std::string_view wires) {
  return allows_transport(wires, "posix") || allows_transport(wires, "sysv");
}

}  // namespace ropewalk::ucx
