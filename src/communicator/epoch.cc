// The next epoch: its members are agreed upon over connections of the old one, meet at the first of
// them as any job does, and then agree that all have joined; else they try again without those who
// have ended meanwhile. Only more than half of the last list go on (bootstrap/agreement.h), so
// there is never a second job.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/text.h"
#include "bootstrap/net.h"
#include "bootstrap/newcomers.h"
#include "bootstrap/predecessor.h"
#include "communicator/next_epoch.h"
#include "ropewalk/rendezvous.h"

namespace ropewalk {
namespace {

using bootstrap::Agreement;
using bootstrap::AgreementEnd;
using bootstrap::Decision;
using bootstrap::Predecessor;
using Impl = Communicator::Impl;

// Contribution::bits of a next epoch.
constexpr uint64_t kHasJoined = 1;
constexpr uint64_t kAdmits = 2;    // those who wait to join
constexpr uint64_t kIsIntact = 4;  // the epoch has not failed, as far as the member knows
constexpr uint64_t kCanStay = 8;   // could go on over the connections that there are; of which
                                   // those with rank r of the job have bit kCanStayWith + r
constexpr int kCanStayWith = 64 - Session::kNetworkedMax;
static_assert(kCanStay < uint64_t{1} << kCanStayWith);
// Contribution::bits of settling. Of committed calls, which are numbered from 1, the last whose sum
// this rank has differs by one at most between ranks, so that its parity tells which it is.
constexpr uint64_t kNobodyWaits = 4;
constexpr uint64_t has_sum_bit(uint32_t call) {
  return uint64_t{1} << call % 2;
}
/// Before the list of newcomers that follows a unique id.
constexpr char kListMark = '\n';

/// Whom nobody waits for long.
std::vector<int> suspects_of(const Failure* failure) {
  const bool are_lost = failure != nullptr && (failure->code == ErrorCode::peer_lost ||
                                               failure->code == ErrorCode::timeout);
  return are_lost ? failure->peers : std::vector<int>();
}

/// "3:1,3:2,8:1": at which rank they wait, and their numbers there. As many as fit.
std::string list_of(const std::vector<Newcomer>& newcomers, size_t bytes_max) {
  std::string list;
  for (const Newcomer& one : newcomers) {
    const std::string text =
        fmt::format("{}{}:{}", list.empty() ? "" : ",", one.at_rank, one.number);
    if (list.size() + text.size() > bytes_max) break;
    list += text;
  }
  return list;
}

/// Of those, the ones that wait at one of `members`.
std::vector<Newcomer> newcomers_in(std::string_view list, const std::vector<int>& members) {
  std::vector<Newcomer> newcomers;
  while (!list.empty()) {
    const std::string_view one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), one.size() + 1));
    const size_t colon = std::min(one.find(':'), one.size());
    const auto rank = parse_number<int>(one.substr(0, colon));
    const auto number = parse_number<uint32_t>(one.substr(std::min(colon + 1, one.size())));
    if (rank && number && std::ranges::binary_search(members, *rank))
      newcomers.push_back({*rank, *number});
  }
  return newcomers;
}

/// Calls of the epoch end on all ranks, and nothing touches their memory any more.
void end_epoch(const Impl& old, const char* operation, const char* what) {
  if (old.monitor().failure() == nullptr)
    old.monitor().report({ErrorCode::revoked, operation,
                          fmt::format("rank {} has {}", old.rank(), what),
                          "call shrink on every rank", old.rank(), -1});
  old.driver->settle();
}

/// Makes the next epoch. Ranks are those of the epoch that ends.
class NextEpoch {
 public:
  NextEpoch(Impl& old, int64_t deadline_ns, bool admits)
      : old_(old),
        operation_(admits ? "grow" : "shrink"),
        admits_(admits),
        asks_newcomers_(admits),
        begun_ns_(old.session->clock.now_ns()),
        deadline_ns_(deadline_ns),
        members_(all_ranks(old.size())) {
    check_may_agree(old, operation_);
    world_ = old.session->job.world();
  }

