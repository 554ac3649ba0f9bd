#include "simulate/job_network.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <thread>
#include <utility>

#include "base/log.h"
#include "simulate/plan.h"

namespace ropewalk {
namespace {

constexpr size_t kMiB = 1 << 20;

Network network_at_200mbit(const std::string& words) {
  return network_of_template(words + ":rate=0.2gbit:latency=100us:overhead=5us", 0);
}
Network with_slow_host() {
  Network network = network_at_200mbit("flat:hosts=8");
  network.links[7].s_per_byte *= 4;
  return network;
}
Network unequal_hosts() {
  Network network = network_at_200mbit("flat:hosts=4");
  for (int i = 0; i < 4; ++i) network.hosts[static_cast<size_t>(i)].ranks = i + 1;
  return network;
}

/// As a job asks, whose planner knows no more than that there are hosts.
PlanRequest asked(const Network& network, Collective collective, size_t bytes) {
  PlanRequest request;
  request.collective = collective;
  request.bytes = bytes;
  request.ranks = network.ranks();
  request.hosts = network.host_of_rank();
  return request;
}

PlanDecision decision_on(JobNetwork& known, Collective collective, size_t bytes,
                         Algorithm forced = Algorithm::automatic) {
  PlanRequest request = asked(known.network(), collective, bytes);
  request.forced = forced;
  request.made = known.find(request);
  request.simulated = known.simulated(request);
  return choose(request);
}

/// In place of standard error, a pipe that holds up whoever writes to it, until `end`.
class FullPipe {
 public:
  FullPipe() : error_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC | O_NONBLOCK), 0);
    while (write(ends_[1], "x", 1) == 1) {
    }
    EXPECT_EQ(fcntl(ends_[1], F_SETFL, 0), 0);
    dup2(ends_[1], STDERR_FILENO);
    set_log_level(LogLevel::info);
  }
  template <class Future>
  void end(const Future& writer) {
    using namespace std::chrono_literals;
    set_log_level(LogLevel::warn);
    char text[4096];
    do {
      while (read(ends_[0], text, sizeof text) > 0) {
      }
    } while (writer.wait_for(1ms) != std::future_status::ready);
    dup2(error_, STDERR_FILENO);
    for (const int fd : {error_, ends_[0], ends_[1]}) close(fd);
  }

 private:
  const int error_;
  int ends_[2] = {};
};

/// That it has slept for some milliseconds.
bool sleeps(pid_t thread) {
  for (int look = 0; look < 10; ++look) {
    std::string id, name, state;
    std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat") >> id >> name >> state;
    if (state != "S") return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class JobNetworks : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_synthesize()) GTEST_SKIP() << "without Boost.Graph";
  }
};

TEST_F(JobNetworks, ChooseWhatWasMadeWhereHostsDiffer) {
  using enum Collective;
  for (const Network& network : {network_at_200mbit("racks:2x4:uplink=16"), with_slow_host()}) {
    JobNetwork known(network, 0);
    for (const size_t bytes : {kMiB, 8 * kMiB, 32 * kMiB}) {
      const PlanDecision decision = decision_on(known, all_reduce, bytes);
      EXPECT_EQ(decision.algorithm, Algorithm::synthesized) << bytes;
      EXPECT_FALSE(known.schedule(all_reduce, 0, bytes).steps.empty());
      Routes routes(network);
      const double least_s = least_seconds(network, all_reduce, 0, bytes);
      EXPECT_GE(1e-6 * decision.predicted_us, least_s);
      // Of 1 MiB the engine is faster than simulated: 0.93 of the bound in tools/netlab.
      EXPECT_LT(1e-6 * decision.predicted_us, least_s / (bytes == kMiB ? 0.89 : 0.9));
    }
    // What takes no longer otherwise is left to algorithms.
    EXPECT_NE(decision_on(known, all_reduce, 4096).algorithm, Algorithm::synthesized);
    EXPECT_NE(decision_on(known, all_to_all, 8 * kMiB).algorithm, Algorithm::synthesized);
  }
}

