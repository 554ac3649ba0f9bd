// What `ropewalk bench` prints: a table as nccl-tests', or one JSON object a line.
#pragma once

#include <vector>

#include "tools/bench/options.h"

namespace ropewalk::tools {

struct BenchResult {
  size_t count = 0, bytes = 0;
  int iterations = 0;
  Algorithm algorithm = Algorithm::automatic;
  double min_us = 0, median_us = 0, p99_us = 0;
  double algbw_gbs = 0, busbw_gbs = 0;  // 10^9 bytes per second, of the median
  int64_t wrong = 0;                    // elements, over all ranks
};

/// The job that was measured.
struct BenchJob {
  int ranks = 1;
  std::string transport;  // as Communicator::transport says
};

/// `us`: the time of each iteration; at least one.
BenchResult summarize(const BenchShape& shape, Algorithm algorithm, std::vector<double> us,
                      int64_t wrong);
std::string json_line(const BenchOptions& options, const BenchJob& job, const BenchResult& result);
std::string table_line(const BenchOptions& options, const BenchResult& result);

/// To standard output, at once.
void print_header(const BenchOptions& options, const BenchJob& job);
void print_result(const BenchOptions& options, const BenchJob& job, const BenchResult& result);

}  // namespace ropewalk::tools
