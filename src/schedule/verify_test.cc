#include "schedule/verify.h"

#include <algorithm>
#include <functional>
#include <set>

#include "schedule/test_support.h"

namespace ropewalk {
namespace {

bool has(const VerifyReport& report, Flaw flaw) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [flaw](const Finding& finding) { return finding.flaw == flaw; });
}

// `ropewalk verify` goes up to 64 ranks; here a part of that, so that the test takes a second.
TEST(Verify, EveryScheduleIsCorrect) {
  for (const ScheduleKey& key : keys_to_verify(1, 20))
    for (int credits : {0, 1, 3, kInListOrder}) {
      const VerifyReport report = verify(key, credits);
      ASSERT_TRUE(report.ok()) << describe(key) << ", credits " << credits << "\n"
                               << text_of(report);
    }
}

TEST(Verify, KeysCoverAlgorithmsRootsAndShapes) {
  const std::vector<ScheduleKey> keys = keys_to_verify(9, 9);
  std::set<std::pair<Collective, Algorithm>> pairs;
  std::set<int> roots;
  std::set<std::vector<int>> shapes;
  for (const ScheduleKey& key : keys) {
    pairs.emplace(key.collective, key.algorithm);
    roots.insert(key.root);
    shapes.insert(key.hosts);
  }
  EXPECT_EQ(pairs.size(), 36u);
  EXPECT_EQ(roots, (std::set<int>{0, 1, 8}));
  EXPECT_EQ(shapes.size(), 7u);  // six, and none for the algorithms that do not ask
}

// Mutations: break a correct schedule in every place, in every way, and see that it shows.

using Schedules = std::vector<Schedule>;
/// Changes the step, or returns false where that cannot be or changes nothing that matters.
using Mutation = std::function<bool(Schedule&, size_t step)>;

void expect_noticed(const char* name, const Mutation& mutate) {
  int tried = 0;
  for (const ScheduleKey& key : keys_to_verify(5, 5)) {
    // Whole contributions may be added up in any order and place: what is broken is often right.
    if (key.algorithm == Algorithm::one_shot) continue;
    const Schedules correct = build_all(key);
    for (size_t r = 0; r < correct.size(); ++r)
      for (size_t i = 0; i < correct[r].steps.size(); ++i) {
        Schedules broken = correct;
        if (!mutate(broken[r], i)) continue;
        ++tried;
        for (int credits : {0, 2})
          ASSERT_FALSE(verify(key, broken, credits).ok())
              << name << ": " << describe(key) << ", rank " << r << ", step " << i << ", credits "
              << credits << "\n"
              << text_of(correct[r]) << "\n"
              << text_of(broken[r]);
      }
  }
  EXPECT_GT(tried, 100) << name;
}

