#include "tools/bench/options.h"

#include <fmt/format.h>

#include "bootstrap/config.h"
#include "reduce/reduce.h"
#include "ropewalk/status.h"

namespace ropewalk::tools {
namespace {

constexpr size_t kSizeMax = size_t{1} << 44;

[[noreturn]] void refuse(const std::string& why, const std::string& advice,
                         const std::string& command = "bench") {
  throw Error(ErrorCode::invalid_argument, command, why, advice);
}

size_t parse_one(std::string_view text, const std::string& command) {
  const auto bytes = parse_size(text);
  if (!bytes || *bytes == 0 || *bytes > kSizeMax) {
    refuse(fmt::format("--sizes: \"{}\" is not a size", text), "write --sizes 8,64K,1M or 8:64M",
           command);
  }
  return *bytes;
}

}  // namespace

std::vector<size_t> parse_size_list(std::string_view text, const std::string& command) {
  std::vector<size_t> sizes;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    const size_t colon = entry.find(':');
    const size_t first = parse_one(entry.substr(0, colon), command);
    const size_t last =
        colon == std::string_view::npos ? first : parse_one(entry.substr(colon + 1), command);
    if (last < first) {
      refuse(fmt::format("--sizes: \"{}\" ends before it begins", entry), "write small:large",
             command);
    }
    for (size_t size = first; size <= last; size *= 2) sizes.push_back(size);
    if (comma == std::string_view::npos) return sizes;
    text.remove_prefix(comma + 1);
  }
}

void check(const BenchOptions& options) {
  const BenchKind kind = options.kind;
  if (options.in_place ? !kind.can_be_in_place() && kind.collective != Collective::barrier
                       : !kind.can_be_out_of_place()) {
    refuse(fmt::format("{} is not measured {}", kind.name(),
                       options.in_place ? "in place" : "out of place"),
           "leave --in-place and --out-of-place away");
  }
  if (kind.reduces() &&
      (options.op == ReduceKind::user || !is_reducible(options.type, ReduceOp{options.op, 0.5}))) {
    refuse(fmt::format("{} is not defined on {} here", name_of(options.op), name_of(options.type)),
           "choose another --op or --dtype");
  }
  check_algorithm("bench", kind, options.algorithm);
  if (!options.plot_beside.empty() && options.plot.empty())
    refuse("--plot-beside says what --plot draws", "write --plot FILE.svg, too");
  if (!options.plot.empty() && kind.collective == Collective::barrier)
    refuse("--plot draws over size, and a barrier has none", "leave --plot away");
  if (kind.is_send_recv() && options.ranks == 1) {
    refuse("send_recv needs two ranks at least", "write -n 2");
  }
  if (options.ranks > 0 && options.root >= options.ranks) {
    refuse(fmt::format("--root {} of {} ranks", options.root, options.ranks),
           fmt::format("choose 0 to {}", options.ranks - 1));
  }
}

}  // namespace ropewalk::tools