// The progress of the whole job waited, since a start looks up under the engine's lock.
TEST_F(JobNetworks, TellWhatWasMadeWhileOthersAreMade) {
  using namespace std::chrono_literals;
  JobNetwork known(with_slow_host(), 0);
  ASSERT_TRUE(known.find(asked(known.network(), Collective::all_reduce, 8 * kMiB)));
  FullPipe pipe;
  std::atomic<pid_t> maker{0};
  const auto made = std::async(std::launch::async, [&] {
    maker = gettid();
    known.find(asked(known.network(), Collective::reduce_scatter, 8 * kMiB));  // tells of it
  });
  while (maker == 0 || !sleeps(maker)) std::this_thread::sleep_for(1ms);
  const auto found = std::async(std::launch::async, [&] {
    return known.schedule(Collective::all_reduce, 0, 8 * kMiB).steps.size();
  });
  const bool is_found = found.wait_for(30s) == std::future_status::ready;
  const bool is_made = made.wait_for(0s) == std::future_status::ready;
  pipe.end(made);
  EXPECT_TRUE(is_found);
  EXPECT_FALSE(is_made);
}

// Of which direct alone competes: others are for more ranks.
TEST_F(JobNetworks, SimulateNothingThatIsNotToBeCompared) {
  const Network network = with_slow_host();
  JobNetwork known(network, 0);
  for (const Collective collective : {Collective::all_to_all, Collective::gather}) {
    EXPECT_TRUE(known.simulated(request_on(network, collective, 0, 8 * kMiB)).empty());
  }
  EXPECT_FALSE(known.simulated(request_on(network, Collective::all_reduce, 0, 8 * kMiB)).empty());
}

TEST_F(JobNetworks, LetSimulationChooseAmongAlgorithmsWhereHostsDiffer) {
  for (const Network& network :
       {network_at_200mbit("racks:2x4:uplink=4"), with_slow_host(), unequal_hosts()}) {
    JobNetwork known(network, 0);
    for (size_t bytes = 1 << 10; bytes < 64 << 10; bytes *= 4) {
      const PlanDecision decision = decision_on(known, Collective::all_reduce, bytes);
      const auto is_eligible = [&](const SimulatedTime& one) {
        return std::ranges::find(decision.candidates, one.algorithm, &Candidate::algorithm)
            ->eligible;
      };
      const auto all = known.simulated(asked(network, Collective::all_reduce, bytes));
      const auto best = std::ranges::find_if(all, is_eligible);  // fastest first
      ASSERT_NE(best, all.end());
      EXPECT_DOUBLE_EQ(1e-6 * decision.predicted_us, best->seconds) << bytes;
    }
    EXPECT_TRUE(known.simulated(asked(network, Collective::all_reduce, 8)).empty());
  }
  JobNetwork uniform(network_at_200mbit("flat:hosts=8"), 0);
  EXPECT_TRUE(uniform.simulated(asked(uniform.network(), Collective::all_reduce, 4096)).empty());
}

// Eight hosts in two racks, whose uplink is a link: recursive doubling sends four messages over it
// at once, and direct sixteen. What calls were measured to take, while limiters of the links had
// something saved up, does not outweigh that.
TEST_F(JobNetworks, CallsMeasuredOnIdleLinksDoNotHideSharedOnes) {
  JobNetwork known(network_at_200mbit("racks:2x4:uplink=4"), 0);
  PlanRequest request = asked(known.network(), Collective::all_reduce, 4096);
  request.cost.inter = {100e-6, 5e-6, 40e-9};
  for (const auto& [algorithm, seconds] : {std::pair(Algorithm::recursive_doubling, 100e-6),
                                           {Algorithm::direct, 400e-6},
                                           {Algorithm::tree, 450e-6}})
    request.times.push_back({Collective::all_reduce, algorithm, 4096, seconds});
  EXPECT_EQ(choose(request).algorithm, Algorithm::recursive_doubling);
  request.simulated = known.simulated(request);
  EXPECT_NE(choose(request).algorithm, Algorithm::recursive_doubling);
  request.bytes = 64 << 10;
  request.simulated = known.simulated(request);
  EXPECT_NE(choose(request).algorithm, Algorithm::direct);
}

