// One agreement at a time, its messages delivered by hand. agreement_simulation_test.cc has the
// rest.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <numeric>

#include "base/clock.h"
#include "bootstrap/agreement_testing.h"

namespace ropewalk::bootstrap {
namespace {

using Kind = AgreementMessage::Kind;

constexpr int64_t kPatience_ns = 4000 * kMillisecond_ns;
constexpr int64_t kSilence_ns = kPatience_ns / 4;
constexpr int64_t kGrace_ns = 100 * kMillisecond_ns;
constexpr int64_t kFollowersDial_ns = 10 * kMillisecond_ns;

Contribution contribution_of(int rank) {
  return {~(uint64_t{1} << rank % 64), 1, fmt::format("rank {}", rank)};
}

/// Members, what is on its way between them, and what they have sent.
class AgreementTable {
 public:
  explicit AgreementTable(size_t size) : members_(size) {}

  Agreement& operator[](int rank) { return *members_[static_cast<size_t>(rank)]; }
  bool has_begun(int rank) { return members_[static_cast<size_t>(rank)].has_value(); }
  void begin(int rank, std::vector<int> suspects = {}, uint8_t call = 1) {
    Agreement::Setup setup{.rank = rank,
                           .members = std::vector<int>(members_.size()),
                           .contribution = contribution_of(rank),
                           .suspects = std::move(suspects),
                           .begun_ns = now_ns,
                           .patient_until_ns = now_ns + kPatience_ns};
    std::iota(setup.members.begin(), setup.members.end(), 0);
    setup.contribution.call = call;
    members_[static_cast<size_t>(rank)].emplace(std::move(setup));
  }
  void begin_all() {
    for (int rank = 0; rank < size(); ++rank) begin(rank);
  }
  void link(int a, int b) {
    if (has_begun(a)) (*this)[a].note_linked(b);
    if (has_begun(b)) (*this)[b].note_linked(a);
  }
  void link_all() {
    for (int a = 0; a < size(); ++a)
      for (int b = 0; b < a; ++b) link(a, b);
  }
  void advance(int rank) {
    (*this)[rank].advance(now_ns);
    for (auto& [to, message] : (*this)[rank].take_messages()) {
      ++sent[message.kind];
      on_way[{rank, to}].push_back(std::move(message));
    }
  }
  /// Without `advance`.
  void deliver(int from, int to) {
    for (const AgreementMessage& message : std::exchange(on_way[{from, to}], {}))
      if (has_begun(to)) (*this)[to].hear(from, message, now_ns);
  }
  /// One delay: all advance, and what they send arrives.
  void step() {
    for (int rank = 0; rank < size(); ++rank)
      if (has_begun(rank)) advance(rank);
    for (const auto& [way, _] : std::map(on_way)) deliver(way.first, way.second);
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  int size() const { return static_cast<int>(members_.size()); }

  int64_t now_ns = 0;
  std::map<std::pair<int, int>, std::deque<AgreementMessage>> on_way;
  std::map<Kind, int> sent;

 private:
  std::vector<std::optional<Agreement>> members_;
};

Decision decision_of(std::vector<int> members, std::vector<int> ended = {}) {
  Decision decision{members, std::move(ended), ~uint64_t{0}, 1, contribution_of(members[0]).text};
  for (const int rank : members) decision.bits &= contribution_of(rank).bits;
  return decision;
}

TEST(Agreement, OneAloneDecidesAtOnce) {
  AgreementTable table(1);
  table.begin_all();
  table.advance(0);
  EXPECT_EQ(table[0].decision(), decision_of({0}));
}

/// However many there are; a barrier of 512 ranks is nine messages deep.
TEST(Agreement, FourDelaysAndFiveMessagesEachWhereNobodyFails) {
  for (const int size : {7, 512}) {
    AgreementTable table(static_cast<size_t>(size));
    table.begin_all();
    for (int rank = 1; rank < size; ++rank) table.link(0, rank);
    table.steps(4);
    table.advance(0);
    std::vector<int> all(static_cast<size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(table[0].decision(), decision_of(all));
    table.step();
    for (int rank = 1; rank < size; ++rank) EXPECT_EQ(table[rank].decision(), table[0].decision());
    for (const Kind kind : {Kind::prepare, Kind::promise, Kind::accept, Kind::accepted})
      EXPECT_EQ(table.sent[kind], size - 1) << static_cast<int>(kind);
    // Those whose answer came after the leader's decision are told once more.
    EXPECT_LE(table.sent[Kind::decided], 2 * (size - 1));
    EXPECT_EQ(table.sent[Kind::refused] + table.sent[Kind::gave_up], 0);
  }
}

TEST(Agreement, HalfWithTheLowestIsAQuorumWhereThatBreaksTies) {
  const Quorum half_with_lowest{.tie_breaker = true};
  EXPECT_TRUE(half_with_lowest.is_met(2, 4, true));
  EXPECT_FALSE(half_with_lowest.is_met(2, 4, false));
  EXPECT_TRUE(half_with_lowest.is_met(3, 4, false));
  EXPECT_FALSE(half_with_lowest.is_met(2, 5, true));
  EXPECT_FALSE(Quorum{}.is_met(2, 4, true));
  EXPECT_FALSE((Quorum{.least = 4}.is_met(3, 4, true)));
  EXPECT_TRUE((Quorum{.least = 4}.is_met(4, 4, true)));
}

TEST(Agreement, OnlyTheLeaderWantsAllLinks) {
  AgreementTable table(4);
  table.begin_all();
  for (int rank = 0; rank < 4; ++rank) table.advance(rank);
  EXPECT_EQ(table[0].links_wanted(), std::vector<int>()) << "they dial";
  table.now_ns = kFollowersDial_ns;
  table.advance(0);
  EXPECT_EQ(table[0].links_wanted(), (std::vector{1, 2, 3}));
  EXPECT_EQ(table[2].links_wanted(), std::vector{0});
  table.link(0, 2);
  table[0].note_ended(3);
  EXPECT_EQ(table[0].links_wanted(), std::vector{1});
  EXPECT_EQ(table[2].links_wanted(), std::vector<int>());
  table[2].note_unlinked(0);
  EXPECT_EQ(table[2].links_wanted(), std::vector{0});
}

TEST(Agreement, TheNextLeadsWhereTheLowestHasEndedBefore) {
  AgreementTable table(3);
  table.begin(1);
  table.begin(2);
  for (const int rank : {1, 2}) table[rank].note_ended(0);
  table.link(1, 2);
  table.steps(5);
  EXPECT_EQ(table[1].decision(), decision_of({1, 2}, {0}));
  EXPECT_EQ(table[2].decision(), table[1].decision());
}

TEST(Agreement, TheNextLeadsWhereTheLowestIsSilent) {
  AgreementTable table(3);
  table.begin(1);
  table.begin(2);
  table.link(1, 2);
  table.steps(5);
  EXPECT_EQ(table.sent.size(), 0u);
  EXPECT_EQ(table[1].wake_at_ns(), kSilence_ns);
  table.now_ns = kSilence_ns;
  table.steps(5);
  EXPECT_EQ(table[1].decision(), decision_of({1, 2})) << "rank 0 may live: it is taken for dead";
}

/// What may have been decided already stands, though he who proposed it has ended.
TEST(Agreement, WhatWasAcceptedIsTakenOver) {
  AgreementTable table(5);
  table.begin_all();
  table.link_all();
  table.steps(2);  // all have promised
  table.advance(0);
  EXPECT_EQ(table.sent[Kind::accept], 4);
  table.deliver(0, 2);
  for (int rank = 1; rank < 5; ++rank) table[rank].note_ended(0);
  table.on_way.clear();
  table.steps(6);
  for (int rank = 1; rank < 5; ++rank)
    EXPECT_EQ(table[rank].decision(), decision_of({0, 1, 2, 3, 4}));
}

TEST(Agreement, WhatNobodyAcceptedIsNot) {
  AgreementTable table(5);
  table.begin_all();
  table.link_all();
  table.steps(2);
  table.advance(0);
  for (int rank = 1; rank < 5; ++rank) table[rank].note_ended(0);
  table.on_way.clear();
  table.steps(6);
  for (int rank = 1; rank < 5; ++rank)
    EXPECT_EQ(table[rank].decision(), decision_of({1, 2, 3, 4}, {0}));
}

TEST(Agreement, SuspectsAreWaitedForNoLongerThanTheGrace) {
  AgreementTable table(3);
  table.begin(0, {2});
  table.begin(1);
  table.link(0, 1);
  table.steps(3);
  EXPECT_FALSE(table[0].decision()) << "it may have been out of reach for a moment";
  EXPECT_EQ(table[0].wake_at_ns(), kFollowersDial_ns);
  table.now_ns = kFollowersDial_ns;
  table.step();
  EXPECT_EQ(table[0].wake_at_ns(), kGrace_ns);
  table.now_ns = kGrace_ns;
  table.steps(3);
  EXPECT_EQ(table[0].decision(), decision_of({0, 1}));
}

TEST(Agreement, ASuspectThatAnswersIsIn) {
  AgreementTable table(3);
  table.begin(0, {2});
  table.begin(1, {2});
  table.begin(2);
  table.link_all();
  table.steps(5);
  EXPECT_EQ(table[0].decision(), decision_of({0, 1, 2}));
}

TEST(Agreement, OthersAreWaitedForUntilPatienceIsOver) {
  AgreementTable table(3);
  table.begin(0);
  table.begin(1);
  table.link(0, 1);
  for (; table.now_ns < kPatience_ns; table.now_ns += kSilence_ns / 4) table.step();
  EXPECT_FALSE(table[0].decision());
  EXPECT_EQ(table[0].wake_at_ns(), kPatience_ns);
  table.now_ns = kPatience_ns;
  table.steps(3);
  EXPECT_EQ(table[1].decision(), decision_of({0, 1}));
}

TEST(Agreement, OneOfTwoLeadersStepsDown) {
  AgreementTable table(5);
  for (int rank = 0; rank < 5; ++rank)
    table.begin(rank, rank < 3 ? std::vector<int>() : std::vector{0, 1, 2});
  table.link_all();
  table.advance(3);
  table.deliver(3, 4);  // which refuses then what rank 0 says first
  table.deliver(3, 1);
  table.steps(8);
  EXPECT_GT(table.sent[Kind::refused], 0);
  for (int rank = 0; rank < 5; ++rank)
    EXPECT_EQ(table[rank].decision(), decision_of({0, 1, 2, 3, 4})) << rank;
}

/// What it proposed it would accept itself, of a ballot before that which it promised: rank 2 may
/// have decided otherwise with the rank that it told so.
TEST(Agreement, ALeaderKeepsWhatItPromisedAnother) {
  AgreementTable table(3);
  table.begin(0, {2});
  table.begin(1);
  table.begin(2, {0, 1});
  table.link_all();
  table.now_ns = kPatience_ns;
  table.advance(2);
  table.advance(0);
  table.deliver(2, 0);
  table.advance(0);
  table.deliver(0, 1);
  table.advance(1);
  table.on_way[{1, 0}].resize(1);  // its promise for the ballot before
  table.deliver(1, 0);
  table.advance(0);
  EXPECT_EQ(table.sent[Kind::accept], 0);
  table.steps(6);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(table[rank].decision(), decision_of({0, 2}));
}

TEST(Agreement, MoreThanHalfOfThoseInADecisionGoOn) {
  AgreementTable table(3);
  table.begin(0, {2});
  table.begin(1);
  table.link(0, 1);
  table.steps(3);
  table[0].note_ended(1);  // having promised
  table.now_ns = kGrace_ns;
  table.step();
  EXPECT_EQ(table.sent[Kind::accept], 0);
  table.begin(2);
  table.link(0, 2);
  table.steps(5);
  EXPECT_EQ(table[2].decision(), decision_of({0, 2}, {1}));
}

TEST(Agreement, WhoIsLateHearsWhatWasDecided) {
  AgreementTable table(3);
  table.begin(0, {2});
  table.begin(1, {2});
  table.link(0, 1);
  table.now_ns = kGrace_ns;
  table.steps(5);
  ASSERT_EQ(table[1].decision(), decision_of({0, 1}));
  table.begin(2);
  table.link(1, 2);
  table.step();
  EXPECT_EQ(table[2].decision(), decision_of({0, 1}));
}

// Where the leader had decided and died before all had heard of it they waited for the next one's
// silence: that had nothing to lead any more, and their links to it were old.
TEST(Agreement, WhoMissesTheLastWordsOfALeaderIsTheNextOnesToTell) {
  for (const bool is_told_first : {true, false}) {
    AgreementTable table(4);
    table.begin_all();
    for (const int rank : {1, 2, 3}) table.link(0, rank);
    table[1].note_linked(3);  // the other way round they are still connecting
    table.steps(4);
    table.advance(0);
    ASSERT_TRUE(table[0].decision());
    table.on_way.erase({0, 3});
    const auto tell = [&] {
      for (const int rank : {1, 2}) table.deliver(0, rank);
    };
    if (is_told_first) tell();
    table[3].note_ended(0);
    table.advance(3);
    EXPECT_EQ(table[3].links_wanted(), (std::vector{1}));
    table[3].note_linked(1);
    table.advance(3);
    table.deliver(3, 1);
    if (!is_told_first) tell();
    for (const int rank : {1, 2}) table[rank].note_ended(0);
    table.steps(2);
    EXPECT_EQ(table[3].decision(), table[0].decision()) << is_told_first;
  }
}

TEST(Agreement, CallsThatDifferAreNone) {
  for (const uint8_t last : {uint8_t{1}, uint8_t{2}}) {
    AgreementTable table(3);
    for (int rank = 0; rank < 3; ++rank) table.begin(rank, {}, rank == 2 ? last : uint8_t{1});
    table.link_all();
    table.steps(5);
    EXPECT_EQ(table[1].decision()->call, last == 1 ? 1 : 0);
  }
}

TEST(Agreement, WhoDepartsVotesAndIsNotInTheDecision) {
  for (const int stays : {0, 1, 2}) {
    AgreementTable table(3);
    for (int rank = 0; rank < 3; ++rank) table.begin(rank, {}, rank == stays ? 1 : kDepartCall);
    table.link_all();
    table.steps(5);
    std::vector<int> departed{0, 1, 2};
    departed.erase(departed.begin() + stays);
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(table[rank].decision(), decision_of({stays}, departed)) << rank;
  }
}

TEST(Agreement, AllMayDepart) {
  AgreementTable table(2);
  for (int rank = 0; rank < 2; ++rank) table.begin(rank, {}, kDepartCall);
  table.link_all();
  table.steps(5);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(table[rank].decision(), (Decision{{}, {0, 1}, ~uint64_t{0}, kDepartCall, {}}));
}

TEST(Agreement, HalfIsHopeless) {
  AgreementTable table(4);
  table.begin_all();
  table[0].note_ended(3);
  EXPECT_FALSE(table[0].is_hopeless());
  table.link_all();
  table[2].give_up();
  table.steps(2);
  EXPECT_TRUE(table[0].is_hopeless());
  EXPECT_FALSE(table[1].is_hopeless()) << "it does not know of rank 3";
  EXPECT_EQ(table[0].seen(), (std::vector{0, 1}));
}

TEST(Agreement, WhatIsNoMembersOrOfAnotherInstanceIsNothing) {
  AgreementTable table(3);
  table.begin_all();
  table[0].hear(3, {.kind = Kind::prepare, .instance = 1, .ballot = {9, 3}}, 0);
  table[0].hear(1, {.kind = Kind::prepare, .instance = 2, .ballot = {9, 1}}, 0);
  table[0].note_linked(3);
  EXPECT_TRUE(table[0].take_messages().empty());
  EXPECT_EQ(table[0].seen(), std::vector{0});
}

}  // namespace
}  // namespace ropewalk::bootstrap
