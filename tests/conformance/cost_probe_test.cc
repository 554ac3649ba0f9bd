// What links and short calls cost is measured, and all ranks hear the same.
#include "communicator/cost_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "communicator/algorithm_probe.h"
#include "engine/layout.h"
#include "ropewalk/status.h"
#include "tests/local_world.h"

namespace ropewalk {
namespace {

Costs constants() {
  return {.model = {.intra = {1e-6, 2e-7, 1e-10},
                    .inter = {7e-6, 3e-6, 5e-10},
                    .reduce_s_per_byte = 1e-10}};
}

/// What every rank hears.
std::vector<Costs> measured(const std::vector<int>& hosts) {
  std::vector<Costs> heard(hosts.size());
  testing::run_ranks(static_cast<int>(hosts.size()), "tcp", [&](Communicator& comm) {
    heard[static_cast<size_t>(comm.rank())] = measure_costs(comm, hosts, constants());
  });
  return heard;
}

TEST(CostProbe, AllRanksHearTheSame) {
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{
           {0, 1}, {0, 1, 2}, {0, 0, 1, 2, 2}, {3, 1, 3, 1, 0, 0, 0}, {0, 1, 2, 3, 4, 5}}) {
    const std::vector<Costs> heard = measured(hosts);
    EXPECT_EQ(heard[0].inter, CostSource::probe);
    EXPECT_GT(heard[0].model.inter.latency_s + heard[0].model.inter.overhead_s, 0);
    EXPECT_GT(heard[0].model.inter.s_per_byte, 0);
    EXPECT_NE(heard[0].model.inter.s_per_byte, constants().model.inter.s_per_byte);
    EXPECT_GT(heard[0].model.reduce_s_per_byte, 0);
    EXPECT_TRUE(heard[0].model.intra == constants().model.intra);
    for (const Costs& costs : heard) EXPECT_TRUE(costs == heard[0]);
  }
}

TEST(CostProbe, SlowLinksPartRacks) {
  using Racks = std::vector<int>;
  EXPECT_EQ(racks_between({false, false, false}), Racks());
  EXPECT_EQ(racks_between({false, true, false}), Racks());  // the ring goes round the other way
  EXPECT_EQ(racks_between({false, true, false, true}), (Racks{0, 0, 1, 1}));
  EXPECT_EQ(racks_between({false, true, true, false, false}), (Racks{0, 0, 1, 0, 0}));
  EXPECT_EQ(racks_between({true, false, false, true}), (Racks{0, 1, 1, 1}));
  EXPECT_EQ(racks_between({true, true, true}), (Racks{0, 1, 2}));
}

// One link that other processes held up set the latency of all: on 16 hosts that share two CPUs
// recursive_doubling, the fastest, was not even tried.
TEST(CostProbe, OneLinkThatWasHeldUpDoesNotStandForAll) {
  EXPECT_EQ(latency_of({20e-6, 0, 30e-6, 0, 90e-6, 0, 25e-6, 0}), 30e-6);  // 0: not known
  EXPECT_EQ(latency_of({20e-6, 0, 30e-6, 10e-3, 25e-6, 10e-3}), 10e-3);    // another place
  EXPECT_EQ(latency_of({0, 0}), 0);
}

TEST(CostProbe, ThereIsNoneWithinAHost) {
  for (const Costs& costs : measured({0, 0, 0})) EXPECT_TRUE(costs == constants());
}

TEST(CostProbe, ARankThatEndsMeanwhileIsNamed) {
  std::mutex mutex;
  std::vector<Failure> failures;
  const auto body = [&](Communicator& comm) {
    if (comm.rank() == 2) comm.abort("no more");
    try {
      measure_costs(comm, {0, 1, 2, 3}, constants());
    } catch (const Error& error) {
      std::lock_guard lock(mutex);
      failures.push_back(error.failure());
    }
  };
  testing::run_ranks(4, "tcp", body);
  ASSERT_EQ(failures.size(), 4u);
  for (const Failure& failure : failures) {
    EXPECT_EQ(failure.code, ErrorCode::aborted);
    EXPECT_EQ(failure.peer, 2);
  }
}

PlanDecision decision_of(const Call& call, int ranks, const std::vector<MeasuredTime>& times) {
  PlanRequest request;
  request.collective = call.collective;
  request.ranks = ranks;
  request.bytes = total_bytes(call, ranks);
  request.cost = constants().model;
  request.times = times;
  request.forced = call.algorithm;
  return choose(request);
}

TEST(AlgorithmProbe, AllRanksHearTheSame) {
  for (const int ranks : {2, 3, 5}) {
    std::vector<std::vector<MeasuredTime>> heard(static_cast<size_t>(ranks));
    testing::run_ranks(ranks, "tcp", [&](Communicator& comm) {
      const auto plan = [&](const Call& call, const std::vector<MeasuredTime>& times) {
        return decision_of(call, ranks, times);
      };
      heard[static_cast<size_t>(comm.rank())] = time_short_calls(comm, plan);
    });
    std::set<Algorithm> tried;
    std::set<Collective> collectives;
    for (const MeasuredTime& time : heard[0]) {
      EXPECT_GT(time.seconds, 0);
      if (time.bytes == 8) tried.insert(time.algorithm);
      collectives.insert(time.collective);
    }
    EXPECT_GE(tried.size(), 2u);
    EXPECT_TRUE(collectives.contains(Collective::all_reduce));
    collectives.erase(Collective::reduce_scatter);  // where there was time for it
    EXPECT_EQ(collectives.size(), 1u);
    EXPECT_TRUE(std::ranges::is_sorted(heard[0], {}, &MeasuredTime::bytes));
    for (const auto& times : heard) EXPECT_EQ(times, heard[0]);
  }
}

// A limiter that lets some KiB pass at once made algorithms faster that send more.
TEST(AlgorithmProbe, NothingIsFasterThanItsBytesOnTheLink) {
  testing::run_ranks(2, "tcp", [&](Communicator& comm) {
    const auto plan = [&](const Call& call, const std::vector<MeasuredTime>&) {
      PlanDecision decision = decision_of(call, 2, {});
      for (Candidate& candidate : decision.candidates)
        if (candidate.algorithm == Algorithm::ring) candidate.link_us = 123'456;
      return decision;
    };
    int rings = 0;
    for (const MeasuredTime& time : time_short_calls(comm, plan))
      if (time.algorithm == Algorithm::ring) {
        ++rings;
        EXPECT_DOUBLE_EQ(time.seconds, 0.123456);
      }
    EXPECT_GT(rings, 0);
  });
}

TEST(AlgorithmProbe, TriesNothingWhereThatWouldTakeLong) {
  testing::run_ranks(3, "tcp", [&](Communicator& comm) {
    const auto plan = [&](const Call& call, const std::vector<MeasuredTime>&) {
      PlanDecision decision = decision_of(call, 3, {});
      for (Candidate& candidate : decision.candidates) candidate.predicted_us = 20'000;
      decision.predicted_us = 20'000;
      return decision;
    };
    EXPECT_TRUE(time_short_calls(comm, plan).empty());
  });
}

}  // namespace
}  // namespace ropewalk
