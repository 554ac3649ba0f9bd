#include "bootstrap/agreement_control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/clock.h"
#include "bootstrap/auth.h"
#include "bootstrap/peer_table.h"
#include "bootstrap/statements.h"
#include "bootstrap/tree.h"

namespace ropewalk::bootstrap {
namespace {

std::pair<ConnectedSocket, ConnectedSocket> connected_pair() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  return {ConnectedSocket{UniqueFd(ends[0]), {}}, ConnectedSocket{UniqueFd(ends[1]), {}}};
}

/// Of rank 0 of two.
struct FirstRank {
  JobMonitor monitor{0, 2};
  PeerTable table{2};
  Statements statements{0, random_signing_keys(), monitor, table};
  DeathWatch deaths{2};
  Tree tree{0,     2,     std::chrono::seconds(1), std::chrono::seconds(1), monitor, statements,
            table, deaths};
  int dials = 0;
  AgreementControl control{[this](int) {
                             ++dials;
                             return nullptr;
                           },
                           std::chrono::seconds(1), tree};

  void begin() {
    control.begin({.rank = 0,
                   .members = {0, 1},
                   .contribution = {0, 1, ""},
                   .suspects = {},
                   .begun_ns = 0,
                   .patient_until_ns = 4000 * kMillisecond_ns},
                  8000 * kMillisecond_ns);
  }
};

auto take_turn(auto& owner, auto advance) {
  PollSet set;
  owner.prepare(set);
  set.wake_at(0);
  set.wait(0);
  return advance(set);
}

TEST(AgreementControl, NeighboursAreReachedOverTheTreeAsLongAsTheyAreThere) {
  FirstRank rank;
  auto [own, peers] = connected_pair();
  rank.tree.add(1, std::move(own), 0);
  rank.begin();
  constexpr int64_t kDialsBy_ns = 50 * kMillisecond_ns;
  take_turn(rank.control, [&](PollSet& set) { rank.control.advance(set, kDialsBy_ns); });
  rank.tree.flush();
  FrameStream peer(std::move(peers));
  const std::vector<Frame> frames =
      take_turn(peer, [&](PollSet& set) { return peer.advance(set); });
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(decode<AgreementMessage>(frames[0].payload)->kind, AgreementMessage::Kind::prepare);
  EXPECT_EQ(rank.dials, 0);

  ASSERT_TRUE(rank.tree.note_died(1));
  take_turn(rank.control, [&](PollSet& set) { rank.control.advance(set, kDialsBy_ns + 1); });
  EXPECT_GE(rank.dials, 1);
}

/// Both ranks may dial, or one again before the other notices that a connection was cut.
TEST(AgreementControl, APeerIsReachedAsLongAsOneOfItsConnectionsIs) {
  FirstRank rank;
  AgreementControl& control = rank.control;
  rank.begin();
  auto [first, first_peer] = connected_pair();
  auto [second, second_peer] = connected_pair();
  control.hear(1, std::move(first));
  control.hear(1, std::move(second));
  take_turn(control, [&](PollSet& set) { control.advance(set, 0); });
  const std::array<char, 25> forged = {21};  // a record that does not open
  ASSERT_EQ(write(first_peer.fd.get(), forged.data(), forged.size()), ssize_t{25});
  take_turn(control, [&](PollSet& set) { control.advance(set, 1); });

  FrameStream peer(std::move(second_peer));
  const auto hear = [&](PollSet& set) { return peer.advance(set); };
  take_turn(peer, hear);
  constexpr int64_t kLater_ns = 300 * kMillisecond_ns;  // it has said it again
  take_turn(control, [&](PollSet& set) { control.advance(set, kLater_ns); });
  const std::vector<Frame> frames = take_turn(peer, hear);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(decode<AgreementMessage>(frames[0].payload)->kind, AgreementMessage::Kind::prepare);
  EXPECT_TRUE(control.ended().empty());
}

/// Frames that `send` has given, each once.
std::vector<AgreementMessage> hear_all(FrameStream& stream) {
  std::vector<AgreementMessage> messages;
  for (const Frame& frame : take_turn(stream, [&](PollSet& set) { return stream.advance(set); }))
    if (auto message = decode<AgreementMessage>(frame.payload)) messages.push_back(*message);
  return messages;
}

// It kept all decisions of the epoch.
TEST(AgreementControl, OfManyAgreementsOfAllTheLastIsKept) {
  using Kind = AgreementMessage::Kind;
  constexpr uint32_t kAgreements = 10'000;
  FirstRank rank;
  auto [own, peers] = connected_pair();
  rank.control.hear(1, std::move(own));
  FrameStream peer(std::move(peers));
  const auto advance = [&] {
    take_turn(rank.control, [&](PollSet& set) { rank.control.advance(set, 0); });
  };
  for (uint32_t instance = 1; instance <= kAgreements; ++instance) {
    rank.begin();
    const Decision decision{
        .members = {0, 1}, .ended = {}, .bits = instance, .call = 1, .text = ""};
    peer.send(
        frame(AgreementMessage{.kind = Kind::decided, .instance = instance, .decision = decision}));
    peer.flush();
    advance();
    ASSERT_EQ(rank.control.take_end()->decision, decision);
    hear_all(peer);
  }
  std::vector<uint32_t> kept;
  for (uint32_t instance = 1; instance <= kAgreements; ++instance) {
    peer.send(frame(AgreementMessage{.kind = Kind::ask, .instance = instance}));
    peer.flush();
    advance();
    for (const AgreementMessage& answer : hear_all(peer)) {
      ASSERT_EQ(answer.instance, instance);
      if (answer.kind == Kind::decided) kept.push_back(instance);
      if (answer.kind == Kind::decided) {
        EXPECT_EQ(answer.decision.bits, instance);
      }
    }
  }
  EXPECT_EQ(kept, std::vector<uint32_t>{kAgreements});
}

TEST(DecisionLog, KeepsWhatAMemberMayNotHaveHeard) {
  DecisionLog log;
  log.note_members({0, 1, 2, 3});  // 3 takes part in nothing
  const auto add = [&](uint32_t instance, std::vector<int> members) {
    log.add(instance,
            {.members = std::move(members), .ended = {}, .bits = 0, .call = 1, .text = ""});
  };
  for (uint32_t instance = 1; instance <= 10'000; ++instance)
    add(instance, instance <= 20 ? std::vector{0, 1, 2} : std::vector{0, 1});
  std::vector<uint32_t> kept;
  for (uint32_t instance = 1; instance <= 10'000; ++instance)
    if (log.find(instance) != nullptr) kept.push_back(instance);
  EXPECT_EQ(kept, (std::vector<uint32_t>{1, 20, 21, 10'000}));
}

}  // namespace
}  // namespace ropewalk::bootstrap
