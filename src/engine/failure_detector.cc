#include "engine/failure_detector.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace ropewalk {
namespace {

/// "recv #3": as the caller called it.
std::string name_of(const Operation& op) {
  return fmt::format("{} #{}", ropewalk::name_of(op.call.collective), op.signature.sequence);
}

/// Between asking the peers that an operation waits for.
constexpr int64_t kProbeInterval_ns = 50 * kMillisecond_ns;
/// A connection lost may be the echo of another rank's death, of which the monitor learns the name;
/// only when it has nothing to say by then is the peer itself blamed.
constexpr int64_t kLostGrace_ns = 250 * kMillisecond_ns;
/// Where the peer has closed it: perhaps for a loss, of which it finds out more for up to 2 s.
constexpr int64_t kClosedGrace_ns = 2500 * kMillisecond_ns;
/// After a peer has left, for what is here and nobody has taken.
constexpr int64_t kLeftGrace_ns = 1000 * kMillisecond_ns;
/// Between questions who waits for whom. More ranks take longer to answer: all hear all answers.
constexpr int64_t kQuestionInterval_ns = 50 * kMillisecond_ns;
constexpr int64_t kQuestionIntervalPerRank_ns = 50'000;
/// A collective for which nobody waits, and that ends sooner, is not noted.
constexpr int64_t kNotedAfter_ns = 10 * kMillisecond_ns;
/// Who waits for any message again within so long has gone on waiting.
constexpr int64_t kReceiversPause_ns = 100 * kMillisecond_ns;
/// After its deadline a wait fails within so long, as a rule.
constexpr int64_t kLooksLateMax_ns = 1000 * kMillisecond_ns;
/// How far into a queue awaited_since_ns looks.
constexpr int kQueueSeenMax = 64;
/// For a peer to say which of the earlier calls differed. It may compute, and not look.
constexpr int64_t kAnswerGrace_ns = 1000 * kMillisecond_ns;

bool is_fresh(const RankWaits& told, int64_t since_ns) {
  return told.heard_ns != 0 && told.heard_ns >= since_ns;
}

}  // namespace

FailureDetector::FailureDetector(LinkTable& links, const OperationQueues& queues, Monitor& monitor,
                                 const Clock& clock)
    : links_(links),
      queues_(queues),
      monitor_(monitor),
      clock_(clock),
      waits_max_(is_of_epoch(links.communicator()) ? kWaitsMax : kPartWaitsMax),
      peers_(static_cast<size_t>(links.size())) {
  blockers_.reserve(2 * kLanes * peers_.size());
  waits_.reserve(waits_max_);
  noted_waits_.reserve(waits_max_);
}

const std::vector<Blocker>& FailureDetector::blockers_of(const Operation& op) const {
  blockers_.clear();
  const bool has_turn = op.queue != nullptr && !op.queue->empty() && op.queue->front() == &op;
  if (op.begun && has_turn) op.executor->find_blockers(blockers_);
  return blockers_;
}

bool has_unexpected_message(Link& link, const OperationQueues& queues, int channel) {
  return link.ready() && !queues.has_recv(link.peer(), channel) &&
         link.front(stream_of(kPointToPointContext, channel)) != nullptr;
}

void FailureDetector::record(Signature& signature) {
  signature.sequence = calls_.count;
  signature.history = calls_.digest;
  calls_.add(signature);
  history_[signature.sequence % kHistory] = signature;
  monitor_.note_calls(calls_.count);
}

const Operation* FailureDetector::oldest_collective() const {
  const Operation* oldest = nullptr;
  for (const Operation* op : queues_.active()) {
    if (op->is_point_to_point()) continue;
    const bool is_older = oldest == nullptr || static_cast<int32_t>(op->signature.sequence -
                                                                    oldest->signature.sequence) < 0;
    if (is_older) oldest = op;
  }
  return oldest;
}

