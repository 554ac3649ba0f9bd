#include "bootstrap/statements.h"

#include <gtest/gtest.h>

namespace ropewalk::bootstrap {
namespace {

constexpr int kRanks = 4;

WorldId world_id(int number) {
  WorldId world = {};
  world[0] = static_cast<std::byte>(number);
  return world;
}

SigningKeys keys_of(int rank) {
  start_cryptography();
  Key seed;
  seed.fill(static_cast<unsigned char>(rank));
  return signing_keys(seed);
}

std::vector<PeerRecord> table_of_all() {
  std::vector<PeerRecord> table(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    PeerRecord& record = table[static_cast<size_t>(rank)];
    record.rank = rank;
    record.pid = 100 + rank;
    record.host_name = "h";
    record.verify_key = keys_of(rank).verify_key;
  }
  return table;
}

/// A rank that has joined world `number`.
struct Member {
  explicit Member(int rank, int number = 1) : monitor(rank, kRanks), table(table_of_all()) {
    statements.emplace(rank, keys_of(rank), monitor, table);
    statements->set_world(world_id(number));
    statements->trust_table();
  }
  /// What `peer` hands over.
  Statements::AcceptResult take(const Bytes& frame, int peer,
                                Statements::Origin link = Statements::Origin::tree) {
    return statements->take_failure(ByteSpan(frame).subspan(kFrameHeaderBytes), peer, link);
  }
  bool takes(const Bytes& frame, int peer, Statements::Origin link = Statements::Origin::tree) {
    return take(frame, peer, link) != Statements::AcceptResult::nonsense;
  }
  /// All but `gone` go on.
  void renew(int gone) {
    std::vector<int> members;
    for (int rank = 0; rank < kRanks; ++rank)
      if (rank != gone) members.push_back(rank);
    monitor.renew(members);
    statements->renew();
  }
  void expect_failure(int rank, int peer, const std::string& reason) {
    const Failure* failure = monitor.failure();
    ASSERT_NE(failure, nullptr);
    EXPECT_EQ(failure->rank, rank) << failure->text();
    EXPECT_EQ(failure->peer, peer) << failure->text();
    EXPECT_NE(failure->reason.find(reason), std::string::npos) << failure->text();
  }