  /// Null where all have come, nobody waits to join, and nothing has failed: the epoch goes on.
  std::shared_ptr<Impl> run() {
    if (!admits_ || old_.monitor().failure() != nullptr) end_old();
    std::optional<Rendezvous> rendezvous;
    for (bool is_first = true;; is_first = false) {
      const uint64_t own = bits(is_first);
      const std::vector<Newcomer> waiting =
          asks_newcomers_ ? newcomers_known() : std::vector<Newcomer>();
      // It takes time, and whoever can go on as it is, or stay, is not likely to need it.
      if (!waiting.empty() || (own & (kIsIntact | kCanStay)) == 0)
        rendezvous.emplace(open_rendezvous());
      const Decision decision =
          agree_in(old_,
                   {.call = AgreementCall::next_epoch,
                    .members = members_,
                    .deadline_ns = deadline_ns_,
                    .is_patient = admits_ && is_first,
                    .operation = operation_},
                   own, text_with(rendezvous ? rendezvous->unique_id() : "", waiting));
      if (joined_ && decision.members == members_ && (decision.bits & kHasJoined) != 0)
        return take_joined();
      discard_joined();
      const size_t mark = std::min(decision.text.find(kListMark), decision.text.size() - 1);
      if ((decision.bits & kAdmits) != 0)
        newcomers_ =
            newcomers_in(std::string_view(decision.text).substr(mark + 1), decision.members);
      if ((decision.bits & kIsIntact) != 0 && newcomers_.empty() && decision.members == members_)
        return nullptr;
      if (is_first && admits_) end_old();
      members_ = decision.members;
      ended_.insert(decision.ended.begin(), decision.ended.end());
      if (newcomers_.empty() && can_stay(decision.bits)) return stay();
      // Else all meet once more: the first member had hoped to stay.
      if (mark > 0) join(rendezvous ? &*rendezvous : nullptr, decision.text.substr(0, mark));
    }
  }
  bool has_newcomers() const { return !newcomers_.empty(); }

 private:
  void end_old() const { end_epoch(old_, operation_, "begun the next epoch"); }

  uint64_t bits(bool is_first) const {
    uint64_t bits = joined_ ? kHasJoined : 0;
    if (asks_newcomers_) bits |= kAdmits;
    if (is_first && admits_ && old_.monitor().failure() == nullptr) bits |= kIsIntact;
    if (is_first && old_.monitor().failure() != nullptr && old_.costs_are_found &&
        old_.session->can_restart())
      bits |= kCanStay | old_.session->can_restart_with() << kCanStayWith;
    return bits;
  }

  /// What counts is what the first member says.
  static std::string text_with(const std::string& unique_id, const std::vector<Newcomer>& waiting) {
    const std::string text = unique_id + kListMark;
    return text + list_of(waiting, bootstrap::kReasonBytesMax - text.size());
  }

  std::vector<Newcomer> newcomers_known() const {
    std::vector<Newcomer> known = world_->newcomers();
    for (Newcomer& one : known) one.at_rank = rank_among(old_.members.in_job, one.at_rank);
    std::erase_if(known, [](const Newcomer& one) { return one.at_rank < 0; });
    return known;
  }

  /// What all members join with. The key is not kept but where it is protected.
  Options common_options() const {
    Options common = old_.session->options;
    common.coordinator_fd.reset();
    common.key = std::string(old_.session->first_key.text());
    return common;
  }

  Rendezvous open_rendezvous() const {
    const std::vector<std::string>& addresses = world_->record(world_->rank()).addresses;
    const bool this_host_only =
        addresses.empty()  // an epoch of one
            ? !old_.config().elastic ||
                  bootstrap::is_loopback(bootstrap::parse_endpoints(old_.session->coordinator))
            : std::ranges::all_of(addresses, [](const std::string& address) {
                return bootstrap::numeric_address(address)->is_loopback();
              });
    return Rendezvous(common_options(), this_host_only);
  }

  /// Leaves `joined_` null where another member has ended meanwhile. `rendezvous`: the first
  /// member's.
  void join(const Rendezvous* rendezvous, const std::string& unique_id) {
    const auto rank = static_cast<int>(std::ranges::find(members_, old_.rank()) - members_.begin());
    const auto size = static_cast<int>(members_.size() + newcomers_.size());
    asks_newcomers_ = false;
    Options common = common_options();
    common.join_timeout = std::chrono::nanoseconds(std::max(kMillisecond_ns, remaining_ns() / 2));
    common.elastic = false;
    Options options = rank == 0 ? rendezvous->options(0, size, common)
                                : Rendezvous::options(unique_id, rank, size, common);
    options.elastic = old_.config().elastic;
    const auto predecessor = std::make_shared<Predecessor>(old_.members.job_ranks(members_));
    world_->set_successor(predecessor);
    admit_newcomers(unique_id, size, predecessor);
    try {
      joined_ = std::make_shared<Impl>(options, predecessor);
    } catch (const Error& error) {
      joined_.reset();
      if (auto failed = predecessor->take_left_behind()) world_->keep(std::move(failed));
      if (!may_try_again(error.code())) throw;  // past the deadline the next agreement tells so
    }
    if (joined_ && newcomers_.empty())
      joined_->set_costs(inherited_costs(old_, joined_->session->job, joined_->members,
                                         joined_->choice, members_));
    world_->set_successor(nullptr);
  }

