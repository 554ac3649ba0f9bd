// How the engine finds out that something is wrong, and says who did what.
#include <fmt/format.h>

#include <algorithm>

#include "engine/engine.h"

namespace ropewalk {
namespace {

/// "recv #3": as the caller called it.
std::string name_of(const Operation& op) {
  return fmt::format("{} #{}", ropewalk::name_of(op.call.collective), op.signature.sequence);
}

constexpr int64_t kMillisecond_ns = 1'000'000;
/// Between asking the peers that an operation waits for.
constexpr int64_t kProbeInterval_ns = 50 * kMillisecond_ns;
/// A connection lost may be the echo of another rank's death, of which the monitor learns the name;
/// only when it has nothing to say by then is the peer itself blamed.
constexpr int64_t kLostGrace_ns = 250 * kMillisecond_ns;
/// What a peer sent before it left may still be on its way, through a retransmission or two; longer
/// where its adapter goes on for longer.
constexpr int64_t kLeftGrace_ns = 1000 * kMillisecond_ns;
/// For a peer to say which of the earlier calls differed. It may compute, and not look.
constexpr int64_t kAnswerGrace_ns = 1000 * kMillisecond_ns;

}  // namespace

/// What stream `f` of `op` waits for; nothing where it waits for this rank's other steps.
std::optional<Engine::Blocker> Engine::blocker_of_stream(const Operation& op, size_t f) const {
  const StreamState& stream = op.streams[f];
  const Stream& fixed = op.program.streams[f];
  const auto blocked_at = [&](uint32_t i) {
    const StepState& state = op.steps[i];
    return Blocker{stream.link, fixed.sending, op.program.steps[i].block, state.done, state.slices};
  };
  if (stream.head == fixed.steps.size()) {
    const auto open = std::find_if(fixed.steps.begin(), fixed.steps.end(), [&](uint32_t i) {
      return op.steps[i].done != op.steps[i].slices;
    });
    if (open == fixed.steps.end() || !fixed.sending) return {};
    return blocked_at(*open);
  }
  const uint32_t i = fixed.steps[stream.head];
  const StepState& state = op.steps[i];
  if (fixed.sending) {
    const uint32_t slice = std::min(state.issued, state.slices - 1);
    if (!slice_ready(op, i, slice, op.program.steps[i].deps_end)) return {};
    return blocked_at(i);
  }
  // What has arrived already waits for other steps here.
  const bool arrived = state.announced ? stream.link->slices_arrived(stream.id) > 0
                                       : stream.link->front(stream.id) != nullptr;
  if (arrived && !stream.link->lost()) return {};
  return blocked_at(i);
}

/// What `op` waits for from `peer`, as its contributor or its owner.
std::optional<Engine::Blocker> Engine::blocker_of_owner(const Operation& op,
                                                        const OwnerPeer& peer) {
  if (peer.is_contributor) {
    const OwnedBlock& block = op.owner.owned[peer.owned];
    if (!peer.accepted) return Blocker{peer.link, false, block.number, 0, 1};
    if (peer.is_staged() && block.done < block.slices)
      return Blocker{peer.link, false, block.number, block.done, block.slices};
  }
  if (peer.is_owner && (!peer.descriptor_sent || peer.returned < peer.slices))
    return Blocker{peer.link, true, peer.block, peer.returned, peer.slices};
  return {};
}

/// Calls `visit` with whom `op` waits for; not at all where it waits for its turn.
template <class Visit>
void Engine::for_each_blocker(const Operation& op, const Visit& visit) const {
  if (op.queue == nullptr || op.queue->first() != &op) return;
  switch (op.executor) {
    case ExecutorKind::pipelined:
      for (size_t f = 0; f < op.streams.size(); ++f)
        if (const auto blocker = blocker_of_stream(op, f)) visit(*blocker);
      break;
    case ExecutorKind::sequential:
      if (!op.linked) {
        for (const StreamState& stream : op.streams)
          if (!stream.link->ready()) visit(Blocker{stream.link, false, 0, 0, 1});
      } else if (op.next_step < op.program.steps.size()) {
        const ProgramStep& step = op.program.steps[op.next_step];
        visit(Blocker{op.streams[op.steps[op.next_step].stream].link, step.action == Action::send,
                      step.block, 0, 1});
      }
      break;
    case ExecutorKind::owner:
      for (const OwnerPeer& peer : op.owner.peers)
        if (const auto blocker = blocker_of_owner(op, peer)) visit(*blocker);
      break;
  }
}

std::optional<Engine::Blocker> Engine::first_blocker(const Operation& op) const {
  std::optional<Blocker> first;
  for_each_blocker(op, [&](const Blocker& blocker) {
    if (!first) first = blocker;
  });
  return first;
}

void Engine::fail(Failure failure) {
  failed_ = true;
  monitor_.report(failure);
}

void Engine::fail_mismatch(const Signature& own, const Signature& other, int peer) {
  fail({ErrorCode::mismatch, operation_name(own),
        fmt::format(
            "rank {} called {} as its operation {}, but rank {} called {} as its operation {}",
            rank_, describe(own), own.sequence, peer, describe(other), other.sequence),
        kMismatchAdvice, rank_, peer});
}

/// Whether a message is the one that `op` expects; fails the job where not. Where only what was
/// called before differs the message stays, and check_stalled finds out what that was.
bool Engine::check_header(const Operation& op, const Link& link, const EagerHeader& header,
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
                    rank_, bytes),
        "give matching counts on both ranks", rank_, link.peer()});
  return false;
}

