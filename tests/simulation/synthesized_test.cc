// Schedules that were made for networks, run by the real engine on a fake one under seeded delays,
// reorderings and full queues: every collective, lengths from nothing on, in place or not.
#include <gtest/gtest.h>

#include <deque>

#include "synthesize/synthesize.h"
#include "tests/simulation/random_cases.h"
#include "tests/simulation/simulated_job.h"
#include "tests/support/cases.h"

namespace ropewalk::testing {
namespace {

Network unequal_hosts() {
  Network network = network_of_template("flat:hosts=3", 0);
  for (int i = 0; i < 3; ++i) network.hosts[static_cast<size_t>(i)].ranks = i + 1;
  return network;
}
Network slow_host() {
  Network network = network_of_template("flat:hosts=4", 0);
  network.links[3].s_per_byte *= 4;
  return network;
}

/// What is wrong with the result of `c`; empty: nothing.
std::string run_made(const Synthesized& made, const Case& c, uint64_t seed) {
  std::mt19937_64 random(seed);
  SimulatedJob job(c.ranks, seed, random_options(random, c.ranks, false));
  std::deque<std::vector<std::byte>> memory;
  std::vector<std::unique_ptr<RankBuffers>> buffers;
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < c.ranks; ++rank) {
    buffers.push_back(std::make_unique<RankBuffers>(
        c, rank, [&memory](size_t bytes) { return memory.emplace_back(bytes + 1).data(); }));
    buffers.back()->fill();
    operations.push_back(job.engine(rank).prepare(buffers.back()->call(),
                                                  made.schedules[static_cast<size_t>(rank)],
                                                  Algorithm::synthesized, kSliceBytes));
  }
  for (int rank = 0; rank < c.ranks; ++rank)
    job.engine(rank).start(*operations[static_cast<size_t>(rank)]);
  std::string wrong = job.run(
      [&](int rank) {
        return operations[static_cast<size_t>(rank)]->state == Operation::State::done;
      },
      [](int) {});
  for (int rank = 0; rank < c.ranks; ++rank) {
    wrong += buffers[static_cast<size_t>(rank)]->check();
    const Failure* failure = job.engine(rank).failures().failure();
    if (failure != nullptr) wrong += failure->text();
  }
  return wrong;
}

TEST(Synthesized, RunsInTheEngine) {
  if (!can_synthesize()) GTEST_SKIP() << "without Boost.Graph";
  uint64_t seed = 0;
  for (const Network& network :
       {network_of_template("racks:2x3:uplink=16", 0), unequal_hosts(), slow_host()}) {
    Routes routes(network);
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
          Collective::broadcast, Collective::reduce}) {
      const int ranks = network.ranks(), root = ranks - 2;
      const Synthesized made = synthesize(routes, collective, root);
      const auto fewer_than_trees = static_cast<size_t>(made.trees) / 2;
      for (const size_t count :
           {size_t{0}, size_t{1}, fewer_than_trees, size_t{1021}, size_t{70001}})
        for (const bool in_place : {false, true})
          for (const bool uneven : {false, true}) {
            if (uneven && !traits_of(collective).has_parts()) continue;
            ++seed;
            const Case c{collective,
                         Algorithm::synthesized,
                         seed % 2 == 0 ? DataType::float32 : DataType::int64,
                         ReduceKind::sum,
                         ranks,
                         count,
                         root,
                         in_place,
                         uneven};
            ASSERT_EQ(run_made(made, c, seed), "") << c.text();
          }
    }
  }
}

}  // namespace
}  // namespace ropewalk::testing
