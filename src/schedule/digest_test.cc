#include <gtest/gtest.h>

#include <set>

#include "schedule/schedule.h"

namespace ropewalk {
namespace {

std::vector<Schedule> direct_schedules(int ranks) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < ranks; ++rank)
    schedules.push_back(
        build_schedule({Collective::all_reduce, Algorithm::direct, ranks, 0, {}}, rank));
  return schedules;
}

TEST(Digest, DiffersWhereAnyStepDoes) {
  const std::vector<Schedule> schedules = direct_schedules(3);
  const uint64_t digest = digest_of(schedules);
  EXPECT_EQ(digest_of(direct_schedules(3)), digest);
  // The half that travels, too, and of all changes.
  std::set<uint32_t> seen{static_cast<uint32_t>(digest)};
  size_t changes = 0;
  for (size_t rank = 0; rank < schedules.size(); ++rank)
    for (size_t i = 0; i < schedules[rank].steps.size(); ++i)
      for (int field = 0; field < 5; ++field) {
        std::vector<Schedule> changed = schedules;
        Step& step = changed[rank].steps[i];
        if (field == 0) step.op = static_cast<StepOp>((static_cast<int>(step.op) + 1) % 5);
        if (field == 1) step.lane ^= 1;
        if (field == 2) step.peer += 1;
        if (field == 3) step.block += 1;
        if (field == 4) step.from += 1;
        EXPECT_NE(digest_of(changed), digest);
        seen.insert(static_cast<uint32_t>(digest_of(changed)));
        ++changes;
      }
  EXPECT_GT(changes, 30u);
  EXPECT_EQ(seen.size(), 1 + changes);
}

TEST(Digest, DiffersWhereOrderOrShapeDoes) {
  const std::vector<Schedule> schedules = direct_schedules(3);
  std::set<uint64_t> seen{digest_of(schedules)};
  const auto expect_new = [&](auto change) {
    std::vector<Schedule> changed = schedules;
    change(changed);
    EXPECT_TRUE(seen.insert(digest_of(changed)).second) << seen.size();
  };
  expect_new([](auto& all) { std::swap(all[0], all[1]); });
  expect_new([](auto& all) { std::swap(all[1].steps[0], all[1].steps[1]); });
  expect_new([](auto& all) { all[2].steps.pop_back(); });
  expect_new([](auto& all) { all[2].steps.push_back(all[2].steps.back()); });
  expect_new([](auto& all) { all[1].blocks += 1; });
  expect_new([](auto& all) { all[1].scratch += 1; });
  expect_new([](auto& all) { all[1].owners.at(0) += 1; });
  expect_new([](auto& all) { all[1].owners.clear(); });
  expect_new([](auto& all) { all.pop_back(); });
}

/// The words of a schedule, as docs/protocol.md says.
TEST(Digest, IsThatOfTheDocument) {
  const Schedule schedule{.ranks = 2,
                          .rank = 1,
                          .blocks = 3,
                          .scratch = 0,
                          .steps = {{StepOp::recv_reduce, 1, 0, 2, -1}},
                          .owners = {}};
  uint64_t expected = 0x9e3779b97f4a7c15;
  const std::vector<uint64_t> words{0x00000001'00000002, 0x00000000'00000003, 0x00000000'00000001,
                                    0x00000000'00000103, 0xffffffff'00000002};
  for (const uint64_t word : words) {
    expected = (expected ^ word) * 0x9fb21c651e98df25;
    expected ^= expected >> 32;
  }
  EXPECT_EQ(digest_of({schedule}), expected);
}

}  // namespace
}  // namespace ropewalk