void FailureDetector::ask_who_waits(int64_t now_ns) {
  if (now_ns - asked_ns_ < kQuestionInterval_ns + links_.size() * kQuestionIntervalPerRank_ns)
    return;
  asked_ns_ = now_ns;
  monitor_.ask_who_waits();
}

bool FailureDetector::all_have_answered(int64_t now_ns, int64_t waited_ns) const {
  const std::vector<RankWaits> told = monitor_.waits();
  for (size_t rank = 0; rank < told.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    if (peer == links_.rank() || monitor_.has_left(peer)) continue;
    if (!is_fresh(told[rank], now_ns - waited_ns / 2)) return false;
  }
  return true;
}

void FailureDetector::count_awaiters(const Group& group, int change) {
  stamp(group);
  for (const auto& part : group.parts()) part->awaiters += change;
  note_waits();
}

void FailureDetector::note_callback(const Group& group) {
  stamp(group);
  for (const auto& part : group.parts()) part->has_callback = true;
  note_waits();
}

void FailureDetector::stamp(const Group& group) const {
  const int64_t now_ns = clock_.now_ns();
  for (const auto& part : group.parts()) {
    if (part->seen_ns == 0) part->seen_ns = now_ns;
    if (part->awaiters == 0 && !part->has_callback) part->awaited_ns = now_ns;
  }
}

void FailureDetector::count_leavers(int change) {
  if (leavers_.threads == 0) leavers_.since_ns = clock_.now_ns();
  leavers_.threads += change;
  note_waits();
}

void FailureDetector::count_receivers(int channel, int change) {
  Waiters& receivers = receivers_[static_cast<size_t>(channel)];
  const int64_t now_ns = clock_.now_ns();
  if (receivers.threads == 0 && now_ns - receivers.until_ns > kReceiversPause_ns)
    receivers.since_ns = now_ns;
  receivers.threads += change;
  receivers.until_ns = now_ns;
  note_waits();
}

int64_t FailureDetector::awaited_since_ns(const Operation& active) const {
  constexpr int64_t kNever_ns = std::numeric_limits<int64_t>::max();
  const bool is_owed = leavers_.threads > 0 && active.call.collective != Collective::recv;
  int64_t since_ns = is_owed ? leavers_.since_ns : kNever_ns;
  int seen = 0;
  for (const Operation* op : *active.queue) {
    if (op->awaiters > 0 || op->has_callback) since_ns = std::min(since_ns, op->awaited_ns);
    if (++seen == kQueueSeenMax) break;
  }
  return since_ns == kNever_ns ? 0 : since_ns;
}

Wait FailureDetector::wait_of(const Operation& op) const {
  Wait wait{.operation = op.call.collective,
            .channel = static_cast<uint8_t>(op.call.channel),
            .sequence = op.signature.sequence,
            .since_ns = op.seen_ns};
  if (op.is_point_to_point()) {
    wait.peers[wait.peer_count++] = op.call.root;
    return wait;
  }
  for (const Blocker& blocker : blockers_of(op)) {
    const auto named = wait.waits_for();
    const int peer = blocker.link->peer();
    if (named.size() < Wait::kPeersMax && std::ranges::count(named, peer) == 0)
      wait.peers[wait.peer_count++] = peer;
  }
  return wait;
}

