// Which transports a test program tries: suite rdma runs the same programs over verbs.
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

}  // namespace ropewalk::testing
