// The network of a job, as it was described, and the schedules that are made for it.
//
// Each rank makes them itself, when a call first wants one: `synthesize` gives equal schedules for
// equal descriptions, so that nothing has to be sent or agreed upon, and what a rank runs it has
// proven itself. Builds that differ may make others: a digest of all ranks' schedules is in the
// signature of each call, so that their ranks fail with a mismatch. To spread them instead would
// take a collective in the middle of another one's preparation, and of 1,024 ranks the others would
// wait as long as the one that makes them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "network/routes.h"
#include "planner/planner.h"
#include "simulate/synthesized.h"

namespace ropewalk {

/// Thread-safe: who makes something holds up others who want something made, but nobody who looks
/// up what was made. Equal on all ranks, except for `rank`.
class JobNetwork {
 public:
  enum class Keep { own_schedule, all_schedules };
  /// `network`, whose ranks are the job's. Rank 0 logs what was made, at level info. To keep all
  /// ranks' schedules takes much memory where there are many.
  JobNetwork(Network network, int rank, Keep keep = Keep::own_schedule);
  JobNetwork(const JobNetwork&) = delete;
  JobNetwork& operator=(const JobNetwork&) = delete;

  const Network& network() const { return network_; }
  /// Of some of its ranks, the `rank`th of which is this one. Null where it says nothing of them.
  std::shared_ptr<JobNetwork> part(const std::vector<int>& ranks, int rank) const;

  /// What the planner is to know of schedules for `request`; nothing where they are out of the
  /// question. Makes and proves one where that may gain, or is forced: which of 1,024 ranks takes
  /// seconds, once for each collective, root and number of chunks. Unforced also simulates it and
  /// the algorithms, once for each power of two of bytes.
  std::optional<MadeSchedule> find(const PlanRequest& request);
  /// What algorithms take, fastest first: simulated once for each power of two of bytes. Nothing
  /// where the network is uniform or large, where one is forced, and of calls so short that it is
  /// not links that they wait for.
  std::vector<SimulatedTime> simulated(const PlanRequest& request);
  /// This rank's, for calls of so many bytes in all. Requires that `find` has told of such a call,
  /// root and length. Valid as long as this.
  const Schedule& schedule(Collective collective, int root, size_t bytes);
  /// All ranks', and what they take: made and simulated now where they were not before. Requires
  /// that all are kept, or that the network is small (synthesizes_by_default).
  SimulatedSynthesis simulate(Collective collective, int root, size_t bytes);

 private:
  /// For calls of so many chunks.
  struct Made {
    Synthesized all;  // without schedules, unless they are simulated or kept
    double made_s = 0;
    Schedule own;
    int partners = 0;
    std::map<size_t, SimulatedCall> calls;  // by bytes; of those that were compared
  };
  struct Packing {
    Forest forest;
    double made_s = 0;
    std::string why_not;         // empty: there is one
    std::map<int, Made> chunks;  // by their number
  };

  /// Of a packing, what is not changed any more.
  struct Finished {
    const Packing* packing = nullptr;
    std::map<int, const Schedule*> own;  // by number of chunks
  };

  Packing& find_or_pack(Collective collective, int root);
  Packing pack(Collective collective, int root);
  int chunks_of(const Packing& packing, size_t bytes) const;
  /// Requires that there is a forest.
  Made& find_or_write(Packing& packing, size_t bytes);
  Made write(const Packing& packing, int chunks) const;
  /// Of no time where it, or no algorithm, can be simulated.
  const SimulatedCall& call_of(Made& made, size_t bytes);
  /// Fastest first.
  const std::vector<SimulatedTime>& algorithms_on(Collective collective, int root, size_t bytes);
  static int root_of(Collective collective, int root);

  const Network network_;
  const int rank_;
  const bool is_uniform_, synthesizes_by_default_, keeps_all_;
  std::mutex making_mutex_;  // while something is made or simulated; guards what follows
  Routes routes_;
  std::map<std::pair<Collective, int>, Packing> packings_;  // by collective and root
  std::map<std::tuple<Collective, int, size_t>, std::vector<SimulatedTime>>
      algorithms_;             // and bytes
  std::mutex finished_mutex_;  // taken after that, for a few lines
  std::map<std::pair<Collective, int>, Finished> finished_;
};

}  // namespace ropewalk