void FailureDetector::note_waits() {
  // Operations may be gone; and who has failed must not be taken for one that waits for nobody.
  if (failure() != nullptr) return;
  waits_.clear();
  const int64_t noted_ns = clock_.now_ns() - kNotedAfter_ns;
  for (Operation* op : queues_.active()) {
    op->noted = false;
    const int64_t awaited_ns = awaited_since_ns(*op);
    const bool lasts = op->seen_ns != 0 && op->seen_ns <= noted_ns && !op->is_point_to_point();
    if ((awaited_ns == 0 && !lasts) || waits_.size() == waits_max_) continue;
    op->noted = true;
    Wait& wait = waits_.emplace_back(wait_of(*op));
    wait.awaited = awaited_ns != 0;
    // What came of a message while its caller did something else says nothing of the caller.
    if (op->is_point_to_point() || op->seen_ns == 0) wait.since_ns = awaited_ns;
  }
  for (const Waiters& receivers : receivers_) {
    if (receivers.since_ns == 0 || waits_.size() == waits_max_) continue;
    const int64_t until_ns = receivers.threads > 0 ? 0 : receivers.until_ns + kReceiversPause_ns;
    waits_.push_back(
        {.any = true, .awaited = true, .since_ns = receivers.since_ns, .until_ns = until_ns});
  }
  if (waits_ == noted_waits_) return;
  std::swap(waits_, noted_waits_);
  monitor_.note_waits(noted_waits_);
}

void FailureDetector::fail_mismatch(const Signature& own, const Signature& other, int peer) {
  fail(mismatch_of(own, links_.rank(), other, peer));
}

bool FailureDetector::check_header(const Operation& op, const Link& link, const EagerHeader& header,
                                   MessageKind kind, size_t bytes) {
  if (!(header.signature == op.signature)) {
    if (is_same_call(op.signature, header.signature)) return false;
    const Signature* ours =
        op.is_point_to_point() ? nullptr : known_signature(header.signature.sequence);
    const bool says_more = ours != nullptr && !is_same_call(*ours, header.signature);
    fail_mismatch(says_more ? *ours : op.signature, header.signature, link.peer());
    return false;
  }
  if (header.bytes == bytes && header.kind == kind) return true;
  fail({ErrorCode::mismatch, operation_name(op.signature),
        fmt::format("rank {} sends {} bytes where rank {} expects {}", link.peer(), header.bytes,
                    links_.rank(), bytes),
        "give matching counts on both ranks", links_.rank(), link.peer()});
  return false;
}

const Signature* FailureDetector::known_signature(uint32_t sequence) const {
  const uint32_t age = calls_.count - sequence;  // 1: the last started
  if (age == 0) return nullptr;
  const Signature& kept = history_[sequence % kHistory];
  if (age <= kHistory) return kept.sequence == sequence ? &kept : nullptr;
  const Operation* op = queues_.find(sequence);
  return op == nullptr ? nullptr : &op->signature;
}

void FailureDetector::compare_calls(int peer, const Signature& theirs, bool waits) {
  const Signature* ours = known_signature(theirs.sequence);
  if (ours == nullptr || *ours == theirs) return;
  if (!is_same_call(*ours, theirs)) return fail_mismatch(*ours, theirs, peer);
  const Signature* before = known_signature(theirs.sequence - 1);
  if (before != nullptr && waits) return links_.find(peer)->send_probe(*before, false);
  fail({ErrorCode::mismatch, operation_name(*ours),
        fmt::format("rank {} and rank {} both called {} as their operation {}, but something else "
                    "before it",
                    links_.rank(), peer, describe(*ours), ours->sequence),
        kMismatchAdvice, links_.rank(), peer});
}

void FailureDetector::check_arrivals(const Operation& op, int64_t now_ns) {
  const bool waits = now_ns - op.moved_ns < kAnswerGrace_ns;
  for (Link* link : links_.open())
    for (int stream = 0; stream < kPointToPointContext * kLanes; ++stream) {
      const EagerHeader* front = link->front(stream);
      if (front == nullptr) continue;
      compare_calls(link->peer(), front->signature, waits);
      if (failed_) return;
    }
}

void FailureDetector::check_probe(int peer) {
  assert(links_.find(peer) != nullptr);
  if (failure() != nullptr) return;  // operations may be gone
  const Probe probe = links_.find(peer)->last_probe();
  // A probe may be overwritten by the next one, also of another communicator, while it is read.
  if (probe.communicator != links_.communicator() || probe.point_to_point != 0 ||
      probe.check != check_of(probe.signature))
    return;
  compare_calls(peer, probe.signature, true);
}

