// Whether the ranks of a host can all have a CPU to themselves. Pure.
//
// Ranks share CPUs where they cannot all be given one of their own. Each rank tells, when it joins,
// which CPUs it may use (`PeerRecord`); a matching of ranks with CPUs says whether there are
// enough. Counting would not do: four ranks bound to two CPUs of many do share, and two bound to
// one CPU each do not. A cgroup quota below the number of the host's ranks is sharing too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ropewalk {

/// "0-3,8", as the kernel writes it; empty for no CPUs. `cpus` in order.
std::string cpu_list_text(const std::vector<int>& cpus);
/// The inverse; for a text in order, each CPU once. Throws Error(protocol) for what is no such
/// text.
std::vector<int> parse_cpu_list(std::string_view text);

/// True where every rank can be given one of its allowed CPUs that no other rank is given: a
/// matching (Kuhn 1955, by augmenting paths).
bool can_have_own_cpus(const std::vector<std::vector<int>>& allowed_by_rank);

}  // namespace ropewalk
