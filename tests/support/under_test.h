// What a test program tries, from its environment: suite rdma runs the same programs over verbs, in
// a slow machine.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

namespace ropewalk::testing {

/// TEST_TRANSPORT, or "tcp" and "shm".
inline std::vector<std::string> transports_under_test() {
  if (const char* only = std::getenv("TEST_TRANSPORT")) return {only};
  return {"tcp", "shm"};
}

/// From 1 to TEST_RANKS_MAX, or to 9.
inline std::vector<int> rank_counts_under_test() {
  const char* most = std::getenv("TEST_RANKS_MAX");
  std::vector<int> counts;
  for (int ranks = 1; ranks <= (most != nullptr ? std::atoi(most) : 9); ++ranks)
    counts.push_back(ranks);
  return counts;
}

/// How many times as long as usual things may take here: TEST_SLOWNESS, or 1. For machines that are
/// emulated.
inline double slowness() {
  const char* text = std::getenv("TEST_SLOWNESS");
  return text != nullptr ? std::atof(text) : 1;
}

/// How many ranks a test is to kill: TEST_KILLS, or as many as `usual`.
inline int kills_under_test(int usual) {
  const char* text = std::getenv("TEST_KILLS");
  return text != nullptr ? std::atoi(text) : usual;
}

}  // namespace ropewalk::testing
