// What `ropewalk bench put|pingpong|signal` prints: a table, or one JSON object a line.
#pragma once

#include <string>

#include "tools/bench/p2p_options.h"
#include "tools/bench/time_summary.h"

namespace ropewalk::tools {

struct P2pResult {
  size_t bytes = 0;
  int iterations = 0;
  TimeSummary latency;          // one way
  double bw_gbs = 0;            // 10^9 bytes a second; where both ways, of both together
  double message_rate_mps = 0;  // 10^6 messages a second
  uint64_t wrong = 0;           // bytes, and notices out of place
};

std::string p2p_json_line(const P2pOptions& options, std::string_view transport,
                          const P2pResult& result);
std::string p2p_table_header(const P2pOptions& options, std::string_view transport);
std::string p2p_table_line(const P2pOptions& options, const P2pResult& result);

}  // namespace ropewalk::tools
