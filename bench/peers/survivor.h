// A rank of bench/compare --elastic, whatever library it measures: it sums until it is told to end,
// also after another rank has been killed. bench/peers/kill_ranks starts it, kills and measures.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ropewalk::peers {

struct SurvivorOptions {
  std::string folder;  // where ranks and kill_ranks tell each other by files; new for every job
  int ranks = 0;
  size_t bytes = 0;  // of a sum
  std::string transport;
};

/// Prints what is wrong, or the help, and exits.
SurvivorOptions parse_survivor_options(int argc, char** argv);

/// One rank's sums. The first element of each says whether a rank was told to end, so that all end
/// with the same sum.
class Survivor {
 public:
  /// `rank`: the first one, which names this process for good.
  Survivor(const SurvivorOptions& options, int rank);
  /// The vector to sum in place, filled anew: as `rank` of the present group.
  std::vector<float>& fill(int rank);
  /// What came of it, in a group of `size`; tells kill_ranks that the rank may be killed, or has
  /// recovered, where that is new. False: the end. Throws std::runtime_error where a sum is wrong.
  bool check(int size);

 private:
  void tell(const char* what) const;

  const SurvivorOptions options_;
  const int name_;
  std::vector<float> data_;
  int sums_ = 0;
  bool recovered_ = false;
};

}  // namespace ropewalk::peers
