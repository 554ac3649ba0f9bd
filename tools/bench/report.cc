#include "tools/bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/bench/time_summary.h"

namespace ropewalk::tools {
namespace {

std::string op_of(const BenchOptions& options) {
  return options.kind.reduces() ? std::string(name_of(options.op)) : "none";
}

}  // namespace

BenchResult summarize(const BenchShape& shape, Algorithm algorithm, std::vector<double> us,
                      int64_t wrong) {
  BenchResult result;
  result.count = shape.count;
  result.bytes = shape.bytes;
  result.iterations = static_cast<int>(us.size());
  result.algorithm = algorithm;
  const TimeSummary times = summarize_times(std::move(us));
  result.min_us = times.min_us;
  result.median_us = times.median_us;
  result.p99_us = times.p99_us;
  // A clock may not resolve the fastest calls.
  result.algbw_gbs = static_cast<double>(shape.bytes) / std::max(result.median_us, 1e-3) / 1e3;
  result.busbw_gbs = result.algbw_gbs * shape.bus_factor;
  result.wrong = wrong;
  return result;
}

std::string json_line(const BenchOptions& options, const BenchJob& job, const BenchResult& result) {
  nlohmann::ordered_json line;
  line["collective"] = options.kind.name();
  line["transport"] = job.transport;
  line["algorithm"] = name_of(result.algorithm);
  line["ranks"] = job.ranks;
  line["dtype"] = name_of(options.type);
  line["op"] = op_of(options);
  line["bytes"] = result.bytes;
  line["count"] = result.count;
  line["buffers"] = options.registered ? "registered" : "plain";
  line["in_place"] = options.in_place;
  if (options.kind.has_root()) line["root"] = options.root;
  line["iterations"] = result.iterations;
  line["min_us"] = rounded(result.min_us, 1e3);
  line["median_us"] = rounded(result.median_us, 1e3);
  line["p99_us"] = rounded(result.p99_us, 1e3);
  line["algbw_gbs"] = rounded(result.algbw_gbs, 1e6);
  line["busbw_gbs"] = rounded(result.busbw_gbs, 1e6);
  line["wrong"] = result.wrong;
  return line.dump() + "\n";
}

std::string table_line(const BenchOptions& options, const BenchResult& result) {
  const std::string root = options.kind.has_root() ? std::to_string(options.root) : "-";
  return fmt::format(
      "{:>12} {:>12} {:>9} {:>10} {:>5} {:>18} {:>10.2f} {:>10.2f} {:>10.2f} {:>8.3f} "
      "{:>8.3f} {:>6} {:>6}\n",
      result.bytes, result.count, name_of(options.type), op_of(options), root,
      name_of(result.algorithm), result.min_us, result.median_us, result.p99_us, result.algbw_gbs,
      result.busbw_gbs, result.iterations, result.wrong);
}

void print_header(const BenchOptions& options, const BenchJob& job) {
  if (options.json) return;
  print(fmt::format(
      "# ropewalk bench {}: {} ranks, transport {}, {} buffers, {}\n"
      "# time of an iteration: the slowest rank's; bandwidth: of the median\n",
      options.kind.name(), job.ranks, job.transport, options.registered ? "registered" : "plain",
      options.in_place ? "in place" : "out of place"));
  print(
      fmt::format("#{:>11} {:>12} {:>9} {:>10} {:>5} {:>18} {:>10} {:>10} {:>10} {:>8} {:>8} {:>6} "
                  "{:>6}\n",
                  "size", "count", "type", "redop", "root", "algorithm", "min", "median", "p99",
                  "algbw", "busbw", "iters", "#wrong"));
  print(fmt::format("#{:>11} {:>12} {:>9} {:>10} {:>5} {:>18} {:>10} {:>10} {:>10} {:>8} {:>8}\n",
                    "(B)", "(elements)", "", "", "", "", "(us)", "(us)", "(us)", "(GB/s)",
                    "(GB/s)"));
}

void print_result(const BenchOptions& options, const BenchJob& job, const BenchResult& result) {
  print(options.json ? json_line(options, job, result) : table_line(options, result));
}

}  // namespace ropewalk::tools
