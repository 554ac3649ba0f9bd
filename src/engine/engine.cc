#include "engine/engine.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>
#include <utility>

namespace ropewalk {
namespace {

/// Whether the names of the caller's plain memory still mean that memory.
bool is_current(const Operation& op) {
  for (const PlainMemory& plain : op.plain)
    if (!plain.registration->current()) return false;
  return true;
}

}  // namespace

Engine::Engine(int rank, int size, std::vector<Transport*> transports, std::vector<int> route,
               MemoryRegistry& memories, Monitor& monitor, const Clock& clock)
    : rank_(rank),
      size_(size),
      transports_(std::move(transports)),
      route_(std::move(route)),
      memories_(memories),
      monitor_(monitor),
      clock_(clock),
      links_(static_cast<size_t>(size)),
      pairs_(static_cast<size_t>(size)) {
  active_.reserve(64);
  std::ranges::copy_if(transports_, std::back_inserter(networks_),
                       [](Transport* transport) { return transport->mapped_memory() == nullptr; });
}

bool Engine::is_mapped(int peer) const {
  return peer != rank_ && transport_to(peer).mapped_memory() != nullptr;
}

Link& Engine::link_to(int peer) {
  auto& link = links_[static_cast<size_t>(peer)];
  if (!link) {
    link = std::make_unique<Link>(transport_to(peer), route_[static_cast<size_t>(peer)], peer,
                                  puts_under_way_);
    open_links_.push_back(link.get());
  }
  return *link;
}

bool Engine::has_work() {
  const auto has_unsent = [](Transport* transport) { return transport->has_unsent(); };
  return !active_.empty() || puts_under_way_ > 0 || owing_ ||
         std::any_of(networks_.begin(), networks_.end(), has_unsent);
}

void Engine::start(Operation& op) {
  assert(op.state != Operation::State::running);
  if (!op.bound || !is_current(op)) bind_anew(op);
  op.unfinished =
      op.executor == ExecutorKind::pipelined ? static_cast<uint32_t>(op.steps.size()) : 1;
  op.begun = false;
  if (op.is_point_to_point()) {
    Channel& channel = channel_in(pairs_, op);
    op.signature.sequence =
        op.call.collective == Collective::send ? channel.sends_started++ : channel.recvs_started++;
  } else {
    op.signature.sequence = calls_.count;
    op.signature.history = calls_.digest;
    calls_.add(op.signature);
    history_[op.signature.sequence % kHistory] = op.signature;
    const int context = static_cast<int>(op.signature.sequence % kContexts);
    for (size_t f = 0; f < op.streams.size(); ++f)
      op.streams[f].id = stream_of(context, op.program.streams[f].lane);
    for (OwnerPeer& peer : op.owner.peers) peer.stream = stream_of(context, 0);
  }
  op.moved_ns = op.probed_ns = 0;  // stamped by check_stalled: no clock on the data path
  op.state.store(Operation::State::running, std::memory_order_release);
  if (failure() != nullptr) return;  // those that it would wait behind may be gone
  op.queue = &queue_for(op);
  if (op.queue->empty()) active_.push_back(&op);
  op.queue->push(op);
}

OperationQueue& Engine::queue_for(const Operation& op) {
  if (!op.is_point_to_point()) return contexts_[op.signature.sequence % kContexts];
  Channel& channel = channel_in(pairs_, op);
  return op.call.collective == Collective::send ? channel.sends : channel.recvs;
}

/// Its turn has come, and with it its streams.
void Engine::begin(Operation& op) {
  op.begun = true;
  op.next_step = 0;
  if (op.executor == ExecutorKind::pipelined) begin_pipelined(op);
  if (op.executor == ExecutorKind::owner) begin_owner(op);
}

void Engine::begin_pipelined(Operation& op) {
  for (StreamState& stream : op.streams) {
    stream.head = stream.tail = stream.grant_head = 0;
    stream.window_issued = stream.window_consumed = stream.window_taken = 0;
    stream.consumed_seen = stream.link->to_be_consumed(stream.id);
  }
  for (StepState& step : op.steps) {
    step.issued = step.done = step.consumed = 0;
    step.announced = step.granted = step.windowed = false;
  }
}

/// Links are made when operations first need them.
bool Engine::is_linked(Operation& op) {
  if (op.linked) return true;
  bool all = true;
  const auto link_up = [&](Link& link) {
    link.connect();
    all &= link.ready();
  };
  for (StreamState& stream : op.streams) link_up(*stream.link);
  for (OwnerPeer& peer : op.owner.peers) link_up(*peer.link);
  return op.linked = all;
}

bool Engine::progress() {
  if (failure() != nullptr) return false;
  // First what a start, or a message in a mapped slot, made possible; then what polls bring.
  bool moved = advance();
  if ((!moved || needs_poll()) && !failed_ && poll_transports() && !failed_) moved |= advance();
  return moved && !failed_;
}

/// Where a turn over mapped memory has ended all there was, a poll could bring nothing that anybody
/// waits for here. But peers may: for an answer to a probe.
bool Engine::needs_poll() {
  constexpr uint32_t kTurnsUnpolled = 64;
  if (!active_.empty() || puts_under_way_ > 0 || owing_ || !networks_.empty()) return true;
  return ++turns_unpolled_ % kTurnsUnpolled == 0;
}

bool Engine::advance() {
  if (active_.empty() && puts_under_way_ == 0 && !owing_) return false;
  for (Transport* network : networks_) network->set_batching(true);
  bool moved = false;
  for (size_t i = 0; i < active_.size() && !failed_;) {
    Operation& op = *active_[i];
    if (run(op)) moved = true;
    if (op.unfinished == 0 && !failed_) {
      active_.erase(active_.begin() + static_cast<ptrdiff_t>(i));
      finish(op);
      moved = true;
    } else {
      ++i;
    }
  }
  owing_ = false;
  for (Link* link : open_links_)
    if (link->ready()) owing_ |= !link->flush();
  for (Transport* network : networks_) network->set_batching(false);
  return moved;
}

void Engine::unmap_deregistered() {
  if (!active_.empty()) return;
  for (Transport* transport : transports_)
    if (MappedMemory* mapped = transport->mapped_memory()) mapped->unmap_deregistered();
  for (Link* link : open_links_) link->find_inbox_again();
}

void Engine::stop_transports() {
  if (std::exchange(stopped_, true)) return;
  for (Transport* transport : transports_) transport->stop();
}

bool Engine::run(Operation& op) {
  if (!op.begun) begin(op);
  const bool linked = is_linked(op);
  bool moved = false;
  if (op.executor == ExecutorKind::pipelined)
    moved = run_pipelined(op);
  else if (linked)
    moved = op.executor == ExecutorKind::sequential ? run_sequential(op) : run_owner_executor(op);
  if (moved) op.moved_ns = 0;
  return moved;
}

bool Engine::run_pipelined(Operation& op) {
  bool moved = false, again = true;
  while (again && op.unfinished > 0) {
    again = false;
    for (size_t f = 0; f < op.streams.size(); ++f) {
      if (!op.streams[f].link->ready()) continue;
      again |= op.program.streams[f].sending ? advance_send(op, f) : advance_receive(op, f);
    }
    if (!op.program.locals.empty()) again |= advance_locals(op);
    if (failed_) return false;
    moved |= again;
  }
  return moved;
}

void Engine::finish(Operation& op) {
  for (const Fragment& piece : op.fragments) std::memcpy(piece.out, piece.packed, piece.bytes);
  if (!is_current(op)) {
    op.plain.clear();
    op.bound = false;
  }
  op.queue->pop();
  if (!op.queue->empty()) active_.push_back(op.queue->first());
  op.state.store(Operation::State::done, std::memory_order_release);
}

bool Engine::has_message(Link& link, int channel) {
  if (!link.ready()) return false;
  const Channel& messages =
      pairs_[static_cast<size_t>(link.peer())].channels[static_cast<size_t>(channel)];
  return messages.recvs.empty() && link.front(stream_of(kPointToPointContext, channel)) != nullptr;
}

std::optional<int> Engine::next_sender(int channel) {
  for (size_t i = 0; i < open_links_.size(); ++i) {
    last_sender_ = (last_sender_ + 1) % open_links_.size();
    Link& link = *open_links_[last_sender_];
    if (has_message(link, channel)) return link.peer();
  }
  check_senders();
  return {};
}

bool Engine::poll_transports() {
  bool found = false;
  for (size_t t = 0; t < transports_.size(); ++t) {
    const size_t count = transports_[t]->poll(completions_);
    for (size_t i = 0; i < count; ++i) on_completion(static_cast<int>(t), completions_[i]);
    found |= count > 0;
  }
  return found;
}

void Engine::on_completion(int transport, const Completion& completion) {
  switch (completion.kind) {
    case Completion::Kind::put_done:
      --puts_under_way_;
      if (completion.cookie == kProbeCookie)
        links_[static_cast<size_t>(completion.peer)]->probe_sent();
      else if (completion.cookie != 0)
        finish_slice(*reinterpret_cast<StepState*>(completion.cookie));
      break;
    case Completion::Kind::notice:
      on_notice(completion.peer, completion.notice);
      break;
    case Completion::Kind::lost:
      on_lost(transport, completion.peer);
      break;
  }
}

void Engine::on_notice(int peer, uint32_t notice) {
  // A notice can only come from a peer that got our hello, so the link exists; but bytes from
  // outside are not trusted.
  Link* link = links_[static_cast<size_t>(peer)].get();
  if (link == nullptr || !link->on_notice(notice))
    return fail({ErrorCode::protocol, "transport",
                 "rank " + std::to_string(peer) + " sent a notice that makes no sense",
                 "check that all ranks run the same version of Ropewalk", rank_, peer});
  if (notice_kind(notice) == NoticeKind::probe) check_probe(peer);
}

void Engine::finish_slice(StepState& step) {
  if (++step.done == step.slices) --step.operation->unfinished;
}

bool Engine::slice_ready(const Operation& op, uint32_t step, uint32_t slice, uint32_t deps_end) {
  const uint32_t slices = op.steps[step].slices;
  for (uint32_t d = op.program.steps[step].deps_begin; d < deps_end; ++d) {
    const StepState& before = op.steps[op.program.deps[d]];
    if (before.slices == slices ? before.done <= slice : before.done < before.slices) return false;
  }
  return true;
}

}  // namespace ropewalk