void FailureDetector::check_senders() {
  const int64_t now_ns = clock_.now_ns();
  bool may_come = false;
  for (int peer = 0; peer < links_.size(); ++peer) {
    if (peer == links_.rank()) continue;
    if (!sends_no_more(peer)) return;
    PeerState& state = peers_[static_cast<size_t>(peer)];
    if (state.left_ns == 0) state.left_ns = now_ns;
    may_come |= may_still_come(peer, state.left_ns, now_ns);
  }
  if (links_.size() == 1 || may_come || failure() != nullptr || !queues_.active().empty()) return;
  // What they sent before is taken first, by whomever.
  for (int channel = 0; channel < kChannels; ++channel)
    for (Link* link : links_.open())
      if (has_unexpected_message(*link, queues_, channel)) return;
  fail({ErrorCode::peer_lost, "next_sender",
        fmt::format("every other rank has left the job while rank {} waits for a message",
                    links_.rank()),
        "send what a rank waits for before the last one leaves", links_.rank(), -1});
}

// A peer that fell silent has been so for long.
void FailureDetector::note_lost(int peer) {
  const LossReason why = links_.why_lost(peer);
  const int64_t silent_ns =
      why.silent ? links_.transport_to(peer).capabilities().silence_max_ns : 0;
  peers_[static_cast<size_t>(peer)].lost_ns = std::max<int64_t>(1, clock_.now_ns() - silent_ns);
  // At once, before the peer wonders; also between calls, as nobody else can tell.
  Link* const link = links_.find_or_make(peer);
  if (!why.seen || link == nullptr) return;
  fail_lost(queues_.active().empty() ? "link" : name_of(*queues_.active()[0]), *link);
}

bool FailureDetector::may_still_come(int peer, int64_t since_ns, int64_t now_ns) const {
  if (now_ns - since_ns < kLeftGrace_ns) return true;
  Link* const link = links_.find(peer);
  const bool is_lost = peers_[static_cast<size_t>(peer)].lost_ns != 0;
  if (link == nullptr || !link->has_begun() || is_lost || link->lost()) return false;
  const bool is_slow = now_ns - since_ns < link->transport().capabilities().silence_max_ns;
  return (link->ready() || is_slow) && !link->has_ended();
}

void FailureDetector::answer_connects() {
  try {
    links_.connections().answer_connects();
  } catch (const Error& error) {  // no memory for the link; perhaps on the progress thread
    fail_here(error);
  }
}

void FailureDetector::check_stalled(int64_t now_ns) {
  if (failure() != nullptr) return;  // operations may be gone
  for (Operation* op : queues_.active()) {
    if (op->moved_ns == 0) op->moved_ns = now_ns;
    if (op->seen_ns == 0) op->seen_ns = now_ns;
    if (now_ns - std::max(op->moved_ns, op->probed_ns) < kProbeInterval_ns) continue;
    op->probed_ns = now_ns;
    answer_connects();
    if (failure() == nullptr) check_arrivals(*op, now_ns);
    if (failure() != nullptr) return;
    for (const Blocker& blocker : blockers_of(*op)) {
      probe(*op, *blocker.link, now_ns);
      if (failure() != nullptr) return;
    }
  }
  report_silent_peers(now_ns);
  note_waits();
}

void FailureDetector::report_silent_peers(int64_t now_ns) {
  for (Link* link : links_.open()) {
    const int64_t lost_ns = peers_[static_cast<size_t>(link->peer())].lost_ns;
    if (lost_ns == 0 || now_ns - lost_ns < kLostGrace_ns || monitor_.has_left(link->peer()))
      continue;
    if (link->why_lost().silent) return fail_lost("link", *link);
  }
}