TEST(VerifyMutation, DroppedStep) {
  expect_noticed("drop", [](Schedule& schedule, size_t i) {
    schedule.steps.erase(schedule.steps.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  });
}

TEST(VerifyMutation, RepeatedStep) {
  expect_noticed("repeat", [](Schedule& schedule, size_t i) {
    const Step step = schedule.steps[i];
    schedule.steps.insert(schedule.steps.begin() + static_cast<std::ptrdiff_t>(i), step);
    return true;
  });
}

TEST(VerifyMutation, OtherPeer) {
  expect_noticed("peer", [](Schedule& schedule, size_t i) {
    Step& step = schedule.steps[i];
    if (step.op == StepOp::reduce) return false;
    step.peer = (step.peer + 1) % schedule.ranks;
    return true;
  });
}

TEST(VerifyMutation, PeerOutOfRange) {
  expect_noticed("peer range", [](Schedule& schedule, size_t i) {
    schedule.steps[i].peer = schedule.ranks;
    return true;
  });
}

TEST(VerifyMutation, OtherBlock) {
  expect_noticed("block", [](Schedule& schedule, size_t i) {
    Step& step = schedule.steps[i];
    const int blocks = schedule.blocks + schedule.scratch;
    const int block = (step.block + 1) % blocks;
    if (block == step.block) return false;
    step.block = block;
    return true;
  });
}

TEST(VerifyMutation, BlockOutOfRange) {
  expect_noticed("block range", [](Schedule& schedule, size_t i) {
    schedule.steps[i].block = i % 2 == 0 ? -1 : schedule.blocks + schedule.scratch;
    return true;
  });
}

TEST(VerifyMutation, OtherLane) {
  expect_noticed("lane", [](Schedule& schedule, size_t i) {
    if (schedule.steps[i].op == StepOp::reduce) return false;
    schedule.steps[i].lane ^= 1;
    return true;
  });
}

TEST(VerifyMutation, LaneOutOfRange) {
  expect_noticed("lane range", [](Schedule& schedule, size_t i) {
    schedule.steps[i].lane = kLanes;
    return true;
  });
}

TEST(VerifyMutation, OtherOp) {
  expect_noticed("op", [](Schedule& schedule, size_t i) {
    StepOp& op = schedule.steps[i].op;
    switch (op) {
      case StepOp::send_copy:
        op = StepOp::send_reduce;
        return true;
      case StepOp::send_reduce:
        op = StepOp::send_copy;
        return true;
      case StepOp::recv_copy:
        op = StepOp::recv_reduce;
        return true;
      case StepOp::recv_reduce:
        op = StepOp::recv_copy;
        return true;
      case StepOp::reduce:
        return false;
    }
    return false;
  });
}

// Two neighbours change places where their order means something: the steps share a FIFO, or a
// block that one of them writes. Sums of one block may be taken in any order.
TEST(VerifyMutation, SwappedSteps) {
  expect_noticed("swap", [](Schedule& schedule, size_t i) {
    if (i + 1 >= schedule.steps.size()) return false;
    Step &a = schedule.steps[i], &b = schedule.steps[i + 1];
    const bool both_send = is_send(a.op) && is_send(b.op),
               both_recv = is_recv(a.op) && is_recv(b.op);
    const bool same_fifo = (both_send || both_recv) && a.peer == b.peer && a.lane == b.lane;
    const bool both_add = a.op == StepOp::recv_reduce && b.op == StepOp::recv_reduce;
    const bool same_block = a.block == b.block && !both_send && !both_add;
    if (!same_fifo && !same_block) return false;
    std::swap(a, b);
    return true;
  });
}

// Findings by name, each from the smallest schedule that has it.

const ScheduleKey kPair{Collective::all_reduce, Algorithm::direct, 2, 0, {}};

Schedules pair_of(std::vector<Step> first, std::vector<Step> second, int blocks = 1) {
  return {{2, 0, blocks, 0, std::move(first), {}}, {2, 1, blocks, 0, std::move(second), {}}};
}

TEST(VerifyFinding, DeadlockTellsWhoWaitsForWhom) {
  // Each wants to receive before it sends.
  const std::vector<Step> a = {{StepOp::recv_reduce, 0, 1, 0, -1},
                               {StepOp::send_reduce, 0, 1, 0, -1}};
  const std::vector<Step> b = {{StepOp::recv_reduce, 0, 0, 0, -1},
                               {StepOp::send_reduce, 0, 0, 0, -1}};
  for (int credits : {0, 1}) {
    const VerifyReport report = verify(kPair, pair_of(a, b), credits);
    ASSERT_TRUE(has(report, Flaw::deadlock)) << text_of(report);
    EXPECT_NE(report.findings[0].text.find("waits for rank 1 step 1 (send_reduce 0 to 0 lane 0)"),
              std::string::npos)
        << report.findings[0].text;
  }
}

// Both send, then add into the block that is still being sent: the slots hide it, rendezvous not.
TEST(VerifyFinding, DeadlockUnderRendezvousOnly) {
  const std::vector<Step> a = {{StepOp::send_reduce, 0, 1, 0, -1},
                               {StepOp::recv_reduce, 0, 1, 0, -1}};
  const std::vector<Step> b = {{StepOp::send_reduce, 0, 0, 0, -1},
                               {StepOp::recv_reduce, 0, 0, 0, -1}};
  EXPECT_TRUE(has(verify(kPair, pair_of(a, b), 0), Flaw::deadlock));
  EXPECT_TRUE(verify(kPair, pair_of(a, b), 1).ok()) << text_of(verify(kPair, pair_of(a, b), 1));
}

// Rank 1 takes rank 0's first message only after rank 0 has got rid of its second: with room for
// one message nobody moves, with room for two both go on.
TEST(VerifyFinding, DeadlockForWantOfCredits) {
  const Schedules schedules = pair_of({{StepOp::send_copy, 0, 1, 0, -1},
                                       {StepOp::send_copy, 0, 1, 1, -1},
                                       {StepOp::recv_copy, 0, 1, 1, -1},
                                       {StepOp::send_copy, 1, 1, 1, -1}},
                                      {{StepOp::send_copy, 0, 0, 1, -1},
                                       {StepOp::recv_copy, 1, 0, 0, -1},
                                       {StepOp::recv_copy, 0, 0, 0, -1},
                                       {StepOp::recv_copy, 0, 0, 1, -1}},
                                      2);
  EXPECT_TRUE(has(verify(kPair, schedules, 0), Flaw::deadlock));
  EXPECT_TRUE(has(verify(kPair, schedules, 1), Flaw::deadlock));
  EXPECT_FALSE(has(verify(kPair, schedules, 2), Flaw::deadlock));
}

TEST(VerifyFinding, DuplicateContribution) {
  const std::vector<Step> a = {{StepOp::send_reduce, 0, 1, 0, -1},
                               {StepOp::send_reduce, 0, 1, 0, -1}};
  const std::vector<Step> b = {{StepOp::recv_reduce, 0, 0, 0, -1},
                               {StepOp::recv_reduce, 0, 0, 0, -1}};
  const VerifyReport report = verify(kPair, pair_of(a, b), 1);
  EXPECT_TRUE(has(report, Flaw::duplicate_contribution)) << text_of(report);
  EXPECT_TRUE(has(report, Flaw::missing_contribution)) << text_of(report);
  EXPECT_TRUE(has(report, Flaw::too_many_bytes)) << text_of(report);
}

TEST(VerifyFinding, MessagesThatDoNotMeet) {
  const std::vector<Step> send = {{StepOp::send_reduce, 0, 1, 0, -1}};
  EXPECT_TRUE(has(verify(kPair, pair_of(send, {}), 1), Flaw::unmatched_send));
  EXPECT_TRUE(
      has(verify(kPair, pair_of({}, {{StepOp::recv_copy, 0, 0, 0, -1}}), 1), Flaw::unmatched_recv));
  EXPECT_TRUE(
      has(verify(kPair, pair_of(send, {{StepOp::recv_copy, 0, 0, 0, -1}}), 1), Flaw::op_mismatch));
  EXPECT_TRUE(has(verify(kPair, pair_of(send, {{StepOp::recv_reduce, 0, 0, 1, -1}}, 2), 1),
                  Flaw::length_mismatch));
}

TEST(VerifyFinding, Content) {
  const ScheduleKey broadcast{Collective::broadcast, Algorithm::direct, 2, 0, {}};
  EXPECT_TRUE(has(verify(broadcast, pair_of({}, {}), 1), Flaw::wrong_content));
  EXPECT_TRUE(has(
      verify(broadcast,
             pair_of({{StepOp::recv_copy, 0, 1, 0, -1}}, {{StepOp::send_copy, 0, 0, 0, -1}}), 1),
      Flaw::undefined_content));
  const ScheduleKey all_to_all{Collective::all_to_all, Algorithm::direct, 2, 0, {}};
  EXPECT_TRUE(has(
      verify(all_to_all,
             pair_of({{StepOp::send_copy, 0, 1, 1, -1}}, {{StepOp::recv_copy, 0, 0, 0, -1}}, 4), 1),
      Flaw::input_overwritten));
}

TEST(VerifyFinding, Form) {
  Schedules schedules = build_all(kPair);
  schedules[1].blocks = 3;
  EXPECT_TRUE(has(verify(kPair, schedules, 1), Flaw::unequal_layout));
  schedules = build_all(kPair);
  schedules[1].steps[0].peer = 1;
  EXPECT_TRUE(has(verify(kPair, schedules, 1), Flaw::self_send));
}

TEST(VerifyFinding, TooManyRounds) {
  // An all_reduce that calls itself direct but is a chain there and back.
  const ScheduleKey key{Collective::all_reduce, Algorithm::direct, 3, 0, {}};
  const auto chain = [](int rank, std::vector<Step> steps) {
    return Schedule{3, rank, 1, 0, std::move(steps), {}};
  };
  const Schedules schedules = {
      chain(0, {{StepOp::send_reduce, 0, 1, 0, -1}, {StepOp::recv_copy, 0, 1, 0, -1}}),
      chain(1, {{StepOp::recv_reduce, 0, 0, 0, -1},
                {StepOp::send_reduce, 0, 2, 0, -1},
                {StepOp::recv_copy, 0, 2, 0, -1},
                {StepOp::send_copy, 0, 0, 0, -1}}),
      chain(2, {{StepOp::recv_reduce, 0, 1, 0, -1}, {StepOp::send_copy, 0, 1, 0, -1}})};
  EXPECT_TRUE(has(verify(key, schedules, 1), Flaw::too_many_rounds));
}

}  // namespace
}  // namespace ropewalk
