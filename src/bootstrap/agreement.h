// The members of an epoch agree on one value, whoever dies meanwhile.
//
// Single-decree Paxos (Lamport, "Paxos Made Simple", 2001), whose leader is the lowest member that
// is not taken for dead, as that of a view in "Viewstamped Replication Revisited" (Liskov and
// Cowling, 2012). What is decided is the list of the members that took part: the next epoch's, as
// in "Reconfiguring a State Machine" (Lamport, Malkhi and Zhou, 2010). docs/protocol.md has the
// messages.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ropewalk::bootstrap {

/// Numbers the attempts of leaders; 0 is before the first.
struct Ballot {
  uint32_t round = 0;
  uint32_t leader = 0;
  auto operator<=>(const Ballot&) const = default;
};

/// Contribution::call of a member that votes, and is not to be in the decision: the others go on
/// without it, and are enough however few they are.
constexpr uint8_t kDepartCall = 5;

/// What a member brings.
struct Contribution {
  uint64_t bits = 0;
  uint8_t call = 0;  // what the member agrees for: the same on all who stay, not 0
  std::string text;
  bool operator==(const Contribution&) const = default;
};

/// What is decided: the same on all members that hear of it.
struct Decision {
  std::vector<int> members;  // that took part, and stay, ascending
  std::vector<int> ended;    // of the others: their processes have ended, gave up, or departed
  uint64_t bits = 0;         // the AND of the members'
  uint8_t call = 0;          // the members'; 0 where they differ
  std::string text;          // of the first member
  bool operator==(const Decision&) const = default;
};

/// How many must take part. No two groups that have nobody in common are both enough, even where
/// their members go by different rules.
struct Quorum {
  bool tie_breaker = false;  // half is enough, with the lowest; else only more than half
  int least = 1;             // and so many at least

  bool is_met(size_t present, size_t all, bool has_lowest) const {
    return (2 * present > all || (tie_breaker && has_lowest && 2 * present == all)) &&
           present >= static_cast<size_t>(least);
  }
};

/// Of those that have brought something, and still live: the first member's text counts, as does
/// their call where all say the same. `out` are the others of which no more comes.
Decision decision_of(const std::map<int, Contribution>& brought, std::set<int> out);

/// How an agreement ended for this rank.
struct AgreementEnd {
  std::optional<Decision> decision;  // nothing: there was no quorum in time
  std::vector<int> seen;             // then: who took part, as far as this rank knows
};

struct AgreementMessage {
  enum class Kind : uint8_t {
    prepare = 1,   // leader to member: promise to take part in no earlier ballot
    promise = 2,   // member to leader: its contribution, and what it has accepted before
    accept = 3,    // leader to member
    accepted = 4,  // member to leader
    decided = 5,   // anybody to anybody
    refused = 6,   // member to leader: it has promised the ballot in here
    gave_up = 7,   // to all: this member takes part no more
    ask = 8,       // to whom a member follows: what was decided?
  };
  Kind kind = Kind::prepare;
  uint32_t instance = 0;  // of the epoch's agreements, counted from 1
  Ballot ballot = {};
  Contribution contribution = {};  // promise
  Ballot accepted_ballot = {};     // promise; round 0: nothing has been accepted
  Decision decision = {};          // promise (as accepted), accept, decided
  bool operator==(const AgreementMessage&) const = default;
};

/// One member's part in one agreement. No thread, no clock, no socket: whoever owns it passes on
/// what happens, then calls `advance`, sends what `take_messages` gives, and makes the links that
/// `links_wanted` names.
/// Messages may be lost, come twice, late, and in any order.
///
/// A quorum of the voters must take part; the other members are learners, who bring their
/// contributions and ask. A leader waits for those that are not taken for
/// dead, and for a moment for the others, at most until `patient_until_ns`. A member that has not
/// heard of its leader for a quarter of that time follows the next.
class Agreement {
 public:
  struct Setup {
    int rank = 0;
    std::vector<int> members;  // ascending, this rank among them
    size_t learners = 0;       // so many of them, the last, have no vote and never lead
    Quorum quorum = {};        // of the voters
    uint32_t instance = 1;
    Contribution contribution;
    std::vector<int> suspects;  // taken for dead, until they are heard
    int64_t begun_ns = 0;
    int64_t patient_until_ns = 0;

