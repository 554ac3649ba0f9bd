#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "ropewalk/status.h"
#include "schedule/builders.h"
#include "schedule/test_support.h"

namespace ropewalk {
namespace {

TEST(Registry, EveryCollectiveHasAnAlgorithmExceptPointToPoint) {
  for (int c = 0; c < kCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    const bool point_to_point = collective == Collective::send || collective == Collective::recv;
    EXPECT_EQ(algorithms_for(collective).empty(), point_to_point) << name_of(collective);
  }
}

TEST(Registry, AloneThereIsNothingToDo) {
  for (const ScheduleKey& key : keys_to_verify(1, 1)) {
    const Schedule schedule = build_schedule(key, 0);
    EXPECT_TRUE(schedule.steps.empty()) << describe(key);
    EXPECT_EQ(schedule.blocks, key.collective == Collective::all_to_all ? 2 : 1);
  }
}

TEST(Registry, EqualKeysGiveEqualSchedules) {
  for (const ScheduleKey& key : keys_to_verify(6, 6))
    EXPECT_EQ(build_schedule(key, 3).steps, build_schedule(ScheduleKey(key), 3).steps);
}

TEST(Registry, BlocksOfPartedCollectivesAreAMultipleOfRanks) {
  for (const ScheduleKey& key : keys_to_verify(2, 13)) {
    const Schedule schedule = build_schedule(key, 0);
    switch (key.collective) {
      case Collective::reduce_scatter:
      case Collective::all_gather:
      case Collective::gather:
      case Collective::scatter:
        EXPECT_EQ(schedule.blocks % key.ranks, 0) << describe(key);
        break;
      case Collective::all_to_all:
        EXPECT_EQ(schedule.blocks, 2 * key.ranks);
        break;
      default:
        EXPECT_GE(schedule.blocks, 1);
    }
  }
}

TEST(Registry, NobodyHasMorePartnersThanTheDescriptorSays) {
  for (const ScheduleKey& key : keys_to_verify(2, 20)) {
    size_t most = 0;
    for (const Schedule& schedule : build_all(key)) {
      std::set<int> partners;
      for (const Step& step : schedule.steps)
        if (step.peer >= 0) partners.insert(step.peer);
      most = std::max(most, partners.size());
    }
    const Hosts groups = hosts_of(key.hosts, key.ranks);
    const int said = descriptor_of(key.algorithm).partners(key.collective, groups);
    EXPECT_GE(said, static_cast<int>(most)) << describe(key);
    EXPECT_LT(said, key.ranks) << describe(key);
    EXPECT_LE(said, 2 * static_cast<int>(most) + 2) << describe(key);
  }
}

TEST(Registry, RefusesWhatIsNotThere) {
  const auto code_of = [](const ScheduleKey& key, int rank) {
    try {
      build_schedule(key, rank);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::ok;
  };
  EXPECT_EQ(code_of({Collective::gather, Algorithm::ring, 2, 0, {}}, 0), ErrorCode::unavailable);
  EXPECT_EQ(code_of({Collective::send, Algorithm::direct, 2, 0, {}}, 0), ErrorCode::unavailable);
  EXPECT_EQ(code_of({Collective::all_reduce, Algorithm::automatic, 2, 0, {}}, 0),
            ErrorCode::unavailable);
  EXPECT_EQ(code_of({Collective::broadcast, Algorithm::ring, 2, 2, {}}, 0),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of({Collective::broadcast, Algorithm::ring, 2, 0, {}}, -1),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of({Collective::all_reduce, Algorithm::two_level, 2, 0, {0}}, 0),
            ErrorCode::invalid_argument);
}

TEST(Registry, BuildingIsLinearInSteps) {
  for (Algorithm algorithm : algorithms_for(Collective::all_reduce)) {
    const Schedule schedule = build_schedule({Collective::all_reduce, algorithm, 512, 0, {}}, 300);
    EXPECT_LE(schedule.steps.size(), 4u * 512) << name_of(algorithm);
  }
}

/// The steps of `schedule` seen from rank 0: peers as `rename` calls them, blocks by first use.
std::vector<Step> renamed(const Schedule& schedule, const std::function<int(int)>& rename) {
  std::map<int, int> names;
  std::vector<Step> steps = schedule.steps;
  for (Step& step : steps) {
    if (step.peer >= 0) step.peer = rename(step.peer);
    for (int32_t* block : {&step.block, &step.from})
      if (*block >= 0)
        *block = names.try_emplace(*block, static_cast<int>(names.size())).first->second;
  }
  return steps;
}

// The simulator runs one rank for all that this says are alike.
TEST(Registry, RanksThatAreSaidToBeAlikeAre) {
  std::set<std::pair<Algorithm, Collective>> seen;
  for (const ScheduleKey& key : keys_to_verify(2, 24)) {
    const Symmetry symmetry =
        descriptor_of(key.algorithm).symmetry(key.collective, hosts_of(key.hosts, key.ranks));
    if (symmetry.kind == Symmetry::Kind::none) continue;
    ASSERT_EQ(key.ranks % symmetry.unit, 0) << describe(key);
    for (int rank = symmetry.unit; rank < key.ranks; ++rank) {
      const int base = rank % symmetry.unit, by = rank - base;
      const auto back = [&](int peer) {
        return symmetry.kind == Symmetry::Kind::shift ? wrap(peer - by, key.ranks) : peer ^ by;
      };
      ASSERT_EQ(renamed(build_schedule(key, rank), back),
                renamed(build_schedule(key, base), [](int peer) { return peer; }))
          << describe(key) << ", rank " << rank;
      seen.emplace(key.algorithm, key.collective);
    }
  }
  EXPECT_GE(seen.size(), 12u);
}

}  // namespace
}  // namespace ropewalk
