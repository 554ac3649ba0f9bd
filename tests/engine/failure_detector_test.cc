// When the engine holds a peer for lost that has gone, or left.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>

#include "tests/engine/broadcast_testing.h"
#include "transports/fake/forwarding_transport.h"
#include "transports/fake/instant_fabric.h"

namespace ropewalk {
namespace {

constexpr int64_t kMs = 1'000'000;

class SetClock final : public Clock {
 public:
  int64_t now_ns() const override { return now; }
  int64_t now = 1'000'000 * kMs;
};

/// Keeps the first failure; rank 1 leaves when it is told.
class Keeper final : public Monitor {
 public:
  const Failure* failure() const noexcept override { return failure_ ? &*failure_ : nullptr; }
  void report(const Failure& failure) override {
    if (!failure_) failure_ = failure;
  }
  bool has_left(int) const noexcept override { return left; }
  int event_fd() const noexcept override { return -1; }
  int rank_in_epoch(int rank) const override { return rank - departed; }
  bool left = false;
  int departed = 0;  // lower ranks, in epochs before

 private:
  std::optional<Failure> failure_;
};

/// An adapter of which the test says what it has noticed.
class Adapter final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  Capabilities capabilities() const override {
    Capabilities capabilities = below_.capabilities();
    capabilities.silence_max_ns = silence_max_ns;
    return capabilities;
  }
  size_t poll(std::span<Completion> into) override {
    if (!brings.empty()) {
      const size_t count = brings.size();
      std::ranges::copy(std::exchange(brings, {}), into.begin());
      return count;
    }
    if (!lost) return below_.poll(into);
    lost = false;
    into[0] = {Completion::Kind::lost, lost_peer, 0, 0};
    return 1;
  }
  LossReason why_lost(int) const override {
    return {"as the test wants it", silent, seen, closed, {}};
  }

  int64_t silence_max_ns = 0;
  bool lost = false, silent = false, seen = false, closed = false;
  int lost_peer = 1;
  std::vector<Completion> brings;
};

/// Rank 0 waits for a broadcast of rank 1; there is one more.
class EngineThatWaits : public ::testing::Test {
 protected:
  EngineThatWaits() {
    operation = prepare_broadcast(engine, data, 1);
    engine.start(*operation);
  }
  /// Until the engine gives up, in ms; -1: after ten seconds it has not.
  int64_t gives_up_after_ms() {
    const int64_t begin = clock.now;
    while (monitor.failure() == nullptr && clock.now - begin < 10'000 * kMs) {
      clock.now += 10 * kMs;
      engine.progress();
      engine.failures().check_stalled(clock.now);
    }
    return monitor.failure() != nullptr ? (clock.now - begin) / kMs : -1;
  }

