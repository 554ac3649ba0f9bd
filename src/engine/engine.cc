#include "engine/engine.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

#include "engine/executors.h"
#include "engine/layout.h"
#include "engine/memory_binder.h"

namespace ropewalk {
namespace {

Error no_memory() {
  return {ErrorCode::exhausted, "start", "there is no memory left",
          "give the process more, or start fewer calls at once"};
}

}  // namespace

Engine::Engine(int rank, int size, std::vector<Transport*> transports, std::vector<int> route,
               MemoryRegistry& memories, Monitor& monitor, const Clock& clock)
    : memories_(memories),
      clock_(clock),
      links_(rank, std::move(transports), std::move(route)),
      queues_(size),
      failures_(links_, queues_, monitor, clock) {
  assert(links_.size() == size);
  ended_.reserve(64);
}

std::shared_ptr<Operation> Engine::prepare(const Call& call, const Schedule& schedule,
                                           Algorithm algorithm, size_t slice_bytes) {
  unmap_deregistered();
  auto op = std::make_shared<Operation>();
  op->call = call;
  equip(*op, schedule, algorithm, slice_bytes);
  return op;
}

void Engine::equip(Operation& op, const Schedule& schedule, Algorithm algorithm,
                   size_t slice_bytes) {
  assert(op.state != Operation::State::running);
  const Call& call = op.call;
  op.executor.reset();  // before the memory that it knows
  OperationMemory memory;
  memory.packed = std::move(op.memory.packed);
  op.memory = std::move(memory);
  op.algorithm = algorithm;
  op.signature = signature_of(call, algorithm, slice_bytes);
  const EngineParts parts{links_, failures_, queues_};
  const std::vector<BlockMemory> blocks = lay_out(call, schedule);
  const auto allocate = [&](size_t bytes) {
    op.memory.scratch = allocate_registered(bytes, links_.transports());
    return op.memory.scratch->data();
  };
  if (can_run_owner(call, schedule, blocks, links_.are_all_mapped())) {
    const size_t bytes = extent_of(call, links_.rank(), links_.size()).in * size_of(call.type);
    const std::byte* saved = overwrites_input(call) ? allocate(bytes) : nullptr;
    op.executor = std::make_unique<OwnerExecutor>(
        parts, op, make_owner_program(call, schedule, blocks, slice_bytes, saved));
  } else {
    Program program = compile(schedule, blocks, call, slice_bytes, allocate);
    if (can_run_sequential(program, algorithm))
      op.executor = std::make_unique<SequentialExecutor>(parts, op, std::move(program));
    else
      op.executor = std::make_unique<PipelinedExecutor>(parts, op, std::move(program));
  }
  bind(op);
}

void Engine::bind(Operation& op) {
  MemoryBinder binder(op, links_, memories_);
  op.executor->bind(binder);
  binder.allocate_windows(op.signature.slice_bytes);
  op.memory.bound = true;
}

void Engine::start(Operation& op) {
  assert(op.state != Operation::State::running);
  try {
    if (op.tuner != nullptr) op.tuner->before_start(op);
    if (!op.memory.bound || !op.memory.is_current()) bind(op);
  } catch (const Error& error) {
    throw Error(failures_.fail_here(error));  // peers may have started it, and would wait
  } catch (const std::bad_alloc&) {
    throw Error(failures_.fail_here(no_memory()));
  }
  for (const Fragment& piece : op.fragments) std::memcpy(piece.packed, piece.in, piece.bytes);
  op.begun = false;
  op.queue = nullptr;
  if (op.is_point_to_point())
    op.signature.sequence = queues_.count_message(op);
  else
    failures_.record(op.signature);
  // Stamped once it stands still: no clock on the data path.
  op.moved_ns = op.probed_ns = op.seen_ns = 0;
  op.has_callback = op.noted = false;
  op.state.store(Operation::State::running, std::memory_order_release);
  if (failures_.failure() != nullptr) return;  // those that it would wait behind may be gone
  queues_.push(op);
  if (op.tuner != nullptr) start_behind(op);
}

void Engine::start_behind(Operation& op) {
  try {
    if (const auto group = op.tuner->after_start(op)) group->start(*this);
  } catch (const Error& error) {
    failures_.fail_here(error);  // `op` is under way: whoever waits for it is told
  } catch (const std::bad_alloc&) {
    failures_.fail_here(no_memory());
  }
}

void Group::start(Engine& engine) {
  assert(is_finished());
  unfinished_.store(parts_.size(), std::memory_order_relaxed);
  for (const auto& part : parts_) engine.start(*part);
}

bool Engine::progress() {
  if (failures_.failure() != nullptr) return false;
  // First what a start, or a message in a mapped slot, made possible; then what polls bring.
  bool moved = advance();
  if (failures_.has_failed()) return false;
  if ((!moved || needs_poll()) && poll_transports() && !failures_.has_failed()) moved |= advance();
  return moved && !failures_.has_failed();
}

/// Where a turn over mapped memory has ended all there was, a poll could bring nothing that anybody
/// waits for here. But peers may: for an answer to a probe.
bool Engine::needs_poll() {
  constexpr uint32_t kTurnsUnpolled = 64;
  if (has_operations() || links_.has_puts_under_way() || owing_ || links_.has_networks())
    return true;
  return ++turns_unpolled_ % kTurnsUnpolled == 0;
}

bool Engine::advance() {
  if (!has_operations() && !links_.has_puts_under_way() && !owing_) return false;
  links_.set_batching(true);
  bool moved = false;
  for (size_t i = 0; i < queues_.active().size() && !failures_.has_failed();) {
    Operation& op = *queues_.active()[i];
    if (!std::exchange(op.begun, true)) {  // its turn has come, and with it its streams
      if (op.timed) op.timed->begun_ns = clock_.now_ns();
      op.executor->begin(op.is_point_to_point()
                             ? kPointToPointContext
                             : static_cast<int>(op.signature.sequence % kContexts));
    }
    if (op.executor->progress()) {
      op.moved_ns = 0;
      moved = true;
    }
    if (op.executor->is_finished() && !failures_.has_failed()) {
      finish(i);
      moved = true;
    } else {
      ++i;
    }
  }
  owing_ = !links_.flush();
  links_.set_batching(false);
  return moved;
}

void Engine::finish(size_t active_index) {
  Operation& op = *queues_.active()[active_index];
  for (const Fragment& piece : op.fragments) std::memcpy(piece.out, piece.packed, piece.bytes);
  if (!op.memory.is_current()) {
    op.memory.plain.clear();
    op.memory.bound = false;
  }
  queues_.pop_active(active_index);
  if (op.noted) failures_.note_waits();
  if (op.timed) std::exchange(op.timed, nullptr)->ended_ns = clock_.now_ns();
  op.state.store(Operation::State::done, std::memory_order_release);
  if (Group* group = op.group; group != nullptr && group->end_part()) ended_.push_back(group);
}

const Operation* Engine::owed_to_peers() const {
  const auto& active = queues_.active();
  const auto owed = std::ranges::find_if(
      active, [](const Operation* op) { return op->call.collective != Collective::recv; });
  return owed == active.end() ? nullptr : *owed;
}

std::optional<int> Engine::next_sender(int channel) {
  const std::vector<Link*>& links = links_.open();
  for (size_t i = 0; i < links.size(); ++i) {
    last_sender_ = (last_sender_ + 1) % links.size();
    Link& link = *links[last_sender_];
    if (has_unexpected_message(link, queues_, channel)) return link.peer();
  }
  failures_.check_senders();
  return {};
}

bool Engine::poll_transports() {
  bool found = false;
  const std::vector<Transport*>& transports = links_.transports();
  for (size_t t = 0; t < transports.size(); ++t) {
    const size_t count = transports[t]->poll(completions_);
    for (size_t i = 0; i < count; ++i) on_completion(static_cast<int>(t), completions_[i]);
    found |= count > 0;
  }
  found |= links_.poll_inboxes();  // also where nobody waits: their senders may
  const bool ready = links_.find_ready();
  owing_ |= ready;  // this rank may have ended before
  return ready || found;
}

void Engine::on_completion(int transport, const Completion& completion) {
  switch (completion.kind) {
    case Completion::Kind::put_done:
      links_.put_done();
      if (completion.cookie == kProbeCookie)
        links_.find(completion.peer)->probe_sent();
      else if (completion.cookie != 0)
        PipelinedExecutor::put_done(completion.cookie);
      break;
    case Completion::Kind::notice:
      on_notice(completion.peer, completion.notice);
      break;
    case Completion::Kind::lost:
      if (links_.transport_index(completion.peer) == transport)
        failures_.note_lost(completion.peer);
      break;
  }
}

void Engine::on_notice(int peer, uint32_t notice) {
  // A notice can only come from a peer that got our hello, so the link exists; but bytes from
  // outside are not trusted.
  Link* link = links_.find(peer);
  if (link == nullptr || !link->on_notice(notice))
    return failures_.fail({ErrorCode::protocol, "transport",
                           "rank " + std::to_string(peer) + " sent a notice that makes no sense",
                           "check that all ranks run the same version of Ropewalk", links_.rank(),
                           peer});
  if (notice_kind(notice) == NoticeKind::probe) failures_.check_probe(peer);
}

}  // namespace ropewalk
