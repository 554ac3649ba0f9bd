// Parts of a job have failures, leaves and questions of their own.
#include "bootstrap/part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>

#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {
namespace {

using namespace std::chrono_literals;

constexpr int kJobRanks = 12;  // in the tree ranks 9 to 11 lie below rank 1

bool comes(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  return condition();
}

/// A rank of the job; null parts are those that it is not in.
struct Rank {
  int rank;
  World& world;
  std::vector<std::shared_ptr<Part>> parts;
  std::barrier<>& all;
};

/// Runs `body` on each rank of a job with parts of `members`, all of one number or of several.
void run_with_parts(const std::vector<std::vector<int>>& members, bool one_number,
                    const std::function<void(Rank&)>& body) {
  const TestJob job(kJobRanks);
  std::barrier all(kJobRanks);
  expect_no_errors(run_world_ranks(kJobRanks, [&](int rank) {
    const auto world = job.join(rank);
    Rank own{rank, *world, {}, all};
    for (size_t i = 0; i < members.size(); ++i) {
      const auto number = static_cast<uint32_t>(one_number ? 7 : 7 + i);
      const bool is_in = std::ranges::count(members[i], rank) != 0;
      own.parts.push_back(is_in ? world->add_part(number, members[i]) : nullptr);
    }
    all.arrive_and_wait();
    body(own);
    all.arrive_and_wait();
    for (const auto& part : own.parts)
      if (part != nullptr) world->remove_part(*part);
    world->leave();
  }));
}

TEST(Part, ALeaveIsToldToItsRanksWithTheirNumbers) {
  run_with_parts({{11, 3, 9, 0}}, true, [](Rank& own) {
    if (Part* part = own.parts[0].get()) {
      if (own.rank == 3) part->leave({5, 1, "barrier"});
      EXPECT_TRUE(comes([&] { return part->monitor().has_left(1); })) << own.rank;
      EXPECT_EQ(part->monitor().calls_of(1)->count, 5u);
      EXPECT_FALSE(part->all_have_left());
      own.all.arrive_and_wait();
      if (own.rank != 3) part->leave({5, 1, "barrier"});
      EXPECT_TRUE(comes([&] { return part->all_have_left(); })) << own.rank;
      EXPECT_EQ(part->monitor().failure(), nullptr);
    } else {
      own.all.arrive_and_wait();
    }
    EXPECT_FALSE(own.world.monitor().has_left(3));
  });
}

TEST(Part, LeavesAfterDifferentCallsAreItsFailure) {
  run_with_parts({{4, 10}}, true, [](Rank& own) {
    if (Part* part = own.parts[0].get()) {
      part->leave({own.rank == 4 ? 5u : 6u, 1, "barrier"});
      const Failure* failure = await_failure(part->monitor());
      ASSERT_NE(failure, nullptr);
      EXPECT_EQ(failure->code, ErrorCode::mismatch);
    }
    EXPECT_EQ(own.world.monitor().failure(), nullptr);
  });
}

TEST(Part, AFailureIsOfItsPartAlone) {
  run_with_parts({{0, 5, 10}, {11, 10, 5, 1}}, false, [](Rank& own) {
    if (own.rank == 10)
      own.parts[0]->monitor().report({ErrorCode::aborted, "abort", "as it likes", "", 2, 2});
    if (Part* part = own.parts[0].get()) {
      const Failure* failure = await_failure(part->monitor());
      EXPECT_NE(failure, nullptr) << own.rank;
      if (failure != nullptr) {
        EXPECT_EQ(failure->rank, 2);
      }
      if (failure != nullptr) {
        EXPECT_EQ(failure->peers, std::vector<int>{2});
      }
    }
    own.all.arrive_and_wait();
    // What is told later comes later.
    if (Part* part = own.parts[1].get()) {
      if (own.rank == 10) part->leave({});
      EXPECT_TRUE(comes([&] { return part->monitor().has_left(1); })) << own.rank;
      EXPECT_EQ(part->monitor().failure(), nullptr);
    }
    EXPECT_EQ(own.world.monitor().failure(), nullptr);
  });
}

TEST(Part, OfTheJobsFailureItHears) {
  run_with_parts({{11, 3, 9, 0}}, true, [](Rank& own) {
    if (own.rank == 9)
      own.world.monitor().report({ErrorCode::aborted, "abort", "as it likes", "", 9, 3, {3, 4}});
    EXPECT_NE(await_failure(own.world.monitor()), nullptr);
    if (Part* part = own.parts[0].get()) {
      const Failure* failure = await_failure(part->monitor());
      ASSERT_NE(failure, nullptr) << own.rank;
      EXPECT_EQ(failure->rank, 2);
      EXPECT_EQ(failure->peers, std::vector<int>{1});
    }
  });
}

TEST(Part, AConnectionThatIsLostIsTheJobsFailure) {
  run_with_parts({{11, 3, 9, 0}}, true, [](Rank& own) {
    if (own.rank == 9)
      own.parts[0]->monitor().report_lost(
          {ErrorCode::peer_lost, "link", "it broke", "", 2, 1, {1}});
    const Failure* failure = await_failure(own.world.monitor());
    ASSERT_NE(failure, nullptr);
    EXPECT_EQ(failure->rank, 9);
    EXPECT_EQ(failure->peers, std::vector<int>{3});
    if (own.parts[0] != nullptr) {
      EXPECT_EQ(await_failure(own.parts[0]->monitor())->peer, 1);
    }
  });
}

TEST(Part, ItsRanksTellWhatTheyWaitFor) {
  run_with_parts({{11, 3, 9, 0}, {3, 11}}, false, [](Rank& own) {
    Part* const part = own.parts[0].get();
    if (part != nullptr && own.rank == 11) {
      Wait wait;
      wait.operation = Collective::broadcast;
      wait.sequence = 4;
      wait.peers[wait.peer_count++] = 3;
      part->monitor().note_calls(5);
      part->monitor().note_waits(std::span(&wait, 1));
    }
    own.all.arrive_and_wait();
    if (own.rank == 9) part->monitor().ask_who_waits();
    if (part != nullptr && own.rank != 11) {
      EXPECT_TRUE(comes([&] {
        const RankWaits told = part->monitor().waits()[0];
        return told.calls == 5 && told.waits.size() == 1 && told.waits[0].sequence == 4 &&
               told.waits[0].waits_for()[0] == 3;
      })) << own.rank;
    }
    if (own.parts[1] != nullptr) {
      EXPECT_EQ(own.parts[1]->monitor().waits()[0].heard_ns, 0);
    }
  });
}

// Numbers are agreed upon by its ranks alone.
TEST(Part, OneOfOtherRanksMayHaveItsNumber) {
  run_with_parts({{0, 9}, {1, 10}}, true, [](Rank& own) {
    if (own.rank == 9) own.parts[0]->leave({});
    if (own.parts[0] != nullptr) {
      EXPECT_TRUE(comes([&] { return own.parts[0]->monitor().has_left(1); }));
    }
    own.all.arrive_and_wait();
    if (own.rank == 1) own.parts[1]->leave({});
    if (own.parts[1] == nullptr) return;
    EXPECT_TRUE(comes([&] { return own.parts[1]->monitor().has_left(0); }));
    EXPECT_FALSE(own.parts[1]->monitor().has_left(1));
  });
}

// Rank 1, through which ranks 9 to 11 hear of all others, ends.
TEST(Part, WhoFindsAnotherParentHearsWhatItHasMissed) {
  TestJob job(kJobRanks);
  std::atomic<bool> is_gone{false};
  expect_no_errors(run_world_ranks(kJobRanks, [&](int rank) {
    Config config = job.config;
    if (rank == 1) config.timeout = 500ms;
    const auto world = World::join(job.identity(rank), config, {});
    std::shared_ptr<Part> part;
    if (rank == 2 || rank == 10) part = world->add_part(3, {2, 10});
    if (rank == 1) {
      world->leave();
      is_gone = true;
      return;
    }
    if (rank == 2) {
      while (!is_gone) std::this_thread::sleep_for(1ms);
      part->leave({});
    }
    if (rank == 10) {
      EXPECT_TRUE(comes([&] { return part->monitor().has_left(0); }));
    }
    if (part != nullptr) world->remove_part(*part);
    world->leave();
  }));
}

}  // namespace
}  // namespace ropewalk::bootstrap
