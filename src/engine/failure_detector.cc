#include "engine/failure_detector.h"

#include <fmt/format.h>

#include <algorithm>

namespace ropewalk {
namespace {

/// "recv #3": as the caller called it.
std::string name_of(const Operation& op) {
  return fmt::format("{} #{}", ropewalk::name_of(op.call.collective), op.signature.sequence);
}

/// Between asking the peers that an operation waits for.
constexpr int64_t kProbeInterval_ns = 50 * kMillisecond_ns;
/// A connection that was closed may be the echo of another rank's death, or of a silence, after
/// which the peer looks for up to 2 s whom else it has lost. Only where the monitor has nothing to
/// say by then is the peer itself blamed.
constexpr int64_t kLostGrace_ns = 2500 * kMillisecond_ns;
/// The same where this rank has noticed the silence; that counts towards it.
constexpr int64_t kSilentGrace_ns = 250 * kMillisecond_ns;
/// What a peer sent before it left may still be on its way, through a retransmission or two; longer
/// where its adapter goes on for longer.
constexpr int64_t kLeftGrace_ns = 1000 * kMillisecond_ns;
/// Between questions who is behind.
constexpr int64_t kQuestionInterval_ns = 100 * kMillisecond_ns;
/// For a peer to say which of the earlier calls differed. It may compute, and not look.
constexpr int64_t kAnswerGrace_ns = 1000 * kMillisecond_ns;

}  // namespace

FailureDetector::FailureDetector(LinkTable& links, const OperationQueues& queues, Monitor& monitor,
                                 const Clock& clock)
    : links_(links),
      queues_(queues),
      monitor_(monitor),
      clock_(clock),
      peers_(static_cast<size_t>(links.size())) {
  blockers_.reserve(2 * kLanes * peers_.size());
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

void FailureDetector::ask_who_is_behind(int64_t now_ns) {
  if (now_ns - asked_ns_ < kQuestionInterval_ns) return;
  const Operation* const oldest = oldest_collective();
  if (oldest == nullptr) return;
  asked_ns_ = now_ns;
  monitor_.ask_who_is_behind(oldest->signature.sequence);
}

void FailureDetector::fail_mismatch(const Signature& own, const Signature& other, int peer) {
  fail({ErrorCode::mismatch, operation_name(own),
        fmt::format(
            "rank {} called {} as its operation {}, but rank {} called {} as its operation {}",
            links_.rank(), describe(own), own.sequence, peer, describe(other), other.sequence),
        kMismatchAdvice, links_.rank(), peer});
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
  if (before != nullptr && waits)
    return links_.find(peer)->send_probe({*before, 0, check_of(*before)});
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
  const Probe probe = links_.find(peer)->last_probe();
  // A probe may be overwritten by the next one while it is read.
  if (probe.point_to_point != 0 || probe.check != check_of(probe.signature)) return;
  compare_calls(peer, probe.signature, true);
}

void FailureDetector::check_senders() {
  int64_t until_ns = 0;
  for (int peer = 0; peer < links_.size(); ++peer) {
    if (peer == links_.rank()) continue;
    if (!monitor_.has_left(peer)) return;
    int64_t& left_ns = peers_[static_cast<size_t>(peer)].left_ns;
    if (left_ns == 0) left_ns = clock_.now_ns();
    until_ns = std::max(until_ns, left_ns + left_grace_ns(peer));
  }
  if (links_.size() == 1 || clock_.now_ns() < until_ns) return;
  // What they sent before is taken first, by whomever.
  for (int channel = 0; channel < kChannels; ++channel)
    for (Link* link : links_.open())
      if (has_unexpected_message(*link, queues_, channel)) return;
  if (!queues_.active().empty() || failure() != nullptr) return;
  fail({ErrorCode::peer_lost, "next_sender",
        fmt::format("every other rank has left the job while rank {} waits for a message",
                    links_.rank()),
        "send what a rank waits for before the last one leaves", links_.rank(), -1});
}

// A peer that fell silent has been so for long: the monitor has had that time.
void FailureDetector::note_lost(int peer) {
  const Transport& transport = links_.transport_to(peer);
  const LossReason why = transport.why_lost(peer);
  const int64_t silent_ns = why.silent ? transport.capabilities().silence_max_ns : 0;
  peers_[static_cast<size_t>(peer)].lost_ns = std::max<int64_t>(1, clock_.now_ns() - silent_ns);
  // At once, before the peer wonders; also between calls, as nobody else can tell.
  Link* const link = links_.find(peer);
  if (!why.seen || link == nullptr) return;
  fail_lost(queues_.active().empty() ? "link" : name_of(*queues_.active()[0]), *link);
}

int64_t FailureDetector::left_grace_ns(int peer) const {
  return std::max(kLeftGrace_ns,
                  links_.transport_to(peer).capabilities().silence_max_ns + kSilentGrace_ns);
}

void FailureDetector::answer_connects() {
  for (int peer = 0; peer < links_.size(); ++peer) {
    if (peer == links_.rank() || !links_.transport_to(peer).is_wanted(peer)) continue;
    try {
      links_.to(peer).connect();
    } catch (const Error& error) {  // no memory for the link; perhaps on the progress thread
      fail_here(error);
      return;
    }
  }
}

void FailureDetector::check_stalled(int64_t now_ns) {
  if (failure() != nullptr) return;  // operations may be gone
  for (Operation* op : queues_.active()) {
    if (op->moved_ns == 0) op->moved_ns = now_ns;
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
  return lacks || !links_.transport_to(link.peer()).why_lost(link.peer()).advice.empty();
}

void FailureDetector::fail_lost(std::string operation, Link& link) {
  const int peer = link.peer();
  auto [text, silent, seen, advice] = link.transport().why_lost(peer);
  if (advice.empty())
    advice = silent ? kNetworkAdvice
             : seen ? "run the same Ropewalk everywhere; else memory or the network is faulty, or "
                      "somebody on the path changes what passes"
                    : fmt::format("see rank {}'s own output for why it ended", peer);
  const char* what = link.ready() ? "the connection to rank {} broke: {}"
                                  : "there is no connection to rank {}: {}";
  Failure failure = link.failure().value_or(
      Failure{ErrorCode::peer_lost, "", fmt::format(fmt::runtime(what), peer, text), advice});
  failure.operation = std::move(operation);
  failure.rank = links_.rank();
  failure.peer = is_own_fault(link) ? links_.rank() : peer;
  if (silent && failure.peer == peer) return monitor_.report_silent(failure);  // the wait goes on
  fail(failure);
}

void FailureDetector::probe(const Operation& op, Link& link, int64_t now_ns) {
  const int peer = link.peer();
  int64_t& lost_ns = peers_[static_cast<size_t>(peer)].lost_ns;
  int64_t& left_ns = peers_[static_cast<size_t>(peer)].left_ns;
  if (lost_ns == 0 && link.lost()) note_lost(peer);
  if (failed_) return;
  const bool has_left = monitor_.has_left(peer);
  if (has_left && left_ns == 0) {
    left_ns = now_ns;
    compare_calls_of_left(peer);
    if (failed_) return;
  }
  if (has_left && now_ns - std::max(op.moved_ns, left_ns) >= left_grace_ns(peer))
    return fail(
        {ErrorCode::peer_lost, name_of(op),
         fmt::format("rank {} left the job while rank {} waits for it", peer, links_.rank()),
         "every rank must make the same calls before it leaves", links_.rank(), peer});
  // What this rank knows of itself it says at once, before its peers wonder.
  const bool silent = link.transport().why_lost(peer).silent;
  const bool is_sure =
      now_ns - lost_ns >= (silent ? kSilentGrace_ns : kLostGrace_ns) || is_own_fault(link);
  if (lost_ns != 0 && !has_left && is_sure) return fail_lost(name_of(op), link);
  if (lost_ns == 0 && link.ready())
    link.send_probe({op.signature, op.is_point_to_point() ? 1u : 0u, check_of(op.signature)});
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

std::vector<int> FailureDetector::late_ranks(const Operation& collective) const {
  assert(!collective.is_point_to_point());
  const std::vector<RankBehind> behind = monitor_.behind(collective.signature.sequence);
  const auto fewer = [](const RankBehind& a, const RankBehind& b) {
    return static_cast<int32_t>(a.calls - b.calls) < 0;
  };
  const auto last = std::ranges::min_element(behind, fewer);
  std::vector<int> ranks;
  for (const RankBehind& one : behind)
    if (one.calls == last->calls) ranks.push_back(one.rank);
  return ranks;
}

void FailureDetector::fail_timeout(const Operation& op, int64_t waited_ns) {
  const std::vector<Blocker>& blockers = blockers_of(op);
  int peer = blockers.empty() ? -1 : blockers[0].link->peer();
  std::string who = peer < 0 ? "another rank" : fmt::format("rank {}", peer);
  std::string why = what_blocks(op);
  // Messages wait for their peer, whatever collective is under way beside them.
  const Operation* const oldest = op.is_point_to_point() ? nullptr : oldest_collective();
  const std::vector<int> late = oldest == nullptr ? std::vector<int>() : late_ranks(*oldest);
  if (!late.empty()) {
    peer = late.front();
    who = fmt::format("rank {}", fmt::join(late, ", "));
    why = fmt::format("{} {} not called {} yet", who, late.size() == 1 ? "has" : "have",
                      name_of(*oldest));
  }
  fail({ErrorCode::timeout, name_of(op),
        fmt::format("timeout after {:.3g} s: {}", static_cast<double>(waited_ns) / 1e9, why),
        fmt::format("is {} still computing, or in another call? The timeout that the program gives "
                    "sets the limit, or ROPEWALK_TIMEOUT where it gives none",
                    who),
        links_.rank(), peer, late});
}

}  // namespace ropewalk
