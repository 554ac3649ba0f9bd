#include <array>
#include <map>

#include "schedule/test_support.h"

namespace ropewalk {
namespace {

constexpr Algorithm kRecursiveDoubling = Algorithm::recursive_doubling;

TEST(RecursiveDoubling, FourRanks) {
  const ScheduleKey key{Collective::all_reduce, kRecursiveDoubling, 4, 0, {}};
  EXPECT_EQ(text_of(build_schedule(key, 1)), "=>0:0 =<0:1 0+=1 =>3:0 =<3:1 0+=1");
  EXPECT_EQ(build_schedule(key, 1).blocks, 1);
  EXPECT_EQ(build_schedule(key, 1).scratch, 1);
}

TEST(RecursiveDoubling, FiveRanksFoldTheFirstPair) {
  const ScheduleKey key{Collective::all_reduce, kRecursiveDoubling, 5, 0, {}};
  EXPECT_EQ(text_of(build_schedule(key, 0)), "+>1:0 =<1:0");
  EXPECT_EQ(text_of(build_schedule(key, 1)), "+<0:0 =>2:0 =<2:1 0+=1 =>3:0 =<3:1 0+=1 =>0:0");
}

// Adds floating numbers for which order matters, as the steps say, round by round.
TEST(RecursiveDoubling, EveryRankGetsTheSameBits) {
  for (int ranks : {2, 3, 4, 6, 7, 8, 13, 16}) {
    const std::vector<Schedule> schedules =
        build_all({Collective::all_reduce, kRecursiveDoubling, ranks, 0, {}});
    std::vector<std::array<float, 2>> value(static_cast<size_t>(ranks));
    for (size_t r = 0; r < value.size(); ++r)
      value[r][0] = (r % 3 == 0 ? 1e8f : 0.1f) / static_cast<float>(r + 1);
    std::vector<size_t> next(schedules.size(), 0);
    std::map<std::pair<int, int>, std::vector<float>> wire;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < schedules.size(); ++r)
        while (next[r] < schedules[r].steps.size()) {
          const Step& step = schedules[r].steps[next[r]];
          float& block = value[r][static_cast<size_t>(step.block)];
          if (step.op == StepOp::reduce)
            block += value[r][static_cast<size_t>(step.from)];
          else if (is_send(step.op))
            wire[{static_cast<int>(r), step.peer}].push_back(block);
          else {
            auto& queue = wire[{step.peer, static_cast<int>(r)}];
            if (queue.empty()) break;
            block = step.op == StepOp::recv_reduce ? block + queue.front() : queue.front();
            queue.erase(queue.begin());
          }
          ++next[r];
          moved = true;
        }
    }
    for (const auto& blocks : value) EXPECT_EQ(blocks[0], value[0][0]) << ranks;
  }
}

TEST(RecursiveDoubling, RoundsAreLogarithmic) {
  EXPECT_EQ(verify({Collective::all_reduce, kRecursiveDoubling, 64, 0, {}}, 0).rounds, 6);
  EXPECT_EQ(verify({Collective::all_gather, kRecursiveDoubling, 64, 0, {}}, 0).rounds, 6);
  EXPECT_EQ(verify({Collective::barrier, kRecursiveDoubling, 1000, 0, {}}, 1).rounds, 9 + 2);
}

TEST(RecursiveDoubling, AllGatherSendsEachBlockOnce) {
  for (int ranks : {2, 3, 6, 11}) {
    const VerifyReport report =
        verify({Collective::all_gather, kRecursiveDoubling, ranks, 0, {}}, 0);
    EXPECT_TRUE(report.ok()) << text_of(report);
    EXPECT_DOUBLE_EQ(report.sent_max, (ranks - 1.0) / ranks);
  }
}

TEST(RecursiveDoubling, IsCorrectBeyondTheUsualSizes) {
  for (int ranks : {127, 128, 129})
    for (Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::barrier})
      expect_correct({collective, kRecursiveDoubling, ranks, 0, {}});
}

}  // namespace
}  // namespace ropewalk