void FailureDetector::compare_calls_of_left(int peer) {
  const auto theirs = monitor_.calls_of(peer);
  if (!theirs) return;
  const uint32_t more = calls_.count - theirs->count;  // that this rank has made
  if (more > kHistory) return;
  const Signature& next = history_[theirs->count % kHistory];
  if ((more == 0 ? calls_.digest : next.history) == theirs->digest) return;
  const Signature* ours = known_signature(theirs->count - 1);
  fail({ErrorCode::mismatch, "leave",
        fmt::format("rank {} left after {} collective calls, the last of them {}; there rank {} "
                    "called {}",
                    peer, theirs->count, theirs->last, links_.rank(),
                    ours == nullptr ? "something else before" : describe(*ours)),
        kMismatchAdvice, links_.rank(), peer});
}

/// This rank lacked what the link needs.
bool FailureDetector::is_own_fault(const Link& link) const {
  const bool lacks = link.failure() && link.failure()->code == ErrorCode::exhausted;
  return lacks || !link.why_lost().advice.empty();
}

void FailureDetector::fail_lost(std::string operation, Link& link) {
  const int peer = link.peer();
  const int number = monitor_.rank_in_epoch(links_.in_job(peer));  // for messages
  auto [text, silent, seen, closed, advice] = link.why_lost();
  if (advice.empty())
    advice = silent ? kNetworkAdvice
             : seen ? "run the same Ropewalk everywhere; else memory or the network is faulty, or "
                      "somebody on the path changes what passes"
                    : fmt::format("see rank {}'s own output for why it ended", number);
  const char* what = link.ready() ? "the connection to rank {} broke: {}"
                                  : "there is no connection to rank {}: {}";
  Failure failure{ErrorCode::peer_lost, "", fmt::format(fmt::runtime(what), number, text), advice};
  if (link.failure()) {
    failure = *link.failure();
    failure.reason = fmt::format("rank {}: {}", number, failure.reason);
  }
  failure.operation = std::move(operation);
  failure.rank = links_.rank();
  failure.peer = is_own_fault(link) ? links_.rank() : peer;
  if (silent && failure.peer == peer) return monitor_.report_silent(failure);  // the wait goes on
  failed_ = true;
  monitor_.report_lost(failure);
}

void FailureDetector::probe(const Operation& op, Link& link, int64_t now_ns) {
  const int peer = link.peer();
  auto& [lost_ns, left_ns] = peers_[static_cast<size_t>(peer)];
  if (lost_ns == 0 && link.lost()) note_lost(peer);
  if (failed_) return;
  const bool has_left = sends_no_more(peer);
  if (has_left && left_ns == 0) left_ns = now_ns;
  compare_calls_of_left(peer);
  if (failed_) return;
  if (has_left && !may_still_come(peer, std::max(op.moved_ns, left_ns), now_ns))
    return fail(
        {ErrorCode::peer_lost, name_of(op),
         fmt::format("rank {} left the job while rank {} waits for it", peer, links_.rank()),
         "every rank must make the same calls before it leaves", links_.rank(), peer});
  // What this rank knows of itself it says at once, before its peers wonder.
  const bool closed = link.why_lost().closed;
  const bool is_sure =
      now_ns - lost_ns >= (closed ? kClosedGrace_ns : kLostGrace_ns) || is_own_fault(link);
  if (lost_ns != 0 && !has_left && is_sure) return fail_lost(name_of(op), link);
  if (lost_ns == 0 && link.ready()) link.send_probe(op.signature, op.is_point_to_point());
}

std::string FailureDetector::what_blocks(const Operation& op) const {
  const std::vector<Blocker>& blockers = blockers_of(op);
  if (blockers.empty()) return "waiting for an earlier operation to end";
  const auto& [link, to_take, block, done, slices] = blockers[0];
  return fmt::format("waiting for rank {} to {} block {} ({} of {} slices done)", link->peer(),
                     to_take ? "take" : "send", block, done, slices);
}