  JobMonitor monitor;
  PeerTable table;
  std::optional<Statements> statements;
};

JobFailure lost(int rank, int peer, uint32_t epoch = 0) {
  return {{ErrorCode::peer_lost, "control", "it died", "", rank, peer, {peer}}, epoch};
}

TEST(Statements, AGenuineFailureIsPassedOnAsItCame) {
  const Member first(1);
  const Bytes said = frame(first.statements->sign(lost(1, 3)));
  Member second(0), third(2);
  EXPECT_TRUE(second.takes(said, 1));
  second.expect_failure(1, 3, "it died");
  EXPECT_EQ(second.statements->failure_frame(), said);
  EXPECT_TRUE(third.takes(second.statements->failure_frame(), 0));
  third.expect_failure(1, 3, "it died");
}

TEST(Statements, AForgedFailureIsWhoHandsItOver) {
  const Member forger(1);
  auto said = forger.statements->sign(lost(1, 3));
  said.message.rank = 2;
  Member rank(0);
  EXPECT_TRUE(rank.takes(frame(said), 1));
  rank.expect_failure(0, 1,
                      "rank 1 (h, pid 101) sent a failure in the name of rank 2, which has not "
                      "signed it");
}

TEST(Statements, AChangedFailureIsWhoHandsItOver) {
  const Member first(1);
  for (size_t at = 0; at < frame(first.statements->sign(lost(1, 3))).size() - kFrameHeaderBytes;
       ++at) {
    Bytes said = frame(first.statements->sign(lost(1, 3)));
    said[kFrameHeaderBytes + at] ^= std::byte{1};
    Member rank(0);
    if (rank.takes(said, 2)) rank.expect_failure(0, 2, "has not signed it");
  }
}

TEST(Statements, WhatWasSaidInAnotherWorldHoldsInNone) {
  const Member before(1, /*number=*/1);
  Member now(0, /*number=*/2);
  const auto leave = before.statements->sign(Leave{1, {}});
  EXPECT_FALSE(now.statements->is_genuine(leave, 2));
  now.expect_failure(0, 2, "sent a leave in the name of rank 1");
  EXPECT_TRUE(Member(0, 1).statements->is_genuine(leave, 2));
}

TEST(Statements, AnAnswerIsNoOtherAnswer) {
  const Member other(1);
  const auto waits = other.statements->sign(Waits{1, {.heard_ns = 0, .calls = 4, .waits = {}}});
  auto changed = waits;
  changed.message.answer.calls = 3;
  Member rank(0);
  EXPECT_TRUE(rank.statements->is_genuine(waits, 2));
  EXPECT_FALSE(rank.statements->is_genuine(changed, 2));
  rank.expect_failure(0, 2, "sent an answer in the name of rank 1");
}

TEST(Statements, WithoutKeysItIsWhoHandsItOverThatSaysSo) {
  const Member first(3);
  const Bytes said = frame(first.statements->sign(lost(3, 2)));
  const PeerTable table(kRanks);
  JobMonitor monitor(1, kRanks);
  Statements young(1, keys_of(1), monitor, table);
  EXPECT_EQ(
      young.take_failure(ByteSpan(said).subspan(kFrameHeaderBytes), 0, Statements::Origin::tree),
      Statements::AcceptResult::current);
  EXPECT_EQ(monitor.failure()->rank, 0);
  EXPECT_EQ(monitor.failure()->reason, "rank 3 says: it died");
  // It passes that on in its own name.
  young.set_world(world_id(1));
  Member next(2);
  EXPECT_TRUE(next.takes(young.failure_frame(), 1));
  next.expect_failure(1, 2, "rank 0 says: rank 3 says: it died");
}

// The epoch that has failed is over; the one that follows has failed only where somebody says so.
TEST(Statements, AFailureIsOfItsEpoch) {
  const Member first(1);
  Member second(0);
  const Bytes of_the_first = frame(first.statements->sign(lost(1, 3)));
  ASSERT_EQ(second.take(of_the_first, 1), Statements::AcceptResult::current);
  second.renew(3);
  EXPECT_EQ(second.monitor.failure(), nullptr);
  EXPECT_EQ(second.take(of_the_first, 1), Statements::AcceptResult::former);
  EXPECT_EQ(second.monitor.failure(), nullptr);
  EXPECT_EQ(second.take(frame(first.statements->sign(lost(1, 2, 1))), 1),
            Statements::AcceptResult::current);
  second.expect_failure(1, 2, "it died");
}

TEST(Statements, AFailureOfTheNextEpochWaitsForThat) {
  const Member first(1);
  Member second(0);
  ASSERT_TRUE(second.takes(frame(first.statements->sign(lost(1, 3))), 1));
  const auto before = second.monitor.of_epoch();
  EXPECT_EQ(second.take(frame(first.statements->sign(lost(1, 2, 1))), 1),
            Statements::AcceptResult::early);
  EXPECT_EQ(second.monitor.failure()->peer, 3);
  second.renew(3);
  second.expect_failure(1, 2, "it died");
  EXPECT_EQ(before->failure()->peer, 3) << "who belongs to the first keeps its failure";
  EXPECT_EQ(second.monitor.of_epoch()->failure()->peer, 2);
}

// A rank that has not heard of the world yet has a connection to rank 0 only.
TEST(Statements, BeforeThePlaceTheConnectionSaysWhoSpeaks) {
  JobMonitor monitor(3, kRanks);
  const PeerTable table(kRanks);
  const Statements young(3, keys_of(3), monitor, table);
  const Bytes said = frame(young.sign(lost(3, 3)));
  Member root(0), other(0);
  EXPECT_TRUE(root.takes(said, 3, Statements::Origin::join));
  root.expect_failure(3, 3, "it died");
  EXPECT_TRUE(other.takes(said, 3, Statements::Origin::tree));
  other.expect_failure(0, 3, "has not signed it");
}

/// Rank 3's leave after `calls`, signed by it; its token is 32 times 3 where `knows_token`.
Signed<Leave> leave_of_three(uint32_t calls, bool knows_token = true) {
  Leave leave{3, {calls, calls, "barrier"}, {}};
  if (knows_token) leave.token.fill(std::byte{3});
  const Signature signature = sign(keys_of(3), world_id(1), FrameType::leave, encode(leave));
  return {leave, signature};
}
/// Who has seen rank 2 leave after 5 calls, or nobody.
struct Watcher : Member {
  explicit Watcher(bool has_seen_one) : Member(0) {
    LeaveToken token;
    token.fill(std::byte{3});
    PeerRecord third = table[3];
    third.leave_commitment = commitment_to(token);
    table.set(3, std::move(third));
    if (has_seen_one) monitor.mark_left(2, {5, 5, "barrier"});
  }
};

TEST(Statements, ALeaveNeedsTheToken) {
  for (const bool has_seen_one : {false, true}) {
    Watcher watcher(has_seen_one);
    EXPECT_TRUE(watcher.statements->is_genuine_leave(leave_of_three(5), 1));
    EXPECT_EQ(watcher.monitor.failure(), nullptr);
    EXPECT_FALSE(watcher.statements->is_genuine_leave(leave_of_three(5, false), 1));
    watcher.expect_failure(0, 1, "sent a leave in the name of rank 3");
  }
}

TEST(Statements, TheFirstLeaveAndThoseThatDifferNeedTheSignature) {
  Signed<Leave> first = leave_of_three(5), other = leave_of_three(6), same = first;
  for (Signed<Leave>* leave : {&first, &other, &same}) leave->signature[7] ^= std::byte{1};
  for (const auto& [leave, has_seen_one] : {std::pair(first, false), std::pair(other, true)}) {
    Watcher watcher(has_seen_one);
    EXPECT_FALSE(watcher.statements->is_genuine_leave(leave, 1));
    // Rank 1 may have had no reason to look.
    watcher.expect_failure(0, -1, "rank 3 has left after");
  }
  Watcher watcher(true);
  EXPECT_TRUE(watcher.statements->is_genuine_leave(same, 1));
  EXPECT_TRUE(watcher.statements->is_genuine_leave(leave_of_three(6), 1));
  EXPECT_EQ(watcher.monitor.failure(), nullptr);
}

TEST(Statements, ADigestTellsEachChangeOfARecord) {
  const auto table = table_of_all();
  auto changed = table;
  const auto digest_of = [](const std::vector<PeerRecord>& of) {
    Digest digest = {};
    for (const Bytes& frame : record_frames(PeerTable(of)))
      digest = digest_with(digest, ByteSpan(frame).subspan(kFrameHeaderBytes));
    return digest;
  };
  EXPECT_EQ(digest_of(changed), digest_of(table));
  changed[2].verify_key[0] ^= std::byte{1};
  EXPECT_NE(digest_of(changed), digest_of(table));
  changed = table;
  changed[3].addresses = {"127.0.0.1:1"};
  EXPECT_NE(digest_of(changed), digest_of(table));
}

}  // namespace
}  // namespace ropewalk::bootstrap
