// Calls that come again and again, on every rank of a simulated job: all ranks try the same in the
// same runs, whatever the network does, and no result is wrong.
#include "communicator/auto_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "schedule/algorithm.h"
#include "tests/simulation/simulated_job.h"

namespace ropewalk::testing {
namespace {

constexpr size_t kTunedSliceBytes = 8192, kPart = 2500;  // elements
constexpr int kRanks = 3;

/// `depth`: how many calls are under way at a time. Their vectors hold kRanks + 1 parts.
class TunedRank {
 public:
  TunedRank(SimulatedJob& job, int rank, size_t depth, Call (*call_of)(std::vector<uint32_t>&))
      : engine_(job.engine(rank)), tuner_(parts(rank, job.clock())), depth_(depth) {
    for (size_t i = 0; i < depth_; ++i) {
      data_.push_back(std::make_unique<std::vector<uint32_t>>((kRanks + 1) * kPart));
      const Call call = call_of(*data_.back());
      groups_.push_back(std::make_unique<Group>());
      groups_.back()->add(prepare(call, Algorithm::direct, kTunedSliceBytes));
      tuner_.attach(*groups_.back());
    }
    may_plan_ = false;
  }

  void step() {
    engine_.worker().tell_ended([](const Group*) {});
    Group& next = *groups_[started_ % depth_];
    if (started_ == wanted_ || !next.is_finished()) return;
    const auto awaited = next.awaited();
    if (awaited && !awaited->is_finished()) return;
    next.start(engine_);
    algorithms_.push_back(next.parts().front()->algorithm);
    ++started_;
  }
  void want(size_t runs) { wanted_ += runs; }
  bool done() const {
    return started_ == wanted_ &&
           std::ranges::all_of(groups_, [](const auto& group) { return group->is_finished(); });
  }

  /// Of the next run.
  std::vector<uint32_t>& data() { return *data_[started_ % depth_]; }
  /// By run.
  const std::vector<Algorithm>& algorithms() const { return algorithms_; }
  bool learns() const {
    return std::ranges::any_of(
        groups_, [](const auto& group) { return !group->parts().front()->kind->trials.is_over(); });
  }

 private:
  Schedule schedule_of(const Call& call, Algorithm algorithm) const {
    return build_schedule({call.collective, algorithm, kRanks, 0, {}}, engine_.links().rank());
  }
  std::shared_ptr<Operation> prepare(const Call& call, Algorithm algorithm, size_t slice_bytes) {
    return engine_.prepare(call, schedule_of(call, algorithm), algorithm, slice_bytes);
  }

  /// A planner that promises too much. It may take long, and is not asked under the engine's lock.
  PlanDecision plan(const Call& call) const {
    EXPECT_TRUE(may_plan_);
    PlanDecision decision{Algorithm::direct, kTunedSliceBytes, 5, {}};
    for (const Algorithm algorithm : algorithms_for(call.collective))
      if (descriptor_of(algorithm).passed_over(hosts_of({}, kRanks)).empty())
        decision.candidates.push_back({.algorithm = algorithm,
                                       .predicted_us = algorithm == Algorithm::direct ? 5.0 : 6.0,
                                       .partners = kRanks - 1,
                                       .reason = {}});
    return decision;
  }
  AutoTuner::Parts parts(int rank, const Clock& clock) {
    return {.rank = rank,
            .ranks = kRanks,
            .clock = &clock,
            .locked =
                [this](const std::function<void()>& body) {
                  const bool may_plan = std::exchange(may_plan_, false);
                  body();
                  may_plan_ = may_plan;
                },
            .plan = [this](const Call& call) { return plan(call); },
            .rebind =
                [this](Operation& op, Algorithm algorithm, size_t slice) {
                  engine_.rebind(op, schedule_of(op.call, algorithm), algorithm, slice);
                },
            .prepare = [this](const Call& call, Algorithm algorithm,
                              size_t slice) { return prepare(call, algorithm, slice); }};
  }