  std::array<float, 2> data{};
  SetClock clock;
  Keeper monitor;
  InstantFabric fabric{3};
  Adapter transport{fabric.transport(0)};
  MemoryRegistry memories;
  LoneEngine engine{0, 3, {&transport}, {0, 0, 0}, memories, monitor, clock};
  std::shared_ptr<Operation> operation;
};

// It asked whether rank -1 is still computing.
TEST_F(EngineThatWaits, NamesNoRankMinusOneWhereItsTurnHasNotCome) {
  std::vector<std::shared_ptr<Operation>> later;
  for (int i = 0; i < kContexts; ++i) {
    later.push_back(prepare_broadcast(engine, data, 1));
    engine.start(*later.back());
  }
  engine.failures().fail_timeout(*later.back(), 1'000'000'000);
  EXPECT_EQ(monitor.failure()->text().find("-1"), std::string::npos) << monitor.failure()->text();
  EXPECT_NE(monitor.failure()->text().find("another rank"), std::string::npos);
}

// After two shrinks messages named ranks as the job had numbered them.
TEST_F(EngineThatWaits, NamesRanksAsTheEpochNumbersThem) {
  monitor.departed = 1;
  transport.lost = transport.seen = true;
  EXPECT_GE(gives_up_after_ms(), 0);
  EXPECT_NE(monitor.failure()->text().find("connection to rank 0"), std::string::npos)
      << monitor.failure()->text();
}

TEST_F(EngineThatWaits, NamesWhoSendsNonsenseAsTheEpochNumbersIt) {
  monitor.departed = 1;
  transport.brings = {{Completion::Kind::notice, 2, 0, 0xffffffff}};
  EXPECT_GE(gives_up_after_ms(), 0);
  EXPECT_NE(monitor.failure()->text().find("rank 1 sent a notice that makes no sense"),
            std::string::npos)
      << monitor.failure()->text();
}

TEST_F(EngineThatWaits, WaitsForAsLongAsNothingIsWrong) {
  EXPECT_EQ(gives_up_after_ms(), -1);
}

TEST_F(EngineThatWaits, LetsTheMonitorNameWhoIsToBlameForALoss) {
  transport.silence_max_ns = 700 * kMs;
  transport.lost = true;
  const int64_t after_ms = gives_up_after_ms();
  EXPECT_GE(after_ms, 250);
  EXPECT_LE(after_ms, 320);
  EXPECT_EQ(monitor.failure()->peer, 1);
}

// Who had closed the connection was blamed before it had found out, and told, whom it had lost.
TEST_F(EngineThatWaits, WaitsLongerForNewsWhereThePeerHasClosed) {
  transport.lost = transport.closed = true;
  const int64_t after_ms = gives_up_after_ms();
  EXPECT_GE(after_ms, 2500);
  EXPECT_LE(after_ms, 2570);
}

// Once that was 250 ms more than the adapter had waited already.
TEST_F(EngineThatWaits, BlamesAtOnceWhoHasBeenSilentForLong) {
  transport.silence_max_ns = 700 * kMs;
  transport.lost = transport.silent = true;
  EXPECT_LE(gives_up_after_ms(), 70);
}

// A peer to which this rank had sent all that it was to send waited for it to the deadline, where
// the path was cut that it takes in that direction.
TEST_F(EngineThatWaits, ReportsWhoIsSilentThoughNothingHereWaitsForIt) {
  engine.links().to(2);
  transport.silence_max_ns = 700 * kMs;
  transport.lost = transport.silent = true;
  transport.lost_peer = 2;
  EXPECT_LE(gives_up_after_ms(), 70);
  ASSERT_NE(monitor.failure(), nullptr);
  EXPECT_EQ(monitor.failure()->peer, 2);
}

// The peer, which saw only that the link was closed, was the first to say something.
TEST_F(EngineThatWaits, TellsAtOnceWhatItHasSeen) {
  transport.lost = transport.seen = true;
  EXPECT_LE(gives_up_after_ms(), 10);
  EXPECT_EQ(monitor.failure()->peer, 1);
  EXPECT_NE(monitor.failure()->reason.find("as the test wants it"), std::string::npos);
}

TEST_F(EngineThatWaits, ASilenceShorterThanTheGraceCountsTowardsIt) {
  transport.silence_max_ns = 100 * kMs;
  transport.lost = transport.silent = true;
  const int64_t after_ms = gives_up_after_ms();
  EXPECT_GE(after_ms, 150);
  EXPECT_LE(after_ms, 220);
}

// Over RDMA a rank was told 15 s after its peer had left: for so long an adapter sends.
TEST_F(EngineThatWaits, AwaitsWhatALeaverHadSentUntilItTellsThatNothingMoreComes) {
  LoneEngine leaver{1, 3, {&fabric.transport(1)}, {0, 0, 0}, memories, monitor, clock};
  leaver.links().to(0).connect();
  engine.progress();
  leaver.progress();
  transport.silence_max_ns = 20'000 * kMs;
  monitor.left = true;
  EXPECT_EQ(gives_up_after_ms(), -1);
  leaver.end_links();
  leaver.worker().connections().set_left();
  EXPECT_LE(gives_up_after_ms(), 100);
  ASSERT_NE(monitor.failure(), nullptr);
  EXPECT_NE(monitor.failure()->reason.find("left the job"), std::string::npos);
}

// A slice may be on its way behind the messages.
TEST_F(EngineThatWaits, TheEndOfTheMessagesAloneIsNotTheEnd) {
  LoneEngine leaver{1, 3, {&fabric.transport(1)}, {0, 0, 0}, memories, monitor, clock};
  leaver.links().to(0).connect();
  engine.progress();
  monitor.left = true;
  transport.brings = {
      {Completion::Kind::notice, 1, make_notice(NoticeKind::end, 0, 0, kEndOfUrgent), 0}};
  EXPECT_EQ(gives_up_after_ms(), -1);
}

// The leaver's part of the link was still on its way when a second was over.
TEST_F(EngineThatWaits, AwaitsALeaverWithWhichNoLinkStandsYetUntilItAnswers) {
  LoneEngine leaver{1, 3, {&fabric.transport(1)}, {0, 0, 0}, memories, monitor, clock};
  leaver.end_links();
  leaver.worker().connections().set_left();
  transport.silence_max_ns = 20'000 * kMs;
  monitor.left = true;
  EXPECT_EQ(gives_up_after_ms(), -1);
  leaver.failures().answer_connects();
  EXPECT_TRUE(leaver.links().open().empty()) << "who has left needs no inbox";
  EXPECT_LE(gives_up_after_ms(), 100);
  ASSERT_NE(monitor.failure(), nullptr);
  EXPECT_NE(monitor.failure()->reason.find("left the job"), std::string::npos);
}

TEST_F(EngineThatWaits, AwaitsALeaverThatDoesNotAnswerForAsLongAsALinkMayBeSilent) {
  transport.silence_max_ns = 3'000 * kMs;
  monitor.left = true;
  const int64_t after_ms = gives_up_after_ms();
  EXPECT_GE(after_ms, 3000);
  EXPECT_LE(after_ms, 3120);
}

// Whoever had prepared a receive, and not started it, waited for ever in next_sender.
TEST_F(EngineThatWaits, ALinkThatNobodyHasAskedForBringsNothing) {
  Keeper quiet;
  quiet.left = true;
  InstantFabric others{3};
  LoneEngine idle{0, 3, {&others.transport(0)}, {0, 0, 0}, memories, quiet, clock};
  const auto prepared = prepare_broadcast(idle, data, 1);
  EXPECT_NE(idle.links().find(1), nullptr);
  for (int i = 0; i < 110 && quiet.failure() == nullptr; ++i) {
    clock.now += 10 * kMs;
    EXPECT_EQ(idle.next_sender(0), std::nullopt);
  }
  ASSERT_NE(quiet.failure(), nullptr);
  EXPECT_NE(quiet.failure()->reason.find("every other rank has left"), std::string::npos);
}

TEST_F(EngineThatWaits, GivesALeaverASecondWhoseLinkWillNotTell) {
  monitor.left = transport.lost = true;
  const int64_t after_ms = gives_up_after_ms();
  EXPECT_GE(after_ms, 1000);
  EXPECT_LE(after_ms, 1120);
  EXPECT_NE(monitor.failure()->reason.find("left the job"), std::string::npos);
}

}  // namespace
}  // namespace ropewalk