/// Of one of the last kHistory collectives, or of one that has not ended.
const Signature* Engine::known_signature(uint32_t sequence) const {
  const uint32_t age = calls_.count - sequence;  // 1: the last started
  if (age == 0) return nullptr;
  const Signature& kept = history_[sequence % kHistory];
  if (age <= kHistory) return kept.sequence == sequence ? &kept : nullptr;
  const Operation* op = contexts_[sequence % kContexts].first();
  while (op != nullptr && op->signature.sequence != sequence) op = op->next;
  return op == nullptr ? nullptr : &op->signature;
}

std::string Engine::last_call() const {
  return calls_.count == 0 ? "" : describe(history_[(calls_.count - 1) % kHistory]);
}

/// Compares what `peer` called with what this rank called as the same operation. Where only what
/// came before differs it tells the peer about the call before: they go back, in turns, to the
/// first call that differs. `waits`: the peer may still answer.
void Engine::compare_calls(int peer, const Signature& theirs, bool waits) {
  const Signature* ours = known_signature(theirs.sequence);
  if (ours == nullptr || *ours == theirs) return;
  if (!is_same_call(*ours, theirs)) return fail_mismatch(*ours, theirs, peer);
  const Signature* before = known_signature(theirs.sequence - 1);
  if (before != nullptr && waits)
    return links_[static_cast<size_t>(peer)]->send_probe({*before, 0, check_of(*before)});
  fail({ErrorCode::mismatch, operation_name(*ours),
        fmt::format("rank {} and rank {} both called {} as their operation {}, but something else "
                    "before it",
                    rank_, peer, describe(*ours), ours->sequence),
        kMismatchAdvice, rank_, peer});
}

/// Messages that wait to be taken say what their senders called, perhaps not what this rank did.
/// `op` stands still since op.moved_ns.
void Engine::check_arrivals(const Operation& op, int64_t now_ns) {
  const bool waits = now_ns - op.moved_ns < kAnswerGrace_ns;
  for (Link* link : open_links_)
    for (int stream = 0; stream < kPointToPointContext * kLanes; ++stream) {
      const EagerHeader* front = link->front(stream);
      if (front == nullptr) continue;
      compare_calls(link->peer(), front->signature, waits);
      if (failed_) return;
    }
}

void Engine::check_probe(int peer) {
  const Probe probe = links_[static_cast<size_t>(peer)]->last_probe();
  // A probe may be overwritten by the next one while it is read.
  if (probe.point_to_point != 0 || probe.check != check_of(probe.signature)) return;
  compare_calls(peer, probe.signature, true);
}

/// For who waits for a message of any rank: whether there is one that may still send.
void Engine::check_senders() {
  int64_t until_ns = 0;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    if (!monitor_.has_left(peer)) return;
    int64_t& left_ns = pairs_[static_cast<size_t>(peer)].left_ns;
    if (left_ns == 0) left_ns = clock_.now_ns();
    until_ns = std::max(until_ns, left_ns + left_grace_ns(peer));
  }
  if (size_ == 1 || clock_.now_ns() < until_ns) return;
  // What they sent before is taken first, by whomever.
  for (int channel = 0; channel < kChannels; ++channel)
    if (has_message(channel)) return;
  if (!active_.empty() || failure() != nullptr) return;
  fail({ErrorCode::peer_lost, "next_sender",
        fmt::format("every other rank has left the job while rank {} waits for a message", rank_),
        "send what a rank waits for before the last one leaves", rank_, -1});
}

void Engine::on_lost(int transport, int peer) {
  if (route_[static_cast<size_t>(peer)] == transport) note_lost(peer);
}

// A peer that fell silent has been so for long: the monitor has had that time.
void Engine::note_lost(int peer) {
  const Transport& transport = transport_to(peer);
  const int64_t silent_ns =
      transport.why_lost(peer).silent ? transport.capabilities().silence_max_ns : 0;
  pairs_[static_cast<size_t>(peer)].lost_ns = std::max<int64_t>(1, clock_.now_ns() - silent_ns);
}

int64_t Engine::left_grace_ns(int peer) const {
  return std::max(kLeftGrace_ns, transport_to(peer).capabilities().silence_max_ns + kLostGrace_ns);
}