    size_t voters() const { return members.size() - learners; }
    bool is_voter(int voter) const { return voter <= members[voters() - 1]; }
    /// Of the voters in `range`.
    template <class Range, class RankOf = std::identity>
    bool is_quorum(const Range& range, RankOf rank_of = {}) const {
      const auto count = std::ranges::count_if(
          range, [this](int one) { return is_voter(one); }, rank_of);
      const bool has_lowest = std::ranges::find(range, members[0], rank_of) != range.end();
      return quorum.is_met(static_cast<size_t>(count), voters(), has_lowest);
    }
    /// Without those no quorum is left.
    bool is_hopeless(const std::set<int>& ended) const;
    /// Nobody waits longer for a member of which nothing is heard.
    int64_t silence_max_ns() const {
      return std::max<int64_t>(1, (patient_until_ns - begun_ns) / 4);
    }
    /// For suspects that is.
    int64_t suspects_until_ns() const;
  };
  explicit Agreement(Setup setup);

  void hear(int from, const AgreementMessage& message, int64_t now_ns);
  /// Messages to `peer` arrive from now on.
  void note_linked(int peer);
  /// They do not; another link may be made.
  void note_unlinked(int peer);
  /// The process of `peer` has ended, or takes part no more. For ever.
  void note_ended(int peer);
  void advance(int64_t now_ns);
  /// When `advance` has something to do though nothing has happened.
  int64_t wake_at_ns() const { return wake_at_ns_; }

  std::vector<int> links_wanted() const;
  std::vector<std::pair<int, AgreementMessage>> take_messages() {
    return std::exchange(outbox_, {});
  }
  const std::optional<Decision>& decision() const { return decision_; }
  /// So many have ended that the rest is no quorum.
  bool is_hopeless() const { return !decision_ && setup_.is_hopeless(ended_); }
  /// For messages: who takes part, as this member knows. A leader knows most.
  std::vector<int> seen() const;
  /// This member takes part no more, as the others are told.
  void give_up();

 private:
  enum class Role : uint8_t { follower, preparing, accepting };
  using Kind = AgreementMessage::Kind;

  bool is_member(int rank) const;
  int candidate() const;
  void follow(int64_t now_ns);
  void ask(int64_t now_ns);
  void prepare(int64_t now_ns);
  void propose_if_ready(int64_t now_ns);
  Decision proposal() const;
  Decision fresh_proposal() const;
  void learn(const Decision& decision);
  void answer_prepare(int from, const AgreementMessage& message);
  void answer_accept(int from, const AgreementMessage& message);
  void take_refusal(const AgreementMessage& message, int64_t now_ns);
  AgreementMessage message(Kind kind) const;
  void send(int to, AgreementMessage message);
  void broadcast(const AgreementMessage& message);

  const Setup setup_;
  std::set<int> ended_, suspects_, linked_, heard_;
  std::set<int> askers_;  // to be told what is decided
  std::vector<std::pair<int, AgreementMessage>> outbox_;
  int64_t wake_at_ns_ = 0;
  std::optional<Decision> decision_;
  bool gave_up_ = false;

  // As an acceptor.
  Ballot promised_, accepted_ballot_;
  Decision accepted_;

  // As a follower.
  int leader_ = -1;
  bool asks_leader_ = false;  // what was decided, once they are linked
  int64_t leader_heard_ns_ = 0;

  // As a leader.
  Role role_ = Role::follower;
  Ballot ballot_;
  using Promises = std::map<int, AgreementMessage>;
  Promises promises_;      // of ballot_
  std::set<int> accepts_;  // of ballot_
  Decision proposed_;
  int64_t repeat_at_ns_ = 0;  // also of a learner's questions
  int64_t dials_at_ns_ = 0;   // those who have not dialed this leader
  bool dials_ = false;
};

}  // namespace ropewalk::bootstrap