  Engine& engine_;
  AutoTuner tuner_;
  const size_t depth_;
  std::vector<std::unique_ptr<std::vector<uint32_t>>> data_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Algorithm> algorithms_;
  size_t started_ = 0, wanted_ = 0;
  bool may_plan_ = true;  // nothing has been started
};

class AutoTunerTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  /// Runs until nothing is learned any more; the algorithms that rank 0 tried.
  std::set<Algorithm> learn(Call (*call_of)(std::vector<uint32_t>&)) {
    FakeOptions options;
    options.full_probability = 0.1;
    SimulatedJob job(kRanks, GetParam(), options);
    std::vector<std::unique_ptr<TunedRank>> ranks;
    for (int rank = 0; rank < kRanks; ++rank)
      ranks.push_back(std::make_unique<TunedRank>(job, rank, 1 + GetParam() % 4, call_of));
    const auto of = [&](int rank) -> TunedRank& { return *ranks[static_cast<size_t>(rank)]; };
    for (int chunk = 0; chunk < 60; ++chunk) {
      for (auto& rank : ranks) rank->want(100);
      EXPECT_EQ(
          job.run([&](int rank) { return of(rank).done(); }, [&](int rank) { of(rank).step(); }),
          "");
      const Failure* failure = job.engine(0).failures().failure();
      EXPECT_EQ(failure, nullptr) << failure->text();
      if (failure != nullptr) return {};
    }
    for (int rank = 1; rank < kRanks; ++rank) {
      EXPECT_EQ(of(rank).algorithms(), of(0).algorithms());
      EXPECT_FALSE(of(rank).learns());
    }
    check_last(job, ranks);
    return {of(0).algorithms().begin(), of(0).algorithms().end()};
  }

  void check_last(SimulatedJob& job, std::vector<std::unique_ptr<TunedRank>>& ranks) {
    std::vector<std::vector<uint32_t>*> data;
    for (auto& rank : ranks) {
      data.push_back(&rank->data());
      std::ranges::fill(*data.back(), static_cast<uint32_t>(data.size()));
      rank->want(1);
    }
    const auto of = [&](int rank) -> TunedRank& { return *ranks[static_cast<size_t>(rank)]; };
    EXPECT_EQ(
        job.run([&](int rank) { return of(rank).done(); }, [&](int rank) { of(rank).step(); }), "");
    for (const std::vector<uint32_t>* result : data) {
      EXPECT_EQ(result->back(), is_sum_ ? 6u : 3u);
      EXPECT_EQ((*result)[kPart], is_sum_ ? 6u : 1u);
    }
  }

  bool is_sum_ = false;
};

TEST_P(AutoTunerTest, AllRanksTryTheSameInTheSameRuns) {
  const auto tried = learn([](std::vector<uint32_t>& data) {
    const std::span all(data);
    return Call::all_gather(all.first(kPart), all.subspan(kPart));
  });
  EXPECT_GE(tried.size(), 3u);
}

TEST_P(AutoTunerTest, IntegersMayBeAddedInAnyOrder) {
  is_sum_ = true;
  EXPECT_GE(learn([](std::vector<uint32_t>& data) { return Call::all_reduce(data); }).size(), 3u);
}

TEST_P(AutoTunerTest, SumsThatRoundKeepTheirOrder) {
  is_sum_ = true;  // of numbers so small that adding them is adding their bits
  const auto tried = learn([](std::vector<uint32_t>& data) {
    return Call::all_reduce(std::span(reinterpret_cast<float*>(data.data()), data.size()));
  });
  EXPECT_EQ(tried, std::set{Algorithm::direct});
}

INSTANTIATE_TEST_SUITE_P(Seeds, AutoTunerTest, ::testing::Range(uint64_t{1}, uint64_t{5}));

}  // namespace
}  // namespace ropewalk::testing