std::string FailureDetector::what_blocks() const {
  if (queues_.active().empty()) return {};
  return name_of(*queues_.active()[0]) + ": " + what_blocks(*queues_.active()[0]);
}

std::vector<KnownRank> FailureDetector::known_ranks(int64_t since_ns) const {
  std::vector<RankWaits> told = monitor_.waits();
  std::vector<KnownRank> ranks(peers_.size());
  bool any = false;
  for (size_t rank = 0; rank < ranks.size() && rank < told.size(); ++rank) {
    KnownRank& it = ranks[rank];
    it.known = is_fresh(told[rank], since_ns);
    it.calls = told[rank].calls;
    if (it.known) it.waits = std::move(told[rank].waits);
    it.left = monitor_.has_left(static_cast<int>(rank));
    if (static_cast<int>(rank) == links_.rank()) continue;
    any = any || it.known;
    if (const auto calls = monitor_.calls_of(static_cast<int>(rank)))
      it = {.known = true, .left = true, .calls = calls->count, .waits = {}};
  }
  if (!any) return {};
  ranks[static_cast<size_t>(links_.rank())] = {
      .known = true, .left = false, .calls = calls_.count, .waits = noted_waits_};
  return ranks;
}

std::vector<Wait> FailureDetector::waits_behind(const Operation& op) const {
  if (op.is_point_to_point()) {
    const bool is_queued = op.queue != nullptr && !op.queue->empty();
    return {wait_of(is_queued ? *op.queue->front() : op)};
  }
  std::vector<Wait> waits;
  // Who has not called the oldest collective is late for all of them.
  const Operation* const oldest = oldest_collective();
  if (oldest != nullptr && oldest != &op) waits.push_back(wait_of(*oldest));
  waits.push_back(wait_of(op));
  return waits;
}

Culprits FailureDetector::culprits_of(const Operation& op, int64_t waited_ns) const {
  const int64_t now_ns = clock_.now_ns();
  const std::vector<KnownRank> ranks = known_ranks(now_ns - waited_ns / 2);
  if (ranks.empty()) return {};
  // Who looks late must not take those for late who came in time.
  const int64_t deadline_ns =
      std::clamp(op.awaited_ns + waited_ns, now_ns - kLooksLateMax_ns, now_ns);
  std::vector<Wait> waits = waits_behind(op);
  for (Wait& wait : waits) {
    wait.awaited = true;
    wait.since_ns = deadline_ns - waited_ns;
  }
  return find_culprits(ranks, links_.rank(), waits, deadline_ns, waited_ns);
}

void FailureDetector::fail_timeout(const Operation& op, int64_t waited_ns) {
  const std::vector<Blocker>& blockers = blockers_of(op);
  int peer = blockers.empty() ? -1 : blockers[0].link->peer();
  std::string who = peer < 0 ? "another rank" : fmt::format("rank {}", peer);
  std::string why = what_blocks(op);
  std::string advice =
      "is {} still computing, or in another call? The timeout that the program "
      "gives sets the limit, or ROPEWALK_TIMEOUT where it gives none";
  const Culprits culprits = culprits_of(op, waited_ns);
  std::vector<int> peers = culprits.ranks;
  if (!peers.empty()) {
    who = fmt::format("rank {}", fmt::join(peers, ", "));
    why = explain(culprits, why);
  } else if (!culprits.path.empty()) {
    for (const Hop& hop : culprits.path) peers.push_back(hop.rank);
    std::ranges::sort(peers);
    why = describe(culprits.path);
    advice =
        "they wait for each other: let one of them make its calls in another order, or start "
        "them and wait for all";
  }
  fail({ErrorCode::timeout, name_of(op),
        fmt::format("timeout after {:.3g} s: {}", static_cast<double>(waited_ns) / 1e9, why),
        fmt::format(fmt::runtime(advice), who), links_.rank(), peer, std::move(peers)});
}

}  // namespace ropewalk
