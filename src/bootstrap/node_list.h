// Slurm's compact host lists: "node[01-03,07],login1".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ropewalk::bootstrap {

inline constexpr size_t kNodeListBytesMax = 1 << 16;

/// The first host of a list: "node01" for the one above. Several brackets in one name are
/// understood ("rack[1-2]n[01-16]" gives "rack1n01"). Nothing where the text is no such list; what
/// follows the first host is not looked at.
std::optional<std::string> first_host(std::string_view node_list);

}  // namespace ropewalk::bootstrap
