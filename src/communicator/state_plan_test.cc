#include "communicator/state_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace ropewalk {
namespace {

using Kind = StateSource::Kind;

std::vector<StateRecord> cards(Kind kind,
                               const std::vector<std::pair<uint64_t, uint64_t>>& states) {
  std::vector<StateRecord> all;
  for (const auto& [revision, state] : states) {
    StateRecord card;
    card.revision = revision;
    card.state.low = state;
    card.kind = kind;
    all.push_back(card);
  }
  return all;
}

void expect_choice(Kind kind, const std::vector<std::pair<uint64_t, uint64_t>>& states, int rank,
                   std::optional<int> rival = {}) {
  const StateChoice choice = choose_state(cards(kind, states));
  EXPECT_EQ(choice.rank, rank);
  EXPECT_EQ(choice.rival, rival);
}

TEST(StatePlan, TheNewestHasTheHighestRevision) {
  expect_choice(Kind::newest, {{3, 1}, {7, 2}, {3, 1}}, 1);
  expect_choice(Kind::newest, {{0, 1}, {7, 2}, {7, 2}}, 1);
  expect_choice(Kind::newest, {{7, 2}, {0, 1}, {7, 3}}, 0, 2);
}

TEST(StatePlan, TheMajorityIsOfRevisionAndHashAndThenTheNewest) {
  expect_choice(Kind::majority, {{9, 1}, {5, 2}, {5, 2}}, 1);
  expect_choice(Kind::majority, {{5, 1}, {5, 2}, {5, 2}}, 1);
  expect_choice(Kind::majority, {{5, 2}, {5, 2}, {6, 3}, {6, 3}}, 2);
  expect_choice(Kind::majority, {{6, 2}, {6, 2}, {6, 3}, {6, 3}}, 0, 2);
  expect_choice(Kind::majority, {{6, 2}, {6, 3}, {6, 2}}, 0);
}

TEST(StatePlan, ARankIsTakenAsItIs) {
  auto all = cards(Kind::rank, {{9, 1}, {5, 2}, {5, 3}});
  for (StateRecord& card : all) card.of_rank = 2;
  EXPECT_EQ(choose_state(all).rank, 2);
  EXPECT_FALSE(choose_state(all).rival);
}

/// Every byte of what is wanted once, and nothing else.
void expect_whole(const std::vector<size_t>& sizes, const std::vector<bool>& wanted,
                  const std::vector<StateShare>& shares) {
  std::vector<std::vector<std::pair<size_t, size_t>>> parts(sizes.size());  // offset, bytes
  for (const StateShare& share : shares) {
    size_t at = 0;
    for (const StatePiece& piece : share.pieces) {
      EXPECT_EQ(piece.at, at);
      at += piece.bytes;
      parts[piece.buffer].emplace_back(piece.offset, piece.bytes);
    }
    EXPECT_EQ(share.bytes, at);
  }
  for (size_t buffer = 0; buffer < sizes.size(); ++buffer) {
    std::ranges::sort(parts[buffer]);
    size_t end = 0;
    for (const auto& [offset, bytes] : parts[buffer]) {
      EXPECT_EQ(offset, end);
      EXPECT_GT(bytes, 0u);
      end += bytes;
    }
    EXPECT_EQ(end, wanted[buffer] ? sizes[buffer] : 0);
  }
}

TEST(StatePlan, SourcesShareEvenlyWhatIsWanted) {
  const std::vector<size_t> sizes{100,     kShortBytesMax + 1, 0, 50'000'001, 7,
                                  900'000, kShortBytesMax,     1};
  std::vector<bool> wanted(sizes.size(), true);
  for (const size_t sources : {1, 2, 3, 7}) {
    for (const bool is_first_wanted : {true, false}) {
      wanted[0] = wanted[3] = is_first_wanted;
      const auto shares = share_out(sizes, wanted, sources);
      expect_whole(sizes, wanted, shares);
      const auto [least, most] = std::ranges::minmax(shares, {}, &StateShare::bytes);
      EXPECT_LE(most.bytes - least.bytes, 2 * kShortBytesMax);
    }
  }
}

TEST(StatePlan, PackedBuffersThatFollowEachOtherGoAsOneMessage) {
  const std::vector<size_t> sizes{10, 20, 30, 5'000'000, 40};
  const auto share = share_out(sizes, std::vector<bool>(5, true), 1).front();
  EXPECT_EQ(share.packed, 4u);
  EXPECT_EQ(share.packed_bytes, 100u);
  const auto all = messages_of(share, std::vector<bool>(5, true));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].bytes, 100u);
  EXPECT_EQ(all[0].long_piece, nullptr);
  EXPECT_EQ(all[1].bytes, 5'000'000u);
  EXPECT_EQ(all[1].long_piece, &share.pieces[4]);
  const auto some = messages_of(share, {true, false, true, false, true});
  ASSERT_EQ(some.size(), 2u);
  EXPECT_EQ(some[0].bytes, 10u);
  EXPECT_EQ(some[1].at, 30u);
  EXPECT_EQ(some[1].bytes, 70u);
  EXPECT_TRUE(messages_of(share, std::vector<bool>(5)).empty());
}

TEST(StatePlan, HashesAreThoseOfXxh3) {
  EXPECT_EQ(hash_of({}).text(), "99aa06d3014798d86001c324468d497f");
  const std::string_view text = "ropewalk";
  EXPECT_FALSE(hash_of(std::as_bytes(std::span(text))) == hash_of({}));
}

}  // namespace
}  // namespace ropewalk
