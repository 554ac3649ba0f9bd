#include "topology/cpu_share.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "base/text.h"
#include "ropewalk/status.h"

namespace ropewalk {
namespace {

constexpr int kCpusMax = 1 << 20;

int parse_cpu(std::string_view text) {
  const auto cpu = parse_number<int>(text);
  if (!cpu || *cpu < 0 || *cpu >= kCpusMax)
    throw Error(ErrorCode::protocol, "cpu list", fmt::format("\"{}\" is no number of a CPU", text));
  return *cpu;
}

/// Gives `rank` a CPU, moving other ranks where needed: along an augmenting path through CPUs that
/// were not `tried` yet for it.
bool place(size_t rank, const std::vector<std::vector<int>>& allowed,
           std::map<int, size_t>& holder_of, std::set<int>& tried) {
  for (int cpu : allowed[rank]) {
    if (!tried.insert(cpu).second) continue;
    const auto holder = holder_of.find(cpu);
    if (holder != holder_of.end() && !place(holder->second, allowed, holder_of, tried)) continue;
    holder_of[cpu] = rank;
    return true;
  }
  return false;
}

}  // namespace

std::string cpu_list_text(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (last > i) text += fmt::format("-{}", cpus[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  if (text.empty()) return cpus;
  for (const std::string_view range : split(text, ',')) {
    const size_t dash = range.find('-');
    const int first = parse_cpu(range.substr(0, dash));
    const int last = dash == std::string_view::npos ? first : parse_cpu(range.substr(dash + 1));
    if (last < first || (!cpus.empty() && first <= cpus.back()))
      throw Error(ErrorCode::protocol, "cpu list", fmt::format("\"{}\" is out of order", range));
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

bool can_have_own_cpus(const std::vector<std::vector<int>>& allowed_by_rank) {
  std::map<int, size_t> holder_of;  // by CPU
  for (size_t rank = 0; rank < allowed_by_rank.size(); ++rank) {
    std::set<int> tried;
    if (!place(rank, allowed_by_rank, holder_of, tried)) return false;
  }
  return true;
}

}  // namespace ropewalk
