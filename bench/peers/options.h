// The command line, the same for every program here.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/shape.h"

namespace ropewalk::peers {

struct PeerOptions {
  std::string segment;  // path of the file that the ranks share
  int ranks = 2;
  tools::BenchKind kind;
  DataType type = DataType::float32;
  std::vector<size_t> sizes;     // bytes of the whole vector
  std::string transport;         // Ropewalk: as of ROPEWALK_TRANSPORT; Gloo: tcp or verbs
  std::string interface = "lo";  // Gloo and raw TCP: the adapter
  std::string variant;           // of the contender: an algorithm, a kind of measurement
  bool registered = true;        // Ropewalk: kind of memory
  bool shared_cores = false;     // ranks of other hosts run on the same cores
  double budget_ms = 250;        // measured time for each size
  int warm_ups = 5;
  int iterations_min = 5;
};

/// Prints what is wrong, or the help, and exits.
PeerOptions parse_options(int argc, char** argv);

/// What main does: runs `run`, and names `program` in the text of what it throws.
int run_program(const char* program, int (*run)(int argc, char** argv), int argc, char** argv);

/// This process's rank, as `ropewalk run` or an MPI launcher gave it; 0 without one.
int launched_rank();

}  // namespace ropewalk::peers
