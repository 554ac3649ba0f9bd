// Schedules that were made for networks, run by the real engine on a fake one under seeded delays,
// reorderings and full queues: every collective, lengths from nothing on, in place or not.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "engine/executors.h"
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

/// The call of `c`, started on all ranks, by the schedules of `made`; on `other_rank`, if there is
/// one, by that of `other`.
class MadeCall {
 public:
  MadeCall(const Synthesized& made, const Case& c, uint64_t seed,
           const Synthesized* other = nullptr, int other_rank = -1)
      : random_(seed), job_(c.ranks, seed, random_options(random_, c.ranks, false)) {
    for (int rank = 0; rank < c.ranks; ++rank) {
      buffers_.push_back(std::make_unique<RankBuffers>(
          c, rank, [this](size_t bytes) { return memory_.emplace_back(bytes + 1).data(); }));
      buffers_.back()->fill();
      const Synthesized& own = rank == other_rank ? *other : made;
      operations_.push_back(job_.engine(rank).prepare(buffers_.back()->call(),
                                                      own.schedules[static_cast<size_t>(rank)],
                                                      Algorithm::synthesized, kSliceBytes));
    }
    for (int rank = 0; rank < c.ranks; ++rank)
      job_.engine(rank).start(*operations_[static_cast<size_t>(rank)]);
  }
  /// What is wrong with the result; empty: nothing.
  std::string run() {
    std::string wrong = job_.run(
        [this](int rank) {
          return operations_[static_cast<size_t>(rank)]->state == Operation::State::done;
        },
        [](int) {});
    for (int rank = 0; rank < job_.ranks(); ++rank) {
      wrong += buffers_[static_cast<size_t>(rank)]->check();
      if (const Failure* failure = this->failure(rank)) wrong += failure->text();
    }
    return wrong;
  }
  /// Until all ranks have failed. Why they do not, if they hang.
  std::string run_until_failed() {
    return job_.run([](int) { return false; }, [](int) {});
  }
  /// By how many steps the rank that is most ahead of itself is, at any time: what it has sent of
  /// before its oldest step has ended. Requires calls that are not short.
  int run_and_find_most_ahead() {
    int most = 0;
    job_.run(
        [&](int rank) {
          const Operation& operation = *operations_[static_cast<size_t>(rank)];
          most = std::max(most, ahead(dynamic_cast<PipelinedExecutor&>(*operation.executor)));
          return operation.state == Operation::State::done;
        },
        [](int) {});
    return most;
  }
  const Failure* failure(int rank) { return job_.engine(rank).failures().failure(); }

 private:
  static int ahead(const PipelinedExecutor& executor) {
    const std::vector<StepState>& steps = executor.steps();
    const auto has_ended = [](const StepState& step) { return step.done == step.slices; };
    const auto oldest = std::ranges::find_if_not(steps, has_ended) - steps.begin();
    int most = 0;
    for (auto i = oldest; i < std::ssize(steps); ++i)
      if (steps[static_cast<size_t>(i)].issued > 0) most = static_cast<int>(i - oldest);
    return most;
  }

  std::mt19937_64 random_;
  SimulatedJob job_;
  std::deque<std::vector<std::byte>> memory_;
  std::vector<std::unique_ptr<RankBuffers>> buffers_;
  std::vector<std::shared_ptr<Operation>> operations_;
};

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
      const Forest forest = make_forest(routes, collective, root);
      // With more a job takes longer than it may here, where each message is late.
      const Synthesized made =
          write_schedules(forest, std::min(chunks_max(forest), 32), kChunksAhead);
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
            ASSERT_EQ(MadeCall(made, c, seed).run(), "") << c.text();
          }
    }
  }
}

TEST(Synthesized, NoRankSendsFarAheadOfItsOldestStep) {
  if (!can_synthesize()) GTEST_SKIP() << "without Boost.Graph";
  const Network network = slow_host();
  Routes routes(network);
  const Forest forest = make_forest(routes, Collective::all_reduce, 0);
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const Case c{Collective::all_reduce,
                 Algorithm::synthesized,
                 DataType::float32,
                 ReduceKind::sum,
                 network.ranks(),
                 seed % 2 == 0 ? size_t{70'001} : size_t{400'001},
                 0,
                 true,
                 false};
    const auto most_ahead = [&](const Synthesized& made) {
      return MadeCall(made, c, seed).run_and_find_most_ahead();
    };
    const Synthesized near = write_schedules(forest, 16, 1);
    EXPECT_LT(most_ahead(near), near.schedules[0].steps_ahead_max) << seed;
    EXPECT_EQ(MadeCall(near, c, seed).run(), "") << seed;
    EXPECT_GT(most_ahead(write_schedules(forest, 16, 16)), near.schedules[0].steps_ahead_max)
        << seed;
  }
}

/// As a rank of another build may make it of the same description.
TEST(Synthesized, AnotherScheduleOnOneRankIsAMismatchOnAll) {
  if (!can_synthesize()) GTEST_SKIP() << "without Boost.Graph";
  const Network network = network_of_template("racks:2x3:uplink=16", 0);
  const Network changed = network_of_template("racks:3x2:uplink=16", 0);
  Routes routes(network), other_routes(changed);
  const int ranks = network.ranks(), root = 1;
  uint64_t seed = 0;
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
        Collective::broadcast, Collective::reduce}) {
    const Synthesized made = synthesize(routes, collective, root);
    const Synthesized other = synthesize(other_routes, collective, root);
    ASSERT_NE(made.schedules[0].digest, other.schedules[0].digest);
    for (const size_t count : {size_t{0}, size_t{5}, size_t{70001}})
      for (const int odd : {0, root, ranks - 1})
        for (const bool uneven : {false, true}) {
          if (uneven && !traits_of(collective).has_parts()) continue;
          const Case c{collective,
                       Algorithm::synthesized,
                       DataType::float32,
                       ReduceKind::sum,
                       ranks,
                       count,
                       root,
                       false,
                       uneven};
          MadeCall call(made, c, ++seed, &other, odd);
          ASSERT_EQ(call.run_until_failed(), "") << c.text();
          for (int rank = 0; rank < ranks; ++rank) {
            const Failure* failure = call.failure(rank);
            ASSERT_NE(failure, nullptr) << c.text();
            EXPECT_EQ(failure->code, ErrorCode::mismatch) << failure->text();
            EXPECT_TRUE(failure->rank == odd || failure->peer == odd) << failure->text();
            EXPECT_NE(failure->text().find("made different schedules"), std::string::npos)
                << failure->text();
            EXPECT_NE(failure->advice.find("same build"), std::string::npos);
          }
        }
  }
}

}  // namespace
}  // namespace ropewalk::testing
