#include "bootstrap/agreement.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <limits>

#include "base/clock.h"

namespace ropewalk::bootstrap {
namespace {

/// For those who are taken for dead, and may have been out of reach for a moment.
constexpr int64_t kSuspectsWait_ns = 100 * kMillisecond_ns;
/// A leader dials those who have not dialed it within so long: two links of a pair cost two
/// handshakes.
constexpr int64_t kFollowersDial_ns = 10 * kMillisecond_ns;

}  // namespace

Decision decision_of(const std::map<int, Contribution>& brought, std::set<int> out) {
  Decision fresh{.members = {}, .ended = {}, .bits = ~uint64_t{0}, .call = kDepartCall, .text = {}};
  for (const auto& [rank, contribution] : brought) {
    if (contribution.call == kDepartCall) {
      out.insert(rank);
      continue;
    }
    if (fresh.members.empty()) {
      fresh.text = contribution.text;
      fresh.call = contribution.call;
    }
    fresh.members.push_back(rank);
    fresh.bits &= contribution.bits;
    if (contribution.call != fresh.call) fresh.call = 0;
  }
  fresh.ended.assign(out.begin(), out.end());
  return fresh;
}

bool Agreement::Setup::is_hopeless(const std::set<int>& ended) const {
  std::vector<int> left;
  std::ranges::set_difference(members, ended, std::back_inserter(left));
  return !is_quorum(left);
}

int64_t Agreement::Setup::suspects_until_ns() const {
  return begun_ns + std::min(kSuspectsWait_ns, silence_max_ns() / 2);
}

Agreement::Agreement(Setup setup)
    : setup_(std::move(setup)),
      suspects_(setup_.suspects.begin(), setup_.suspects.end()),
      wake_at_ns_(setup_.begun_ns),
      leader_heard_ns_(setup_.begun_ns) {
  assert(std::ranges::is_sorted(setup_.members) && is_member(setup_.rank) && setup_.instance > 0);
  assert(setup_.learners < setup_.members.size() && setup_.quorum.least >= 1);
  suspects_.erase(setup_.rank);
}

bool Agreement::is_member(int rank) const {
  return std::ranges::binary_search(setup_.members, rank);
}

std::vector<int> Agreement::seen() const {
  std::set<int> all = heard_;
  all.insert(setup_.rank);
  for (const int rank : ended_) all.erase(rank);
  return {all.begin(), all.end()};
}

// ---- What happens ----

void Agreement::hear(int from, const AgreementMessage& message, int64_t now_ns) {
  if (message.instance != setup_.instance || !is_member(from) || from == setup_.rank || gave_up_ ||
      ended_.contains(from))
    return;
  heard_.insert(from);
  suspects_.erase(from);
  if (from == leader_) leader_heard_ns_ = now_ns;
  if (message.kind == Kind::gave_up) return note_ended(from);
  if (message.kind == Kind::decided) return learn(message.decision);
  if (decision_) return send(from, this->message(Kind::decided));
  if (message.kind == Kind::prepare) answer_prepare(from, message);
  if (message.kind == Kind::accept) answer_accept(from, message);
  if (message.kind == Kind::ask) askers_.insert(from);
  if (message.kind == Kind::refused) take_refusal(message, now_ns);
  if (message.ballot != ballot_) return;
  if (message.kind == Kind::promise && role_ == Role::preparing) promises_[from] = message;
  if (message.kind == Kind::accepted && role_ == Role::accepting) accepts_.insert(from);
  propose_if_ready(now_ns);
}

/// A leader greets whom it hears of, and whoever has decided tells.
void Agreement::note_linked(int peer) {
  if (!is_member(peer) || ended_.contains(peer) || !linked_.insert(peer).second) return;
  if (gave_up_) return send(peer, message(Kind::gave_up));
  if (decision_) return send(peer, message(Kind::decided));
  if (role_ == Role::preparing) send(peer, message(Kind::prepare));
  if (role_ == Role::accepting) send(peer, message(Kind::accept));
}

void Agreement::note_unlinked(int peer) {
  linked_.erase(peer);
}

void Agreement::note_ended(int peer) {
  if (!is_member(peer) || peer == setup_.rank) return;
  linked_.erase(peer);
  ended_.insert(peer);
  promises_.erase(peer);  // more than half of those in a decision are to go on
}

void Agreement::give_up() {
  if (std::exchange(gave_up_, true) || decision_) return;
  broadcast(message(Kind::gave_up));
}

// ---- Followers ----

int Agreement::candidate() const {
  for (const int rank : setup_.members)
    if (setup_.is_voter(rank) && !ended_.contains(rank) && !suspects_.contains(rank)) return rank;
  return setup_.is_voter(setup_.rank) ? setup_.rank : -1;
}

/// The lowest voter that is not taken for dead; this one, where all lower ones are. A learner that
/// takes all for dead asks them again. One that follows another than before may have missed what
/// was decided, and whom it follows has no reason to say that over a link that both have had
/// before.
void Agreement::follow(int64_t now_ns) {
  const int before = leader_;
  if (const int lowest = candidate(); lowest != leader_) {
    leader_ = lowest;
    leader_heard_ns_ = now_ns;
  }
  while (leader_ != setup_.rank && now_ns - leader_heard_ns_ >= setup_.silence_max_ns()) {
    suspects_.insert(leader_);
    leader_ = candidate();
    leader_heard_ns_ = now_ns;
  }
  if (leader_ < 0) {
    suspects_.clear();
    leader_ = candidate();
    leader_heard_ns_ = now_ns;
  }
  if (before >= 0 && leader_ != before) asks_leader_ = true;
  if (asks_leader_ && linked_.contains(leader_)) {
    send(leader_, message(Kind::ask));
    asks_leader_ = false;
  }
}

std::vector<int> Agreement::links_wanted() const {
  std::vector<int> wanted;
  if (decision_ || gave_up_ || leader_ < 0) return wanted;
  if (leader_ != setup_.rank) return linked_.contains(leader_) ? wanted : std::vector{leader_};
  if (!dials_) return wanted;
  for (const int rank : setup_.members)
    if (rank != setup_.rank && !ended_.contains(rank) && !linked_.contains(rank))
      wanted.push_back(rank);
  return wanted;
}

void Agreement::advance(int64_t now_ns) {
  wake_at_ns_ = std::numeric_limits<int64_t>::max();
  if (decision_ || gave_up_) return;
  follow(now_ns);
  if (leader_ != setup_.rank) {
    role_ = Role::follower;
    dials_ = false;
    wake_at_ns_ = leader_heard_ns_ + setup_.silence_max_ns();
    return ask(now_ns);
  }
  if (role_ == Role::follower) {
    dials_at_ns_ = now_ns + std::min(kFollowersDial_ns, setup_.silence_max_ns() / 2);
    prepare(now_ns);
  }
  propose_if_ready(now_ns);
  if (decision_) return;
  if (now_ns >= repeat_at_ns_) {  // also a sign of life
    repeat_at_ns_ = now_ns + setup_.silence_max_ns() / 4;
    broadcast(message(role_ == Role::preparing ? Kind::prepare : Kind::accept));
  }
  dials_ = now_ns >= dials_at_ns_;
  wake_at_ns_ = repeat_at_ns_;
  for (const int64_t until_ns : {setup_.suspects_until_ns(), setup_.patient_until_ns, dials_at_ns_})
    if (now_ns < until_ns) wake_at_ns_ = std::min(wake_at_ns_, until_ns);
}

/// A learner. A voter that hears nothing leads in the end, and is told then.
void Agreement::ask(int64_t now_ns) {
  if (setup_.is_voter(setup_.rank)) return;
  if (now_ns >= repeat_at_ns_) {
    repeat_at_ns_ = now_ns + setup_.silence_max_ns() / 4;
    if (linked_.contains(leader_)) send(leader_, message(Kind::ask));
  }
  wake_at_ns_ = std::min(wake_at_ns_, repeat_at_ns_);
}

// ---- Acceptors ----

void Agreement::answer_prepare(int from, const AgreementMessage& message) {
  if (message.ballot < promised_) return send(from, this->message(Kind::refused));
  promised_ = message.ballot;
  AgreementMessage promise = this->message(Kind::promise);
  promise.ballot = message.ballot;
  send(from, std::move(promise));
}

void Agreement::answer_accept(int from, const AgreementMessage& message) {
  if (message.ballot < promised_) return send(from, this->message(Kind::refused));
  promised_ = accepted_ballot_ = message.ballot;
  accepted_ = message.decision;
  AgreementMessage accepted = this->message(Kind::accepted);
  accepted.ballot = message.ballot;
  send(from, std::move(accepted));
}

// ---- Leaders ----

void Agreement::prepare(int64_t now_ns) {
  role_ = Role::preparing;
  ballot_ = {promised_.round + 1, static_cast<uint32_t>(setup_.rank)};
  promised_ = ballot_;
  promises_.clear();
  accepts_.clear();
  promises_[setup_.rank] = message(Kind::promise);
  repeat_at_ns_ = now_ns + setup_.silence_max_ns() / 4;
  broadcast(message(Kind::prepare));
}

/// Another has led meanwhile. It follows, once it has heard of this one, if that is lower.
void Agreement::take_refusal(const AgreementMessage& message, int64_t now_ns) {
  if (role_ == Role::follower || message.ballot <= ballot_) return;
  promised_ = std::max(promised_, message.ballot);
  prepare(now_ns);
}

void Agreement::propose_if_ready(int64_t now_ns) {
  if (role_ == Role::preparing) {
    if (promised_ != ballot_) return prepare(now_ns);  // another has its word since
    const bool is_complete = std::ranges::all_of(setup_.members, [&](int rank) {
      return promises_.contains(rank) || ended_.contains(rank) ||
             (suspects_.contains(rank) && now_ns >= setup_.suspects_until_ns());
    });
    if (!setup_.is_quorum(promises_, &Promises::value_type::first) ||
        (!is_complete && now_ns < setup_.patient_until_ns))
      return;
    proposed_ = proposal();
    role_ = Role::accepting;
    accepted_ballot_ = ballot_;
    accepted_ = proposed_;
    accepts_ = {setup_.rank};
    broadcast(message(Kind::accept));
  }
  if (role_ == Role::accepting && setup_.is_quorum(accepts_)) {
    learn(proposed_);
    broadcast(message(Kind::decided));
  }
}

/// What may have been decided already, else a new list.
Decision Agreement::proposal() const {
  const auto latest = std::ranges::max_element(
      promises_, {}, [](const auto& p) { return p.second.accepted_ballot; });
  if (latest->second.accepted_ballot.round > 0) return latest->second.decision;
  return fresh_proposal();
}

Decision Agreement::fresh_proposal() const {
  std::map<int, Contribution> brought;
  for (const auto& [rank, promise] : promises_) brought.emplace(rank, promise.contribution);
  return decision_of(brought, ended_);
}

void Agreement::learn(const Decision& decision) {
  assert(!decision_ || *decision_ == decision);
  decision_ = decision;
  for (const int asker : std::exchange(askers_, {})) send(asker, message(Kind::decided));
}

AgreementMessage Agreement::message(Kind kind) const {
  AgreementMessage message{.kind = kind, .instance = setup_.instance};
  switch (kind) {
    case Kind::prepare:
      message.ballot = ballot_;
      break;
    case Kind::promise:
      message.ballot = promised_;
      message.contribution = setup_.contribution;
      message.accepted_ballot = accepted_ballot_;
      message.decision = accepted_;
      break;
    case Kind::accept:
      message.ballot = ballot_;
      message.decision = proposed_;
      break;
    case Kind::decided:
      message.decision = *decision_;
      break;
    case Kind::accepted:
    case Kind::refused:
      message.ballot = promised_;
      break;
    case Kind::gave_up:
    case Kind::ask:
      break;
  }
  return message;
}

void Agreement::send(int to, AgreementMessage message) {
  outbox_.emplace_back(to, std::move(message));
}

void Agreement::broadcast(const AgreementMessage& message) {
  for (const int rank : linked_) send(rank, message);
}

}  // namespace ropewalk::bootstrap
