#include "planner/planner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/planner_testing.h"
#include "ropewalk/status.h"
#include "schedule/algorithm.h"
#include "schedule/verify.h"

namespace ropewalk {
namespace {

PlanRequest mapped_question(Collective collective, size_t bytes, int ranks) {
  PlanRequest q = request(collective, bytes, ranks, ranks);
  q.mapped = true;
  return q;
}

bool is_bandwidth_optimal(Algorithm algorithm) {
  return algorithm == Algorithm::ring || algorithm == Algorithm::direct ||
         algorithm == Algorithm::halving_doubling;
}

TEST(Planner, MappedAllReduceIsDirectUnlessShort) {
  const auto decision = [](size_t bytes, int ranks) {
    return chosen(mapped_question(Collective::all_reduce, bytes, ranks));
  };
  for (int ranks : {2, 3, 4, 8, 16})
    for (size_t bytes = 1024; bytes <= size_t{1} << 32; bytes *= 2)
      EXPECT_EQ(decision(bytes, ranks), Algorithm::direct) << ranks << " ranks, " << bytes;
  for (int ranks : {2, 3, 4})
    EXPECT_EQ(decision(8, ranks), Algorithm::one_shot) << ranks << " ranks";
}

/// On one host, in rows of `row`.
PlanRequest crowd(size_t bytes, int ranks, int row, double ranks_per_cpu) {
  PlanRequest q = mapped_question(Collective::all_reduce, bytes, ranks);
  for (int rank = 0; rank < ranks; ++rank) q.rows.push_back(rank / row);
  q.ranks_per_cpu = ranks_per_cpu;
  return q;
}

TEST(Planner, ManyRanksOfAHostHaveFewPartners) {
  for (int ranks : {64, 192, 512})
    for (double ranks_per_cpu : {1.0, 32.0})
      for (size_t bytes : {size_t{8}, 4 * kKiB, 256 * kKiB}) {
        const PlanDecision decision = choose(crowd(bytes, ranks, 8, ranks_per_cpu));
        EXPECT_LE(decision.candidates[0].partners, 7 + (ranks + 7) / 8)
            << ranks << " ranks, " << bytes << ": " << name_of(decision.algorithm);
      }
  EXPECT_EQ(chosen(crowd(256 * kKiB, 64, 8, 1)), Algorithm::grid);
  EXPECT_EQ(chosen(crowd(8, 64, 8, 32)), Algorithm::recursive_doubling);
}

// A rank of 1,024 that talked to every other needed more open files than it may have.
TEST(Planner, ManyHostsHaveFewPartners) {
  using enum Collective;
  for (int ranks : {8, 201, 1024, 2601, 2602, 4096})
    for (Collective collective : {all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather,
                                  scatter, all_to_all, barrier})
      for (size_t bytes : {size_t{8}, 256 * kKiB, 128 * kMiB}) {
        const PlanDecision decision = choose(request(collective, bytes, ranks, 1));
        EXPECT_LE(decision.candidates[0].partners, kPartnersMax)
            << ranks << " ranks, " << name_of(collective) << " of " << bytes << ": "
            << name_of(decision.algorithm);
        EXPECT_TRUE(decision.candidates[0].eligible);
      }
  for (Collective collective : {gather, scatter, all_to_all}) {
    EXPECT_EQ(chosen(request(collective, kMiB, 201, 1)), Algorithm::direct);
    EXPECT_NE(chosen(request(collective, kMiB, 202, 1)), Algorithm::direct);
  }
  // Mapped memory takes no open files.
  EXPECT_EQ(chosen(mapped_question(scatter, 64 * kMiB, 202)), Algorithm::direct);
  EXPECT_EQ(chosen(mapped_question(all_to_all, 64 * kMiB, 202)), Algorithm::direct);
  // Nearly a vector would lie at ranks on the way.
  EXPECT_EQ(chosen(request(all_to_all, 129 * kMiB, 1024, 1)), Algorithm::direct);
  EXPECT_EQ(chosen(request(gather, 129 * kMiB, 1024, 1)), Algorithm::binomial);
}

// What is long is moved once, whatever the connections take.
TEST(Planner, LongVectorsOfManyRanksOfAHostAreDirect) {
  EXPECT_EQ(chosen(crowd(256 * kMiB, 64, 8, 1)), Algorithm::direct);
}

TEST(Planner, SmallAllReduceOverTcpTakesFewestRounds) {
  for (int ranks : {2, 4, 16, 64})
    for (size_t bytes : {size_t{1}, size_t{8}, kKiB})
      EXPECT_EQ(chosen(request(Collective::all_reduce, bytes, ranks, 1)),
                Algorithm::recursive_doubling)
          << ranks << " ranks, " << bytes << " bytes";
  // Three ranks fold one in and out, which one_shot does not need.
  EXPECT_EQ(chosen(request(Collective::all_reduce, 8, 3, 1)), Algorithm::one_shot);
}

TEST(Planner, LargeAllReduceOverTcpMovesFewestBytes) {
  for (int ranks : {2, 3, 4, 16, 64})
    EXPECT_TRUE(is_bandwidth_optimal(chosen(request(Collective::all_reduce, 64 * kMiB, ranks, 1))))
        << ranks;
}

// Constants took direct or halving_doubling here, which lost up to half to the ring.
TEST(Planner, LargeAllReduceOverSlowLinksIsARing) {
  for (int hosts : {3, 4, 8, 16})
    for (size_t bytes : {kMiB, 8 * kMiB, 32 * kMiB})
      EXPECT_EQ(chosen(slow_network(bytes, hosts)), Algorithm::ring) << hosts << ", " << bytes;
  EXPECT_EQ(chosen(slow_network(8, 8)), Algorithm::recursive_doubling);
}

// Short blocks to one rank travel as one message.
TEST(Planner, HalvingAndDoublingHasFewMessagesWhereTheyAreShort) {
  PlanRequest q = slow_network(4096, 8);
  q.cost.inter = {10e-6, 50e-6, 40e-9};  // what a message costs its sender counts most
  for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
    q.collective = collective;
    EXPECT_EQ(chosen(q), Algorithm::halving_doubling);
  }
}

// All senders of an all_reduce at once: what is short does not collide.
TEST(Planner, ShortBlocksDoNotCollide) {
  EXPECT_EQ(chosen(slow_network(64 * kKiB, 8)), Algorithm::direct);
  EXPECT_EQ(chosen(slow_network(256 * kKiB, 8)), Algorithm::ring);
}

// Seven hosts and one whose link is a quarter as fast: what passes it is half of a ring's.
TEST(Planner, ASlowHostIsARackOfItsOwn) {
  PlanRequest q = slow_network(8 * kMiB, 8);
  ASSERT_EQ(chosen(q), Algorithm::ring);
  q.racks = {0, 0, 0, 1, 0, 0, 0, 0};
  q.cost.racks_s_per_byte = 4 * q.cost.inter.s_per_byte;
  const PlanDecision decision = choose(q);
  EXPECT_EQ(decision.algorithm, Algorithm::racks);
  EXPECT_EQ(decision.key(q).hosts, q.racks);
  EXPECT_GT(predicted_us(decision, Algorithm::ring), 1.5 * decision.predicted_us);
  q.cost.racks_s_per_byte = 1.1 * q.cost.inter.s_per_byte;
  EXPECT_EQ(chosen(q), Algorithm::ring);
}

TEST(Planner, SlicesOfSlowLinksAreShort) {
  EXPECT_EQ(choose(slow_network(8 * kMiB, 8)).slice_bytes, 256 * kKiB);
  EXPECT_EQ(choose(slow_network(kMiB, 16)).slice_bytes, 16 * kKiB);
  EXPECT_EQ(choose(request(Collective::all_reduce, 8 * kMiB, 8, 1)).slice_bytes, 512 * kKiB);
}

TEST(Planner, SeveralRanksPerHostTakeTwoLevels) {
  for (size_t bytes : {256 * kKiB, kMiB})
    EXPECT_EQ(chosen(request(Collective::all_reduce, bytes, 64, 8)), Algorithm::two_level);
  for (size_t bytes : {size_t{8}, 8 * kKiB})
    EXPECT_EQ(chosen(request(Collective::all_reduce, bytes, 64, 8)), Algorithm::leaders);
}

TEST(Planner, LongBroadcastsArePipelined) {
  const Algorithm algorithm = chosen(request(Collective::broadcast, 64 * kMiB, 16, 1));
  EXPECT_TRUE(algorithm == Algorithm::tree || algorithm == Algorithm::ring);
  EXPECT_EQ(chosen(request(Collective::broadcast, 8, 4, 1)), Algorithm::direct);
  EXPECT_EQ(chosen(request(Collective::broadcast, 8, 256, 1)), Algorithm::tree);
}

TEST(Planner, PredictionsGrowWithBytes) {
  for (int c = 0; c < kCollectives; ++c)
    for (Algorithm algorithm : algorithms_for(static_cast<Collective>(c)))
      for (int per_host : {1, 4, 16}) {
        double before = 0;
        for (size_t bytes = 8; bytes <= 256 * kMiB; bytes *= 8) {
          PlanRequest q = request(static_cast<Collective>(c), bytes, 16, per_host);
          q.forced = algorithm;
          const double now = choose(q).predicted_us;
          EXPECT_GT(now, 0.8 * before)
              << name_of(static_cast<Collective>(c)) << " " << name_of(algorithm) << " " << bytes;
          before = now;
        }
      }
}

TEST(Planner, SlicesStayWithinTheirLimits) {
  for (int c = 0; c < kCollectives; ++c)
    for (Algorithm algorithm : algorithms_for(static_cast<Collective>(c)))
      for (size_t bytes = 1; bytes <= size_t{1} << 32; bytes *= 4)
        for (size_t setting : {size_t{1000}, 48 * kKiB, 256 * kKiB}) {
          PlanRequest q = request(static_cast<Collective>(c), bytes, 6, 3);
          q.forced = algorithm;
          q.slice_bytes_max = setting;
          const size_t slice = choose(q).slice_bytes;
          EXPECT_LE(slice, setting);
          EXPECT_EQ(slice % 64, 0u);
          EXPECT_GE(slice, 64u);
        }
}

TEST(Planner, LongBlocksAreCutWithinTheSetting) {
  const auto slice_of = [](size_t bytes) {
    return choose(request(Collective::all_reduce, bytes, 4, 1)).slice_bytes;
  };
  EXPECT_EQ(slice_of(64 * kMiB), 1 * kMiB);
  EXPECT_EQ(slice_of(4 * kMiB), 512 * kKiB);
}

// Staging memory is made of slots as long as a slice.
TEST(Planner, SlicesAreNoLongerThanBlocks) {
  PlanRequest q = request(Collective::all_reduce, 400'000, 4, 1);
  q.forced = Algorithm::ring;
  EXPECT_EQ(choose(q).slice_bytes, 100'032u);
  q.bytes = 8;
  EXPECT_EQ(choose(q).slice_bytes, 64u);
  const PlanRequest mapped = mapped_question(Collective::all_reduce, 64 * kKiB, 8);
  EXPECT_LE(choose(mapped).slice_bytes, 8 * kKiB + 64);
}

TEST(Planner, MappedSlicesFitIntoHalfOfL2Together) {
  PlanRequest q = mapped_question(Collective::all_reduce, 64 * kMiB, 4);
  EXPECT_EQ(choose(q).slice_bytes, 64 * kKiB);
  q.l2_bytes = 256 * kKiB;
  EXPECT_EQ(choose(q).slice_bytes, 32 * kKiB);
  q.ranks = 64;
  q.hosts.assign(64, 0);
  EXPECT_EQ(choose(q).slice_bytes, 16 * kKiB);
}

TEST(Planner, ForcedAlgorithmIsTaken) {
  for (Algorithm algorithm : algorithms_for(Collective::all_reduce)) {
    PlanRequest q = request(Collective::all_reduce, kMiB, 4, 4);
    q.forced = algorithm;
    EXPECT_EQ(chosen(q), algorithm);
    EXPECT_EQ(choose(q).candidates.size(), algorithms_for(Collective::all_reduce).size());
  }
}

TEST(Planner, ForcedAlgorithmThatIsNotThereIsAnError) {
  PlanRequest q = request(Collective::reduce, kMiB, 4, 1);
  q.forced = Algorithm::halving_doubling;
  try {
    choose(q);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_EQ(error.failure().advice, "use auto or one of: ring, tree, direct, scattered");
    EXPECT_NE(error.failure().reason.find("halving_doubling"), std::string::npos);
  }
  q.collective = Collective::send;
  EXPECT_THROW(choose(q), Error);
}

/// What was made takes 1 s; the best algorithm `otherwise_s`, on the network that is described.
PlanRequest with_made(double otherwise_s) {
  PlanRequest q = request(Collective::all_reduce, 8 * kMiB, 8, 1);
  q.made = MadeSchedule{.predicted_s = 1,
                        .otherwise_s = otherwise_s,
                        .slice_bytes = 16 * kKiB,
                        .partners = 5,
                        .told = "12 trees",
                        .why_not = ""};
  return q;
}

TEST(Planner, TakesWhatWasMadeForTheNetworkWhereItGains) {
  for (const double otherwise_s : {0.0, 0.9, 1.0, 1.049})
    EXPECT_NE(chosen(with_made(otherwise_s)), Algorithm::synthesized) << otherwise_s;
  const PlanDecision decision = choose(with_made(1.06));
  EXPECT_EQ(decision.algorithm, Algorithm::synthesized);
  EXPECT_EQ(decision.slice_bytes, 16 * kKiB);
  EXPECT_EQ(decision.predicted_us, 1e6);
  EXPECT_EQ(decision.candidates.front().reason, "12 trees");
  EXPECT_EQ(decision.candidates.front().partners, 5);
  // Closed forms say that others are faster: they know less.
  EXPECT_LT(decision.candidates[1].predicted_us, decision.predicted_us);
}

TEST(Planner, TakesWhatWasMadeForTheNetworkByForce) {
  PlanRequest q = with_made(0);
  q.forced = Algorithm::synthesized;
  EXPECT_EQ(chosen(q), Algorithm::synthesized);
  q = with_made(2);
  q.forced = Algorithm::ring;
  EXPECT_EQ(chosen(q), Algorithm::ring);
  q = with_made(2);
  q.collective = Collective::all_to_all;
  EXPECT_NE(chosen(q), Algorithm::synthesized);
}

TEST(Planner, TellsWhyNothingWasMadeForTheNetwork) {
  const auto refusal = [](const PlanRequest& q) {
    try {
      choose(q);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      return error.failure().reason + "; " + error.failure().advice;
    }
    return std::string();
  };
  PlanRequest q = with_made(2);
  q.made->why_not = "all hosts are alike";
  const PlanDecision decision = choose(q);
  EXPECT_NE(decision.algorithm, Algorithm::synthesized);
  const auto candidate =
      std::ranges::find(decision.candidates, Algorithm::synthesized, &Candidate::algorithm);
  ASSERT_NE(candidate, decision.candidates.end());
  EXPECT_FALSE(candidate->eligible);
  EXPECT_EQ(candidate->reason, "passed over: all hosts are alike");
  q.forced = Algorithm::synthesized;
  EXPECT_NE(refusal(q).find("all hosts are alike"), std::string::npos);
  q.made.reset();
  EXPECT_NE(refusal(q).find("ROPEWALK_NETWORK=FILE"), std::string::npos);
  q.collective = Collective::gather;
  EXPECT_NE(refusal(q).find("there is no algorithm 'synthesized'"), std::string::npos);
}

TEST(Planner, ExplainsEveryCandidate) {
  const PlanDecision decision = choose(request(Collective::all_reduce, kMiB, 4, 4));
  ASSERT_EQ(decision.candidates.size(), 10u);
  EXPECT_EQ(decision.candidates.front().algorithm, decision.algorithm);
  for (const Candidate& candidate : decision.candidates) {
    EXPECT_FALSE(candidate.reason.empty());
    EXPECT_GT(candidate.predicted_us, 0);
    const GroupedBy grouped_by = descriptor_of(candidate.algorithm).grouped_by;
    EXPECT_EQ(candidate.eligible, grouped_by == GroupedBy::nothing);
  }
}

TEST(Planner, EqualQuestionsGiveEqualAnswers) {
  const PlanRequest q = request(Collective::all_gather, 12345, 7, 2);
  const PlanDecision a = choose(q), b = choose(PlanRequest(q));
  EXPECT_EQ(a.algorithm, b.algorithm);
  EXPECT_EQ(a.slice_bytes, b.slice_bytes);
  EXPECT_EQ(a.predicted_us, b.predicted_us);
}

TEST(Planner, EveryCollectiveWorksFromOneRankUp) {
  for (int c = 0; c < kCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (algorithms_for(collective).empty()) continue;
    for (int ranks = 1; ranks <= 9; ++ranks)
      for (int per_host : {1, 2, 9}) {
        const PlanRequest q = request(collective, 0, ranks, per_host);
        const PlanDecision decision = choose(q);
        EXPECT_NO_THROW(build_schedule(decision.key(q), 0));
        EXPECT_GE(decision.predicted_us, 0);
      }
  }
}

}  // namespace
}  // namespace ropewalk