// Where many ranks share few CPUs, an algorithm of many messages takes long for short calls,
// whatever links are like: 4 KiB on 16 ranks took five times as long by direct as by leaders.
TEST_F(JobNetworks, WhatCallsWaitForCpusIsAddedToWhatLinksTake) {
  JobNetwork known(unequal_hosts(), 0);
  PlanRequest request = asked(known.network(), Collective::all_reduce, 4096);
  request.cost.inter = {100e-6, 5e-6, 40e-9};
  request.simulated = known.simulated(request);
  const auto by = [&](Algorithm algorithm) {
    const PlanDecision decision = choose(request);
    return std::ranges::find(decision.candidates, algorithm, &Candidate::algorithm)->predicted_us;
  };
  const double direct_us = by(Algorithm::direct), leaders_us = by(Algorithm::leaders);
  request.times = {{Collective::all_reduce, Algorithm::direct, 8, 9e-3},
                   {Collective::all_reduce, Algorithm::leaders, 8, 3e-3}};
  EXPECT_GT(by(Algorithm::direct), direct_us + 5000);
  EXPECT_GT(by(Algorithm::leaders), leaders_us);
  EXPECT_LT(by(Algorithm::leaders), leaders_us + 3000);
}

TEST_F(JobNetworks, LeaveToAlgorithmsWhatTheyDoAsWell) {
  JobNetwork known(unequal_hosts(), 0);  // two_level reaches the bound
  EXPECT_NE(decision_on(known, Collective::all_reduce, 8 * kMiB).algorithm, Algorithm::synthesized);
}

// All hosts are alike, and first adapters at one switch: these were taken to be uniform.
TEST_F(JobNetworks, CompareWhereSeveralSwitchesJoinHosts) {
  JobNetwork fat_tree(network_of_template("fat-tree:k=4", 0), 0);
  EXPECT_EQ(decision_on(fat_tree, Collective::all_reduce, 8 * kMiB).algorithm,
            Algorithm::synthesized);
  JobNetwork rail(network_of_template("rail:hosts=4:gpus=4:uplink=8", 0), 0);
  EXPECT_EQ(decision_on(rail, Collective::broadcast, 64 * kMiB).algorithm, Algorithm::synthesized);
  EXPECT_FALSE(rail.simulated(request_on(rail.network(), Collective::all_reduce, 0, kMiB)).empty());
}

TEST_F(JobNetworks, ChooseNothingMadeWhereItGainsNothing) {
  for (const char* words :
       {"flat:hosts=8", "flat:hosts=4:ranks=2", "racks:2x4:uplink=1", "torus:2x3"}) {
    JobNetwork known(network_at_200mbit(words), 0);
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
          Collective::broadcast, Collective::reduce})
      for (size_t bytes = 8; bytes <= 64 * kMiB; bytes *= 16)
        EXPECT_NE(decision_on(known, collective, bytes).algorithm, Algorithm::synthesized)
            << words << ", " << name_of(collective) << " of " << bytes;
    EXPECT_EQ(decision_on(known, Collective::all_reduce, kMiB, Algorithm::synthesized).algorithm,
              Algorithm::synthesized);
  }
}

TEST_F(JobNetworks, AnswerAlikeOnAllRanks) {
  const Network network = network_at_200mbit("racks:2x3:uplink=16:ranks=2");
  JobNetwork first(network, 0), last(network, 11);
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast}) {
    PlanRequest request = asked(network, collective, 3 * kMiB);
    request.root = 7;
    const auto a = first.find(request), b = last.find(request);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->predicted_s, b->predicted_s);
    EXPECT_EQ(a->otherwise_s, b->otherwise_s);
    EXPECT_EQ(a->slice_bytes, b->slice_bytes);
    EXPECT_EQ(first.schedule(collective, 7, 3 * kMiB).rank, 0);
    EXPECT_EQ(last.schedule(collective, 7, 3 * kMiB).rank, 11);
    EXPECT_EQ(first.schedule(collective, 7, 3 * kMiB).blocks,
              last.schedule(collective, 7, 3 * kMiB).blocks);
  }
}

