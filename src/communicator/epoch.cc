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

#include "bootstrap/net.h"
#include "bootstrap/predecessor.h"
#include "communicator/find_costs.h"
#include "communicator/impl.h"
#include "ropewalk/rendezvous.h"

namespace ropewalk {
namespace {

using bootstrap::Agreement;
using bootstrap::AgreementEnd;
using bootstrap::Contribution;
using bootstrap::Decision;
using bootstrap::Predecessor;
using Impl = Communicator::Impl;

constexpr uint64_t kHasJoined = 1;  // Contribution::bits of a shrink

std::vector<int> all_ranks(int size) {
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Whom nobody waits for long.
std::vector<int> suspects_of(const Failure* failure) {
  const bool are_lost = failure != nullptr && (failure->code == ErrorCode::peer_lost ||
                                               failure->code == ErrorCode::timeout);
  return are_lost ? failure->peers : std::vector<int>();
}

/// That another rank has ended, or a network, is a reason to try with fewer; what this rank lacks
/// is not.
bool may_try_again(ErrorCode code) {
  return code == ErrorCode::peer_lost || code == ErrorCode::timeout || code == ErrorCode::aborted ||
         code == ErrorCode::refused || code == ErrorCode::revoked;
}

std::shared_ptr<World> world_of(const Impl& impl, const char* operation) {
  impl.driver->throw_if_forked();
  impl.driver->throw_if_stopped();
  if (impl.part != nullptr)
    throw Error(ErrorCode::invalid_argument, operation,
                "this communicator was split from that of the job",
                fmt::format("call {} on the communicator that was split", operation));
  if (impl.session->end) throw *impl.session->end;
  return impl.session->job.world();
}

/// One agreement of `members`, ranks of `impl`'s epoch. Throws where this rank does not go on.
Decision agree_in(const Impl& impl, World& world, const std::vector<int>& members,
                  Contribution contribution, int64_t deadline_ns, const char* operation) {
  const int64_t now_ns = impl.session->clock.now_ns();
  const uint8_t call = contribution.call;
  Agreement::Setup setup{
      .rank = impl.rank(),
      .members = members,
      .contribution = std::move(contribution),
      .suspects = suspects_of(impl.monitor().failure()),
      .begun_ns = now_ns,
      .patient_until_ns = now_ns + std::max<int64_t>(0, deadline_ns - now_ns) / 2};
  const AgreementEnd end = world.agree(std::move(setup), deadline_ns);
  if (!end.decision)
    throw Error(Failure{
        ErrorCode::no_quorum, operation,
        fmt::format("rank {} has reached {} of {} members ({}); more than half must go on together",
                    impl.rank(), end.seen.size(), members.size(), fmt::join(end.seen, ", ")),
        "look at the network, and at the others' output: they may go on without this rank",
        impl.rank(), -1});
  if (!std::ranges::binary_search(end.decision->members, impl.rank()))
    throw Error(Failure{ErrorCode::no_quorum, operation,
                        fmt::format("ranks {} have gone on without rank {}, which was late",
                                    fmt::join(end.decision->members, ", "), impl.rank()),
                        "end this process", impl.rank(), -1});
  if (end.decision->call != call)
    throw Error(Failure{ErrorCode::mismatch, operation,
                        "some ranks have called agree, others shrink", kMismatchAdvice, impl.rank(),
                        -1});
  return *end.decision;
}

/// What `shrink` knows while it goes on. Ranks are those of the epoch that ends.
class Shrink {
 public:
  static constexpr uint8_t kCall = 2;

  Shrink(Impl& old, int64_t deadline_ns)
      : old_(old),
        world_(world_of(old, "shrink")),
        begun_ns_(old.session->clock.now_ns()),
        deadline_ns_(deadline_ns),
        members_(all_ranks(old.size())) {}

  std::shared_ptr<Impl> run() {
    end_epoch();
    for (;;) {
      const Rendezvous rendezvous = open_rendezvous();
      const Decision decision = agree_in(old_, *world_, members_,
                                         {joined_ ? kHasJoined : 0, kCall, rendezvous.unique_id()},
                                         deadline_ns_, "shrink");
      if (joined_ && decision.members == members_ && (decision.bits & kHasJoined) != 0)
        return take_joined();
      discard_joined();
      members_ = decision.members;
      ended_.insert(decision.ended.begin(), decision.ended.end());
      join(rendezvous, decision.text);
    }
  }

 private:
  /// Calls of the old epoch end on all ranks, and nothing touches their memory any more.
  void end_epoch() {
    if (old_.monitor().failure() == nullptr)
      old_.monitor().report({ErrorCode::revoked, "shrink",
                             fmt::format("rank {} has begun the next epoch", old_.rank()),
                             "call shrink on every rank", old_.rank(), -1});
    old_.driver->settle();
  }

  /// What all members join with. The key is not kept but where it is protected.
  Options common_options() const {
    Options common = old_.session->options;
    common.coordinator_fd.reset();
    common.key = std::string(old_.config().job_key.text());
    return common;
  }

  Rendezvous open_rendezvous() const {
    const std::vector<std::string>& addresses = world_->record(old_.rank()).addresses;
    const bool this_host_only = std::ranges::all_of(addresses, [](const std::string& address) {
      return bootstrap::numeric_address(address)->is_loopback();
    });
    return Rendezvous(common_options(), this_host_only);
  }

  /// Leaves `joined_` null where another member has ended meanwhile.
  void join(const Rendezvous& rendezvous, const std::string& unique_id) {
    const auto rank = static_cast<int>(std::ranges::find(members_, old_.rank()) - members_.begin());
    const auto size = static_cast<int>(members_.size());
    Options common = common_options();
    common.join_timeout = std::chrono::nanoseconds(std::max(kMillisecond_ns, remaining_ns() / 2));
    const Options options = rank == 0 ? rendezvous.options(0, size, common)
                                      : Rendezvous::options(unique_id, rank, size, common);
    const auto predecessor = std::make_shared<Predecessor>(members_);
    world_->set_successor(predecessor);
    try {
      joined_ = std::make_shared<Impl>(options, predecessor);
      joined_->set_costs(inherited_costs(old_, joined_->session->job, joined_->members,
                                         joined_->choice, members_));
    } catch (const Error& error) {
      joined_.reset();
      if (!may_try_again(error.code()) || remaining_ns() <= 0) throw;
    }
    world_->set_successor(nullptr);
  }

  void discard_joined() {
    if (!joined_) return;
    joined_->monitor().report(
        {ErrorCode::revoked, "shrink", "a member has ended meanwhile", {}, joined_->rank(), -1});
    joined_->close();
    joined_.reset();
  }

  std::shared_ptr<Impl> take_joined() {
    Session& session = *joined_->session;
    session.former_world = world_;
    session.epoch = {.number = old_.session->epoch.number + 1,
                     .former_ranks = members_,
                     .departures = {},
                     .reason = old_.monitor().failure()->text(),
                     .change_time = std::chrono::nanoseconds(session.clock.now_ns() - begun_ns_)};
    for (const int rank : all_ranks(old_.size())) {
      if (std::ranges::binary_search(members_, rank)) continue;
      const PeerRecord& record = world_->record(rank);
      session.epoch.departures.push_back(
          {rank, record.pid, record.host_name, ended_.contains(rank)});
    }
    return std::exchange(joined_, nullptr);
  }

  int64_t remaining_ns() const { return deadline_ns_ - old_.session->clock.now_ns(); }

  Impl& old_;
  const std::shared_ptr<World> world_;
  const int64_t begun_ns_, deadline_ns_;
  std::vector<int> members_;  // agreed upon last
  std::set<int> ended_;
  std::shared_ptr<Impl> joined_;  // of the next epoch, as far as this rank knows
};

int64_t deadline_after(const Impl& impl, std::optional<std::chrono::nanoseconds> timeout) {
  return impl.session->clock.now_ns() + (timeout ? timeout->count() : impl.driver->timeout_ns());
}

/// Runs `body`, which agrees with others. A rank that could not is in step with them no more. Where
/// all have heard that their calls differ they are.
template <class Body>
auto agree_or_end(Session& session, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument && error.code() != ErrorCode::mismatch)
      session.end = error;
    throw;
  }
}

}  // namespace