void Engine::answer_connects() {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || !transport_to(peer).is_wanted(peer)) continue;
    try {
      link_to(peer).connect();
    } catch (const Error& error) {  // no memory for the link; perhaps on the progress thread
      Failure failure = error.failure();
      failure.rank = failure.peer = rank_;
      return fail(std::move(failure));
    }
  }
}

bool Engine::look_for_arrivals() {
  bool found = false;
  for (Link* link : open_links_)
    for (int stream = 0; stream < kStreams; ++stream) found |= link->look(stream);
  return found;
}

void Engine::check_stalled(int64_t now_ns) {
  if (failure() != nullptr) return;  // operations may be gone
  for (Operation* op : active_) {
    if (op->moved_ns == 0) op->moved_ns = now_ns;
    if (now_ns - std::max(op->moved_ns, op->probed_ns) < kProbeInterval_ns) continue;
    op->probed_ns = now_ns;
    answer_connects();
    if (failure() == nullptr) check_arrivals(*op, now_ns);
    for_each_blocker(*op, [&](const Blocker& blocker) {
      if (failure() == nullptr) probe(*op, blocker, now_ns);
    });
    if (failure() != nullptr) return;
  }
}

/// Of a peer that left, while this rank goes on: whether this rank had called the same by then.
/// Fails the job where not.
void Engine::compare_calls_of_left(int peer) {
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
                    peer, theirs->count, theirs->last, rank_,
                    ours == nullptr ? "something else before" : describe(*ours)),
        kMismatchAdvice, rank_, peer});
}

/// Ends the job for a peer that is lost. Where the reason lies at this end this rank is at fault.
void Engine::fail_lost(const Operation& op, Link& link) {
  const int peer = link.peer();
  auto [text, silent, advice] = link.transport().why_lost(peer);
  const int culprit = advice.empty() ? peer : rank_;
  if (link.failure()) {
    Failure failure = *link.failure();
    failure.operation = name_of(op);
    failure.rank = rank_;
    failure.peer = culprit;
    return fail(std::move(failure));
  }
  if (advice.empty()) advice = fmt::format("see rank {}'s own output for why it ended", peer);
  const char* what = link.ready() ? "the connection to rank {} broke: {}"
                                  : "there is no connection to rank {}: {}";
  fail({ErrorCode::peer_lost, name_of(op), fmt::format(fmt::runtime(what), peer, text),
        std::move(advice), rank_, culprit});
}

/// Asks a peer what it is doing, unless it has gone.
void Engine::probe(Operation& op, const Blocker& blocker, int64_t now_ns) {
  Link& link = *blocker.link;
  const int peer = link.peer();
  int64_t& lost_ns = pairs_[static_cast<size_t>(peer)].lost_ns;
  int64_t& left_ns = pairs_[static_cast<size_t>(peer)].left_ns;
  if (lost_ns == 0 && link.lost()) note_lost(peer);
  const bool has_left = monitor_.has_left(peer);
  if (has_left && left_ns == 0) {
    left_ns = now_ns;
    compare_calls_of_left(peer);
    if (failed_) return;
  }
  if (has_left && now_ns - std::max(op.moved_ns, left_ns) >= left_grace_ns(peer))
    return fail({ErrorCode::peer_lost, name_of(op),
                 fmt::format("rank {} left the job while rank {} waits for it", peer, rank_),
                 "every rank must make the same calls before it leaves", rank_, peer});
  // What this rank knows of itself it says at once, before its peers wonder.
  const bool is_sure =
      now_ns - lost_ns >= kLostGrace_ns || !link.transport().why_lost(peer).advice.empty();
  if (lost_ns != 0 && !has_left && is_sure) return fail_lost(op, link);
  if (lost_ns == 0 && link.ready())
    link.send_probe({op.signature, op.is_point_to_point() ? 1u : 0u, check_of(op.signature)});
}

std::string Engine::what_blocks(const Operation& op) const {
  const std::optional<Blocker> first = first_blocker(op);
  if (!first) return "waiting for an earlier operation to end";
  return fmt::format("waiting for rank {} to {} block {} ({} of {} slices done)",
                     first->link->peer(), first->to_take ? "take" : "send", first->block,
                     first->done, first->slices);
}

std::string Engine::what_blocks() const {
  if (active_.empty()) return {};
  return name_of(*active_[0]) + ": " + what_blocks(*active_[0]);
}

void Engine::fail_timeout(const Operation& op, int64_t waited_ns) {
  const std::optional<Blocker> first = first_blocker(op);
  const int peer = first ? first->link->peer() : -1;
  fail({ErrorCode::timeout, name_of(op),
        fmt::format("timeout after {:.3g} s: {}", static_cast<double>(waited_ns) / 1e9,
                    what_blocks(op)),
        fmt::format("is {} still computing, or in another call? The timeout that the program gives "
                    "sets the limit, or ROPEWALK_TIMEOUT where it gives none",
                    peer < 0 ? "another rank" : fmt::format("rank {}", peer)),
        rank_, peer});
}

}  // namespace ropewalk
