#include "topology/cpu_share.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <set>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

constexpr int kCpusMax = 1 << 20;

int parse_cpu(std::string_view text) {
  int cpu = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), cpu);
  if (error != std::errc() || end != text.data() + text.size() || cpu < 0 || cpu >= kCpusMax)
    throw Error(ErrorCode::protocol, "cpu list", fmt::format("\"{}\" is no number of a CPU", text));
  return cpu;
}

class Matching {
 public:
  explicit Matching(const std::vector<std::vector<int>>& allowed) : allowed_(allowed) {}

  /// Gives `rank` a CPU, moving others where needed.
  bool place(size_t rank) {
    tried_.clear();
    return place_or_move(rank);
  }

 private:
  bool place_or_move(size_t rank) {
    for (int cpu : allowed_[rank]) {
      if (!tried_.insert(cpu).second) continue;
      const auto holder = holder_of_.find(cpu);
      if (holder != holder_of_.end() && !place_or_move(holder->second)) continue;
      holder_of_[cpu] = rank;
      return true;
    }
    return false;
  }

  const std::vector<std::vector<int>>& allowed_;
  std::map<int, size_t> holder_of_;  // by CPU
  std::set<int> tried_;              // for the rank being placed
};

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
  while (!text.empty()) {
    const std::string_view range = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), range.size() + 1));
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
  Matching matching(allowed_by_rank);
  for (size_t rank = 0; rank < allowed_by_rank.size(); ++rank)
    if (!matching.place(rank)) return false;
  return true;
}

}  // namespace ropewalk
