// What `ropewalk bench --plot` draws: time and bus bandwidth over size, with saved runs beside.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/bench/options.h"
#include "tools/bench/report.h"
#include "tools/plot/figure.h"

namespace ropewalk::tools {

/// Lines of `ropewalk bench --json` that differ in nothing but size and result.
struct BenchRun {
  /// Of the line, all that says what was measured: "transport" and "shm", in the line's order.
  std::vector<std::pair<std::string, std::string>> fields;
  struct Point {
    double bytes = 0, median_us = 0, busbw_gbs = 0;
  };
  std::vector<Point> points;  // by ascending bytes
};

/// From the text of `file`, in the order in which they first occur. Throws
/// Error(invalid_argument) that names file and line where a line is none of `ropewalk bench --json`
/// or not of `collective`, or where there is none.
std::vector<BenchRun> parse_bench_runs(std::string_view text, const std::string& file,
                                       const std::string& collective);

/// Draws one run of `ropewalk bench`.
class BenchPlot {
 public:
  /// Reads `options.plot_beside`, and opens `options.plot`, before anything is measured. Throws
  /// Error(invalid_argument).
  explicit BenchPlot(const BenchOptions& options);

  void add(const BenchJob& job, const BenchResult& result);
  /// Throws Error.
  void write() const;

 private:
  const BenchOptions& options_;
  const PlotFile file_;
  std::vector<BenchRun> beside_;
  std::string lines_;  // of this run
};

}  // namespace ropewalk::tools