  /// `bits`: of all members. The others must have ended, so that nobody else touches what the
  /// members have in common.
  bool can_stay(uint64_t bits) const {
    const std::vector<int> all = all_ranks(old_.size());
    return (bits & kCanStay) != 0 && std::ranges::all_of(all, [&](int rank) {
             if (!std::ranges::binary_search(members_, rank)) return ended_.contains(rank);
             const int in_job = old_.members.in_job[static_cast<size_t>(rank)];
             return in_job >= Session::kNetworkedMax || (bits >> (kCanStayWith + in_job) & 1) != 0;
           });
  }

  /// The next epoch, over the connections that there are. All members had given up what has failed
  /// before they agreed: what each puts from now on is of that epoch. A member that ends from here
  /// on has ended in it.
  std::shared_ptr<Impl> stay() {
    const std::vector<int> numbers = old_.members.job_ranks(members_);
    std::vector<int> departed = all_ranks(world_->size());
    std::erase_if(departed, [&](int rank) { return std::ranges::binary_search(numbers, rank); });
    const auto state =
        std::make_shared<EpochState>(world_->renew(numbers), rank_among(numbers, world_->rank()));
    Members members = part_of(old_.session->job, old_.members, members_);
    auto next = std::make_shared<Impl>(old_, members_, std::move(members), state, departed);
    describe(*state, true);
    listen_for_newcomers(*next, old_.session->coordinator);
    return next;
  }

  /// Those who wait at this rank. All learn who the members were, and why their epoch ended.
  void admit_newcomers(const std::string& unique_id, int size,
                       const std::shared_ptr<Predecessor>& predecessor) {
    bootstrap::Admission admission{.unique_id = unique_id,
                                   .rank = static_cast<int>(members_.size()),
                                   .size = size,
                                   .remaining_ms = static_cast<uint32_t>(
                                       std::max<int64_t>(0, remaining_ns()) / 2 / kMillisecond_ns),
                                   .epoch = old_.epoch->description.number + 1,
                                   .former_ranks = members_,
                                   .reason = old_.monitor().failure()->text()};
    for (const Newcomer& one : newcomers_) {
      if (one.at_rank == old_.rank())
        old_.session->newcomers->admit(one.number, admission, predecessor);
      ++admission.rank;
    }
  }

  void discard_joined() {
    discard(std::exchange(joined_, nullptr));
    newcomers_.clear();
    if (old_.session->newcomers) old_.session->newcomers->forget_admitted();
  }

  std::shared_ptr<Impl> take_joined() {
    Session& session = *joined_->session;
    if (!newcomers_.empty()) open_epoch(*joined_, newcomers_.size(), deadline_ns_);
    session.former_world = world_;
    session.first_key = old_.session->first_key;
    session.newcomers = old_.session->newcomers;
    if (session.newcomers) session.newcomers->forget_admitted();
    listen_for_newcomers(*joined_, old_.session->coordinator);
    describe(*joined_->epoch, false);
    return std::exchange(joined_, nullptr);
  }

  void describe(EpochState& next, bool stays) const {
    next.description = {
        .number = old_.epoch->description.number + 1,
        .former_ranks = members_,
        .departures = {},
        .reason = old_.monitor().failure()->text(),
        .change_time = std::chrono::nanoseconds(old_.session->clock.now_ns() - begun_ns_),
        .keeps_connections = stays};
    next.description.former_ranks.resize(members_.size() + newcomers_.size(), -1);
    for (const int rank : all_ranks(old_.size())) {
      if (std::ranges::binary_search(members_, rank)) continue;
      const PeerRecord& record = world_->record(old_.members.in_job[static_cast<size_t>(rank)]);
      next.description.departures.push_back(
          {rank, record.pid, record.host_name, ended_.contains(rank)});
    }
  }

