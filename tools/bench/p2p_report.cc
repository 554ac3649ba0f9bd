#include "tools/bench/p2p_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace ropewalk::tools {
namespace {

std::string_view direction_of(const P2pOptions& options) {
  return options.both ? "both" : "one-way";
}

}  // namespace

std::string p2p_json_line(const P2pOptions& options, std::string_view transport,
                          const P2pResult& result) {
  nlohmann::ordered_json line;
  line["benchmark"] = name_of(options.kind);
  line["transport"] = transport;
  line["bytes"] = result.bytes;
  line["iterations"] = result.iterations;
  line["min_us"] = rounded(result.latency.min_us, 1e3);
  line["median_us"] = rounded(result.latency.median_us, 1e3);
  line["p99_us"] = rounded(result.latency.p99_us, 1e3);
  if (options.kind == P2pKind::put) {
    line["direction"] = direction_of(options);
    line["bw_gbs"] = rounded(result.bw_gbs, 1e6);
    line["message_rate_mps"] = rounded(result.message_rate_mps, 1e6);
  }
  line["wrong"] = result.wrong;
  return line.dump() + "\n";
}

std::string p2p_table_header(const P2pOptions& options, std::string_view transport) {
  std::string text =
      fmt::format("# ropewalk bench {}: ranks 0 and 1, transport {}\n# latency: half a round trip",
                  name_of(options.kind), transport);
  if (options.kind == P2pKind::put)
    text += fmt::format("; bandwidth: many in flight, {}",
                        options.both ? "both ways at once (sum)" : "one way");
  text +=
      fmt::format("\n#{:>11} {:>8} {:>10} {:>10} {:>10}", "size", "iters", "min", "median", "p99");
  if (options.kind == P2pKind::put) text += fmt::format(" {:>10} {:>10}", "bandwidth", "rate");
  text += fmt::format(" {:>6}\n#{:>11} {:>8} {:>10} {:>10} {:>10}", "#wrong", "(B)", "", "(us)",
                      "(us)", "(us)");
  if (options.kind == P2pKind::put) text += fmt::format(" {:>10} {:>10}", "(GB/s)", "(M/s)");
  return text + "\n";
}

std::string p2p_table_line(const P2pOptions& options, const P2pResult& result) {
  std::string text =
      fmt::format("{:>12} {:>8} {:>10.3f} {:>10.3f} {:>10.3f}", result.bytes, result.iterations,
                  result.latency.min_us, result.latency.median_us, result.latency.p99_us);
  if (options.kind == P2pKind::put)
    text += fmt::format(" {:>10.3f} {:>10.4f}", result.bw_gbs, result.message_rate_mps);
  return text + fmt::format(" {:>6}\n", result.wrong);
}

}  // namespace ropewalk::tools
