// `ropewalk tune`: measures links and algorithms between some hosts, and saves what it finds as a
// tuning profile (src/job/tuning.h).
#pragma once

#include <string>
#include <vector>

#include "ropewalk/types.h"

namespace ropewalk::tools {

struct TuneOptions {
  std::vector<Collective> collectives;
  std::vector<size_t> sizes;  // bytes, ascending
  std::vector<int> jobs;      // numbers of ranks; empty: powers of two, and all
  int ranks = 0;              // the value of -n; 0: none
  std::string transport;      // empty: the library's choice
  std::string output;         // file; empty: where jobs on these hosts look for it
};

/// Joins the job and measures; rank 0 prints and writes. Collective. Returns the exit status.
/// Throws Error.
int run_tune_rank(const TuneOptions& options);

}  // namespace ropewalk::tools