TEST_F(JobNetworks, MakeForLargeJobsWhatIsForced) {
  JobNetwork known(network_at_200mbit("racks:2x80:uplink=640"), 3);
  EXPECT_NE(decision_on(known, Collective::all_reduce, kMiB).algorithm, Algorithm::synthesized);
  const PlanDecision forced =
      decision_on(known, Collective::broadcast, kMiB, Algorithm::synthesized);
  EXPECT_EQ(forced.algorithm, Algorithm::synthesized);
  EXPECT_EQ(known.schedule(Collective::broadcast, 0, kMiB).rank, 3);
}

TEST_F(JobNetworks, LongVectorsHaveMoreChunks) {
  JobNetwork known(with_slow_host(), 0);
  const auto blocks = [&](size_t bytes) {
    decision_on(known, Collective::all_reduce, bytes);
    return known.schedule(Collective::all_reduce, 0, bytes).blocks;
  };
  const int few = blocks(64 << 10), many = blocks(8 * kMiB);
  EXPECT_GE(many, 8 * few);
  EXPECT_EQ(blocks(64 << 10), few);  // both are kept
}

TEST_F(JobNetworks, SimulateWhatWasMade) {
  const Network network = network_at_200mbit("racks:2x4:uplink=16");
  JobNetwork known(network, 1);
  Routes routes(network);
  known.find(asked(network, Collective::all_reduce, kMiB));
  for (const size_t bytes : {kMiB, 3 * kMiB}) {  // that was compared, and another
    const SimulatedSynthesis simulated = known.simulate(Collective::all_reduce, 0, bytes);
    const SimulatedSynthesis anew =
        simulate_synthesized(routes, request_on(network, Collective::all_reduce, 0, bytes));
    EXPECT_EQ(simulated.why_not, "");
    EXPECT_EQ(simulated.call, anew.call);
    EXPECT_EQ(simulated.slice_bytes, anew.slice_bytes);
    // To the nanosecond: it is that of the choice.
    EXPECT_EQ(simulated.made.proof_s,
              known.simulate(Collective::all_reduce, 0, bytes + 8).made.proof_s);
    EXPECT_NE(simulated.made.proof_s, anew.made.proof_s);
  }
  JobNetwork large(network_at_200mbit("racks:2x80:uplink=640"), 3, JobNetwork::Keep::all_schedules);
  EXPECT_GT(large.simulate(Collective::broadcast, 0, kMiB).call.ps, 0);
}

TEST_F(JobNetworks, OfPartsAreOfTheirHosts) {
  JobNetwork known(network_at_200mbit("racks:2x4:uplink=16"), 0);
  const auto across = known.part({5, 1, 2, 6}, 2);
  ASSERT_NE(across, nullptr);
  EXPECT_EQ(across->network().ranks(), 4);
  EXPECT_EQ(
      decision_on(*across, Collective::all_reduce, 8 * kMiB, Algorithm::synthesized).algorithm,
      Algorithm::synthesized);
  EXPECT_EQ(across->schedule(Collective::all_reduce, 0, 8 * kMiB).rank, 2);
  EXPECT_EQ(known.part({3}, 0), nullptr);
}

TEST(JobNetworksOfAnyBuild, TellWhyNot) {
  JobNetwork known(network_of_template("flat:hosts=1:ranks=4", 0), 0);
  PlanRequest request = asked(known.network(), Collective::all_reduce, kMiB);
  request.forced = Algorithm::synthesized;
  const auto made = known.find(request);
  ASSERT_TRUE(made);
  EXPECT_NE(made->why_not, "");
  request.forced = Algorithm::ring;
  EXPECT_FALSE(known.find(request));
}

}  // namespace
}  // namespace ropewalk
