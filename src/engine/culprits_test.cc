#include "engine/culprits.h"

#include <gtest/gtest.h>

namespace ropewalk {
namespace {

constexpr int64_t kNow_ns = 1'000'000, kWaited_ns = 1000;

/// A wait that has lasted for `age_ns`.
Wait wait(Collective operation, uint32_t sequence, std::vector<int> peers, int64_t age_ns) {
  Wait wait{.operation = operation,
            .sequence = sequence,
            .awaited = true,
            .since_ns = kNow_ns - age_ns,
            .peer_count = static_cast<uint8_t>(peers.size())};
  std::ranges::copy(peers, wait.peers.begin());
  return wait;
}
Wait recv(int peer, uint32_t sequence = 0, int64_t age_ns = kWaited_ns) {
  return wait(Collective::recv, sequence, {peer}, age_ns);
}
Wait send(int peer, uint32_t sequence = 0) {
  return wait(Collective::send, sequence, {peer}, kWaited_ns);
}
Wait all_reduce(uint32_t sequence, std::vector<int> peers, int64_t age_ns = kWaited_ns) {
  return wait(Collective::all_reduce, sequence, std::move(peers), age_ns);
}
KnownRank rank(std::vector<Wait> waits, uint32_t calls = 0) {
  return {.known = true, .left = false, .calls = calls, .waits = std::move(waits)};
}
KnownRank silent() {
  return {};
}

/// Every rank that waits asks about all its waits, and must find the same.
void expect_all_find(const std::vector<KnownRank>& ranks, const std::vector<int>& culprits) {
  for (size_t asker = 0; asker < ranks.size(); ++asker) {
    if (ranks[asker].waits.empty()) continue;
    const Culprits found =
        find_culprits(ranks, static_cast<int>(asker), ranks[asker].waits, kNow_ns, kWaited_ns);
    EXPECT_EQ(found.ranks, culprits) << "rank " << asker;
  }
}

std::string circle_of(const std::vector<KnownRank>& ranks, int asker) {
  const Culprits found =
      find_culprits(ranks, asker, ranks[static_cast<size_t>(asker)].waits, kNow_ns, kWaited_ns);
  EXPECT_TRUE(found.ranks.empty());
  return describe(found.path);
}

TEST(Culprits, AreAtTheEndOfTheChain) {
  expect_all_find({rank({recv(1)}), rank({recv(2)}), rank({recv(3)}), rank({})}, {3});
  const auto found = find_culprits({rank({recv(1)}), rank({recv(2)}), rank({})}, 0, {recv(1)},
                                   kNow_ns, kWaited_ns);
  EXPECT_EQ(
      explain(found, "unused"),
      "rank 0 waits in recv #0 for rank 1, which waits in recv #0 for rank 2; rank 2 is late");
}

TEST(Culprits, AllOfThemAreNamedByAll) {
  expect_all_find({rank({recv(1)}), rank({}), rank({recv(3)}), rank({})}, {1, 3});
}

TEST(Culprits, AShortWaitElsewhereAccusesNobody) {
  const auto found = find_culprits({rank({recv(1)}), rank({}), rank({recv(3, 0, 300)}), rank({})},
                                   0, {recv(1)}, kNow_ns, kWaited_ns);
  EXPECT_EQ(found.ranks, std::vector<int>{1});
}

TEST(Culprits, WhoCameLatelyIsOne) {
  expect_all_find({rank({recv(1)}), rank({recv(2, 0, 99)}), rank({recv(0)})}, {1});
  expect_all_find({rank({all_reduce(0, {1})}, 1), rank({all_reduce(0, {0}, 99)}, 1)}, {1});
}

TEST(Culprits, HaveNotCalledTheCollective) {
  const std::vector<KnownRank> ring = {rank({all_reduce(4, {3})}, 5), rank({}, 4),
                                       rank({all_reduce(4, {1})}, 5), rank({}, 4)};
  expect_all_find(ring, {1, 3});
  const auto found = find_culprits(ring, 2, ring[2].waits, kNow_ns, kWaited_ns);
  EXPECT_EQ(explain(found, "unused"), "rank 1, 3 have not called all_reduce #4 yet");
}

TEST(Culprits, WhoHasNotCalledItMayWaitForAnother) {
  expect_all_find({rank({all_reduce(0, {1})}, 1), rank({recv(2)}, 0), rank({}, 1)}, {2});
}

TEST(Culprits, WhoHasCalledItWaitsThereWhateverItsCallerDoes) {
  Wait started = all_reduce(0, {2});
  started.awaited = false;
  expect_all_find({rank({all_reduce(0, {1})}, 1), rank({started}, 1), rank({}, 0)}, {2});
  // But for a message of it they wait in vain.
  const auto found = find_culprits({rank({recv(1)}, 1), rank({started}, 1), rank({}, 0)}, 0,
                                   {recv(1)}, kNow_ns, kWaited_ns);
  EXPECT_EQ(found.ranks, std::vector<int>{1});
}

TEST(Culprits, AMessageOfAnyRankMayComeFromAll) {
  const Wait any{.any = true, .awaited = true, .since_ns = 0};
  expect_all_find({rank({recv(1)}), rank({any}), rank({recv(0)}), rank({})}, {3});
}

TEST(Culprits, WhoDoesNotAnswerIsOneWhereNobodyElseIs) {
  expect_all_find({rank({recv(1)}), silent()}, {1});
  expect_all_find({rank({all_reduce(0, {1, 2})}, 1), silent(), rank({}, 0)}, {2});
}

TEST(Culprits, ACircleIsToldFromItsLowestRank) {
  const std::vector<KnownRank> ranks = {rank({recv(2)}), rank({send(3, 2)}), rank({recv(1, 3)}),
                                        rank({recv(2, 7)})};
  for (int asker = 0; asker < 4; ++asker)
    EXPECT_EQ(
        circle_of(ranks, asker),
        "rank 1 waits in send #2 for rank 3, which waits in recv #7 for rank 2, which waits in "
        "recv #3 for rank 1");
}

TEST(Culprits, ACircleMayPassThroughACollective) {
  const std::vector<KnownRank> ranks = {rank({all_reduce(1, {1})}, 2), rank({recv(0)}, 1)};
  for (int asker = 0; asker < 2; ++asker)
    EXPECT_EQ(circle_of(ranks, asker),
              "rank 0 waits in all_reduce #1 for rank 1, which waits in recv #0 for rank 0");
}

TEST(Culprits, TheEndsOfOneMessageOrCallAreNoCircle) {
  EXPECT_EQ(circle_of({rank({recv(1)}), rank({send(0)})}, 0), "");
  EXPECT_EQ(circle_of({rank({all_reduce(0, {1})}, 1), rank({all_reduce(0, {0})}, 1)}, 0), "");
  EXPECT_NE(circle_of({rank({recv(1, 1)}), rank({send(0, 2)})}, 0), "") << "another message";
}

}  // namespace
}  // namespace ropewalk
