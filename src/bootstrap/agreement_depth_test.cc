// How many messages deep an agreement of many members is, beside a barrier of as many ranks: the
// longest chain of messages each of which is sent because of the one before, connections included.
// Every message takes the same time; members do all else at once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>

#include "base/clock.h"
#include "bootstrap/agreement_testing.h"
#include "simulate/plan.h"

namespace ropewalk::bootstrap {
namespace {

constexpr int64_t kLatency_ns = 20'000;
// Depth of a new connection: SYN, its acknowledgement, Hello, Reply, Proof, and the Answer, which
// the acceptor does not wait for.
constexpr int kAcceptedDepth = 5, kConnectedDepth = 6;
/// A dialer takes a process for ended that was refused in so many rounds.
constexpr int kRefusedDepth = 2 * kRoundsToGone;

/// Members of one agreement; some have ended before it begins, or end as they send.
class DeepAgreement {
 public:
  explicit DeepAgreement(int size) : members_(static_cast<size_t>(size)) {}

  void end_before(int rank) { member(rank).is_alive = false; }
  /// With its `sends`-th message, which arrives.
  void end_after(int rank, int sends) { member(rank).sends_left = sends; }

  /// All begin at once, and take for dead whoever is. Without a connection, or with those to the
  /// lowest that is alive.
  void run(bool is_linked) {
    for (int rank = 0; rank < size(); ++rank)
      if (member(rank).is_alive) begin(rank);
    const int leader = alive().front();
    for (const int rank : is_linked ? alive() : std::vector<int>())
      if (rank != leader) open_both(leader, rank);
    for (const int rank : alive()) pump(rank);
    while (!events_.empty() && !all_have_decided()) {
      const Event event = events_.top();
      events_.pop();
      now_ns_ = event.at_ns;
      if (!member(event.rank).is_alive) continue;
      member(event.rank).depth = std::max(member(event.rank).depth, event.depth);
      event.run();
      pump(event.rank);
    }
  }

  std::vector<int> alive() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank)
      if (members_[static_cast<size_t>(rank)].is_alive) ranks.push_back(rank);
    return ranks;
  }
  /// Nothing where they differ, or somebody has not decided.
  std::optional<Decision> decision() {
    std::optional<Decision> first;
    for (const int rank : alive()) {
      const auto& decision = member(rank).agreement->decision();
      if (!decision || (first && *first != *decision)) return {};
      first = decision;
    }
    return first;
  }
  /// Of all that members had heard when they decided.
  int depth() const { return std::ranges::max_element(members_, {}, &Member::depth)->depth; }
  /// Of the member that has sent or heard most.
  int messages() const {
    return std::ranges::max_element(members_, {}, &Member::messages)->messages;
  }
  int64_t now_ns() const { return now_ns_; }

 private:
  struct Member {
    bool is_alive = true;
    int sends_left = -1;  // -1: any number
    int depth = 0;
    int messages = 0;  // that it has sent or heard
    std::optional<Agreement> agreement;
    std::set<int> linked, dialing;
  };
  struct Event {
    int64_t at_ns;
    uint64_t number;
    int rank, depth;  // whose, and how deep the message is
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return std::pair(at_ns, number) > std::pair(other.at_ns, other.number);
    }
  };

  int size() const { return static_cast<int>(members_.size()); }
  Member& member(int rank) { return members_[static_cast<size_t>(rank)]; }
  bool all_have_decided() {
    return std::ranges::all_of(members_, [](const Member& member) {
      return !member.is_alive || member.agreement->decision();
    });
  }

  void begin(int rank) {
    Agreement::Setup setup{.rank = rank,
                           .members = std::vector<int>(members_.size()),
                           .contribution = {~uint64_t{0}, 1, "text"},
                           .suspects = {},
                           .begun_ns = 0,
                           .patient_until_ns = 4000 * kMillisecond_ns};
    std::iota(setup.members.begin(), setup.members.end(), 0);
    for (int peer = 0; peer < size(); ++peer)
      if (!member(peer).is_alive) setup.suspects.push_back(peer);
    member(rank).agreement.emplace(std::move(setup));
  }

  /// `run` at `rank`, so many messages after `cause` has done what it does now.
  void deliver(int cause, int rank, int messages, std::function<void()> run) {
    events_.push({now_ns_ + messages * kLatency_ns, events_made_++, rank,
                  member(cause).depth + messages, std::move(run)});
  }

  void open_both(int a, int b) {
    open(a, b);
    open(b, a);
  }
  void open(int rank, int peer) {
    if (!member(peer).is_alive) return note_ended(rank, peer);
    member(rank).linked.insert(peer);
    member(rank).agreement->note_linked(peer);
  }
  void note_ended(int rank, int peer) {
    member(rank).linked.erase(peer);
    member(rank).agreement->note_ended(peer);
  }

  void pump(int rank) {
    Member& self = member(rank);
    self.agreement->advance(now_ns_);
    for (const int peer : self.agreement->links_wanted())
      if (self.dialing.insert(peer).second) dial(rank, peer);
    for (const auto& [peer, message] : self.agreement->take_messages()) {
      if (!self.is_alive) return;
      send(rank, peer, message);
    }
    const int64_t wake_ns = self.agreement->wake_at_ns();
    if (!self.is_alive || self.agreement->decision()) return;
    events_.push({wake_ns, events_made_++, rank, 0, [] {}});
  }

  void dial(int rank, int peer) {
    if (!member(peer).is_alive)
      return deliver(rank, rank, kRefusedDepth, [=, this] { note_ended(rank, peer); });
    deliver(rank, peer, kAcceptedDepth, [=, this] { open(peer, rank); });
    deliver(rank, rank, kConnectedDepth, [=, this] { open(rank, peer); });
  }

  void send(int rank, int peer, const AgreementMessage& message) {
    Member& self = member(rank);
    if (!self.linked.contains(peer)) return;
    ++self.messages;
    deliver(rank, peer, 1, [=, this] {
      ++member(peer).messages;
      member(peer).agreement->hear(rank, message, now_ns_);
    });
    if (self.sends_left < 0 || --self.sends_left > 0) return;
    self.is_alive = false;  // its kernel closes its connections
    for (const int other : self.linked)
      deliver(rank, other, 1, [=, this] { note_ended(other, rank); });
  }

  std::vector<Member> members_;
  std::priority_queue<Event> events_;
  uint64_t events_made_ = 0;
  int64_t now_ns_ = 0;
};

