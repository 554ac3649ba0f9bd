// What UCX_TLS allows.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

namespace ropewalk::ucx {

/// Whether such a list ("all", "tcp,self", "^posix") allows a transport that moves messages through
/// shared memory.
inline bool allows_shared_memory(std::string_view wires) {
  const bool excludes = wires.starts_with('^');
  if (excludes) wires.remove_prefix(1);
  const std::string list = "," + std::string(wires) + ",";
  const auto is_named = [&list](std::string_view name) {
    return list.find("," + std::string(name) + ",") != std::string::npos;
  };
  const auto families = {"all", "shm", "sm", "mm"}, members = {"posix", "sysv", "xpmem"};
  const bool any_family = std::any_of(families.begin(), families.end(), is_named);
  if (excludes) return !any_family && !std::all_of(members.begin(), members.end(), is_named);
  return any_family || std::any_of(members.begin(), members.end(), is_named);
}

}  // namespace ropewalk::ucx