  int64_t remaining_ns() const { return deadline_ns_ - old_.session->clock.now_ns(); }

  Impl& old_;
  const char* const operation_;
  const bool admits_;
  bool asks_newcomers_;  // once: where one of them does not come the others wait again
  const int64_t begun_ns_, deadline_ns_;
  std::shared_ptr<World> world_;
  std::vector<int> members_;  // agreed upon last
  std::vector<Newcomer> newcomers_;
  std::set<int> ended_;
  std::shared_ptr<Impl> joined_;  // of the next epoch, as far as this rank knows
};

int64_t deadline_after(const Impl& impl, std::optional<std::chrono::nanoseconds> timeout) {
  return impl.session->clock.now_ns() + (timeout ? timeout->count() : impl.driver->timeout_ns());
}

/// Runs `body`, which agrees with others. A rank that could not is in step with them no more. Where
/// all have heard that their calls differ they are.
template <class Body>
auto agree_or_end(EpochState& epoch, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument && error.code() != ErrorCode::mismatch)
      epoch.end = error;
    throw;
  }
}

}  // namespace

std::vector<int> all_ranks(int size) {
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

bool may_try_again(ErrorCode code) {
  return code == ErrorCode::peer_lost || code == ErrorCode::timeout || code == ErrorCode::aborted ||
         code == ErrorCode::refused || code == ErrorCode::revoked;
}

namespace {

std::string text_of(const bootstrap::Quorum& quorum, int lowest) {
  std::string text = "more than half";
  if (quorum.tie_breaker) text = fmt::format("more than half, or half with rank {},", lowest);
  if (quorum.least > 1) text += fmt::format(" and {} at least", quorum.least);
  return text;
}

/// `Decision::call` may be 0.
Decision decide(const Impl& impl, const AgreementTerms& terms, uint64_t bits, std::string text) {
  const int64_t now_ns = impl.session->clock.now_ns();
  const int64_t time_ns = std::max<int64_t>(0, terms.deadline_ns - now_ns);
  Agreement::Setup setup{
      .rank = impl.session->job.rank(),
      .members = impl.members.job_ranks(terms.members),
      .learners = terms.learners,
      .quorum = {impl.config().tie_breaker, impl.config().quorum_min},
      .contribution = {bits, static_cast<uint8_t>(terms.call), std::move(text)},
      .suspects = impl.members.job_ranks(suspects_of(impl.monitor().failure())),
      .begun_ns = now_ns,
      .patient_until_ns = now_ns + (terms.is_patient ? time_ns / 8 * 7 : time_ns / 2)};
  AgreementEnd end = impl.session->job.world()->agree(setup, terms.deadline_ns);
  end.seen = impl.members.ranks_of(std::move(end.seen));
  if (!end.decision)
    throw Error(
        Failure{ErrorCode::no_quorum, terms.operation,
                fmt::format("rank {} has reached {} of {} members ({}); {} must go on together",
                            impl.rank(), end.seen.size(), terms.members.size(),
                            fmt::join(end.seen, ", "), text_of(setup.quorum, terms.members[0])),
                "look at the network, and at the others' output: they may go on without this rank",
                impl.rank(), -1});
  end.decision->members = impl.members.ranks_of(std::move(end.decision->members));
  end.decision->ended = impl.members.ranks_of(std::move(end.decision->ended));
  if (terms.call != AgreementCall::depart &&
      !std::ranges::binary_search(end.decision->members, impl.rank()))
    throw Error(Failure{ErrorCode::no_quorum, terms.operation,
                        fmt::format("ranks {} have gone on without rank {}, which was late",
                                    fmt::join(end.decision->members, ", "), impl.rank()),
                        "end this process", impl.rank(), -1});
  return *end.decision;
}

}  // namespace

// Where calls differ all settle, and try again unless nobody was waiting for that: a rank that has
// the sum of a committed call may be in `agree` or `shrink` already when that fails on another one.
Decision agree_in(const Impl& impl, const AgreementTerms& terms, uint64_t bits, std::string text) {
  for (;;) {
    const Decision decision = decide(impl, terms, bits, text);
    if (decision.call == static_cast<uint8_t>(terms.call)) return decision;
    const bool waits = terms.call == AgreementCall::settle;
    AgreementTerms settling = terms;
    settling.call = AgreementCall::settle;
    settling.members = decision.members;
    settling.learners = 0;
    const uint64_t own = has_sum_bit(impl.epoch->sums_to_commit) | kNobodyWaits;
    const Decision settled = decide(impl, settling, waits ? bits : own, {});
    const bool is_mixed = settled.call != static_cast<uint8_t>(AgreementCall::settle);
    if (is_mixed || (settled.bits & kNobodyWaits) != 0)
      throw Error(Failure{ErrorCode::mismatch, terms.operation,
                          "some ranks have called agree, others shrink or grow", kMismatchAdvice,
                          impl.rank(), -1});
    if (waits) return settled;
  }
}

void check_may_agree(const Impl& impl, const char* operation) {
  impl.driver->throw_if_forked();
  impl.driver->throw_if_stopped();
  if (impl.part != nullptr)
    throw Error(ErrorCode::invalid_argument, operation,
                "this communicator was split from that of the job",
                fmt::format("call {} on the communicator that was split", operation));
  if (impl.epoch->end) throw *impl.epoch->end;
}

bool settle(const Impl& impl, uint32_t call, int64_t deadline_ns) {
  return agree_or_end(*impl.epoch, [&] {
    const Decision decision = agree_in(impl,
                                       {.call = AgreementCall::settle,
                                        .members = all_ranks(impl.size()),
                                        .deadline_ns = deadline_ns,
                                        .operation = "all_reduce_committed"},
                                       has_sum_bit(impl.epoch->sums_to_commit), {});
    return (decision.bits & has_sum_bit(call)) != 0;
  });
}

const Epoch& Communicator::epoch() const {
  return impl_->epoch->description;
}

void Communicator::revoke(const std::string& reason) {
  impl_->driver->throw_if_forked();
  const int rank = impl_->epoch->rank;  // of the whole
  impl_->epoch->monitor->report({ErrorCode::revoked, "revoke",
                                 fmt::format("rank {} ended the epoch: {}", rank, reason),
                                 "call shrink on every rank to go on", rank, rank});
}

std::unique_ptr<Communicator> Communicator::shrink(
    std::optional<std::chrono::nanoseconds> timeout) {
  return next_epoch(false, timeout);
}

std::unique_ptr<Communicator> Communicator::grow(std::optional<std::chrono::nanoseconds> timeout) {
  return next_epoch(true, timeout);
}

std::unique_ptr<Communicator> Communicator::next_epoch(
    bool admits, std::optional<std::chrono::nanoseconds> timeout) {
  return agree_or_end(*impl_->epoch, [&]() -> std::unique_ptr<Communicator> {
    NextEpoch epoch(*impl_, deadline_after(*impl_, timeout), admits);
    const auto joined = epoch.run();
    if (!joined) return nullptr;
    auto next = std::make_unique<Communicator>(joined);
    impl_->epoch->is_followed = true;
    joined->epoch->former = std::make_unique<FormerEpoch>(impl_);
    impl_->epoch->end = Error(ErrorCode::invalid_argument, admits ? "grow" : "shrink",
                              "this epoch has been followed by the next",
                              "call it on the communicator that shrink or grow has given");
    if (epoch.has_newcomers()) find_costs_anew(*next, *joined);
    return next;
  });
}

void Communicator::depart(std::optional<std::chrono::nanoseconds> timeout) {
  agree_or_end(*impl_->epoch, [&] {
    check_may_agree(*impl_, "depart");
    const int64_t deadline_ns = deadline_after(*impl_, timeout);
    end_epoch(*impl_, "depart", "departed");
    // Whatever the others agree on: they have heard.
    decide(*impl_,
           {.call = AgreementCall::depart,
            .members = all_ranks(size()),
            .deadline_ns = deadline_ns,
            .operation = "depart"},
           0, {});
    impl_->epoch->end = Error(ErrorCode::invalid_argument, "depart", "this rank has departed",
                              "make no call afterwards");
  });
}

int Communicator::pending() const {
  return static_cast<int>(impl_->session->job.world()->newcomers().size());
}

Agreed Communicator::agree(uint64_t bits, std::optional<std::chrono::nanoseconds> timeout) {
  return agree_or_end(*impl_->epoch, [&] {
    check_may_agree(*impl_, "agree");
    const Decision decision = agree_in(
        *impl_, {.members = all_ranks(size()), .deadline_ns = deadline_after(*impl_, timeout)},
        bits, {});
    return Agreed{decision.bits, decision.members};
  });
}

}  // namespace ropewalk