/// Of ranks on hosts of their own, in messages, with whatever algorithm the planner chooses.
int barrier_depth(int ranks) {
  Network network = network_of_template("flat:latency=20us", ranks);
  for (NetworkLink& link : network.links) link.s_per_byte = 0;
  network.between.overhead_s = network.receive_s = 0;
  network.copy_s_per_byte = network.add_s_per_byte = 0;
  const PlanRequest request = request_on(network, Collective::barrier, 0, 1);
  Routes routes(network);
  const SimulatedCall call = simulate_call(routes, call_for(request, choose(request).algorithm));
  EXPECT_EQ(call.ps % (1000 * kLatency_ns), 0) << "something else takes time, too";
  return static_cast<int>(call.ps / (1000 * kLatency_ns));
}

constexpr int kMany = 512;

TEST(AgreementDepth, IsTheSameForAnyNumberOfMembers) {
  for (int size = 2; size <= kMany; size = size < 9 ? size + 1 : 2 * size - 1 - size % 2) {
    DeepAgreement linked(size), unlinked(size);
    linked.run(true);
    unlinked.run(false);
    for (DeepAgreement* agreement : {&linked, &unlinked}) {
      ASSERT_TRUE(agreement->decision()) << size;
      EXPECT_EQ(agreement->decision()->members, agreement->alive()) << size;
      EXPECT_EQ(agreement->now_ns(), agreement->depth() * kLatency_ns) << "a wait, too";
    }
    EXPECT_EQ(linked.depth(), 5) << size;
    EXPECT_EQ(unlinked.depth(), kConnectedDepth + 4) << size;
    EXPECT_LE(unlinked.messages(), 6 * (size - 1)) << "the leader's work grows with all members";
  }
}

TEST(AgreementDepth, OfManyIsNoMoreThanThreeTimesABarrier) {
  const int barrier = barrier_depth(kMany), most = 3 * barrier;
  EXPECT_EQ(barrier, 9);
  const auto measure = [&](const std::string& what, std::vector<int> dead) {
    DeepAgreement agreement(kMany);
    for (const int rank : dead) agreement.end_before(rank);
    agreement.run(false);
    ASSERT_TRUE(agreement.decision()) << what;
    EXPECT_EQ(agreement.decision()->members, agreement.alive()) << what;
    EXPECT_EQ(agreement.decision()->ended, dead) << what;
    EXPECT_LE(agreement.depth(), most) << what;
    RecordProperty(what, agreement.depth());
  };
  measure("nobody has ended", {});
  measure("some have ended", {7, 100, 511});
  measure("the first have ended", {0, 1, 2});
  measure("a quarter has ended", [] {
    std::vector<int> dead(kMany / 4);
    for (size_t i = 0; i < dead.size(); ++i) dead[i] = static_cast<int>(4 * i);
    return dead;
  }());
}

/// The members know at once, and follow the next, which begins anew.
TEST(AgreementDepth, GrowsByTheSameForEachLeaderThatEnds) {
  constexpr int kPerLeader = kConnectedDepth + 4 + 1;  // 1: that it has ended
  for (const int size : {5, 64, kMany})
    for (const int leaders : {1, 2, 3}) {
      if (2 * leaders >= size) continue;
      for (const int sends : {1, size / 2, size, size + size / 2, 2 * size, 2 * size + size / 2}) {
        const std::string what = fmt::format("{} of {} after {} messages", leaders, size, sends);
        DeepAgreement agreement(size);
        for (int rank = 0; rank < leaders; ++rank) agreement.end_after(rank, sends);
        agreement.run(false);
        ASSERT_TRUE(agreement.decision()) << what;
        EXPECT_LE(agreement.depth(), kConnectedDepth + 4 + leaders * kPerLeader) << what;
      }
    }
}

}  // namespace
}  // namespace ropewalk::bootstrap