const Epoch& Communicator::epoch() const {
  return impl_->session->epoch;
}

void Communicator::revoke(const std::string& reason) {
  impl_->driver->throw_if_forked();
  impl_->session->job.monitor().report(
      {ErrorCode::revoked, "revoke",
       fmt::format("rank {} ended the epoch: {}", impl_->session->job.rank(), reason),
       "call shrink on every rank to go on", impl_->session->job.rank(),
       impl_->session->job.rank()});
}

std::unique_ptr<Communicator> Communicator::shrink(
    std::optional<std::chrono::nanoseconds> timeout) {
  return agree_or_end(*impl_->session, [&] {
    auto next =
        std::make_unique<Communicator>(Shrink(*impl_, deadline_after(*impl_, timeout)).run());
    impl_->session->end =
        Error(ErrorCode::invalid_argument, "shrink", "this epoch has been followed by the next",
              "call it on the communicator that shrink has given");
    return next;
  });
}

Agreed Communicator::agree(uint64_t bits, std::optional<std::chrono::nanoseconds> timeout) {
  constexpr uint8_t kCall = 1;
  return agree_or_end(*impl_->session, [&] {
    const auto world = world_of(*impl_, "agree");
    const Decision decision = agree_in(*impl_, *world, all_ranks(size()), {bits, kCall, {}},
                                       deadline_after(*impl_, timeout), "agree");
    return Agreed{decision.bits, decision.members};
  });
}

}  // namespace ropewalk
