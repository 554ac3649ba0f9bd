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

Engine::Engine(Worker& worker, uint16_t communicator, int rank, std::vector<int> members,
               MemoryRegistry& memories, Monitor& monitor, const Clock& clock)
    : worker_(worker),
      memories_(memories),
      clock_(clock),
      links_(worker.connections(), communicator, rank, std::move(members)),
      queues_(links_.size()),
      failures_(links_, queues_, monitor, clock) {
  worker_.add(*this);
}

std::shared_ptr<Operation> Engine::prepare(const Call& call, const Schedule& schedule,
                                           Algorithm algorithm, size_t slice_bytes) {
  worker_.unmap_deregistered();
  auto op = std::make_shared<Operation>();
  op->call = call;
  rebind(*op, schedule, algorithm, slice_bytes);
  return op;
}

void Engine::rebind(Operation& op, const Schedule& schedule, Algorithm algorithm,
                    size_t slice_bytes) {
  assert(op.state != Operation::State::running);
  const Call& call = op.call;
  op.executor.reset();  // before the memory that it knows
  OperationMemory memory;
  memory.packed = std::move(op.memory.packed);
  op.memory = std::move(memory);
  op.algorithm = algorithm;
  op.signature = signature_of(call, algorithm, slice_bytes, schedule.digest);
  const EngineParts parts{links_, failures_, queues_};
  const std::vector<BlockMemory> blocks = lay_out(call, schedule);
  const auto allocate = [&](size_t bytes) {
    op.memory.scratch = worker_.staging().take(bytes);
    return op.memory.scratch->data();
  };
  if (can_run_owner(call, schedule, blocks, links_.are_all_mapped())) {
    const size_t bytes = extent_of(call, links_.rank(), links_.size()).in * size_of(call.type);
    const std::byte* saved = overwrites_input(call) ? allocate(bytes) : nullptr;
    op.executor = std::make_unique<OwnerExecutor>(
        parts, op, make_owner_program(call, schedule, blocks, slice_bytes, saved));
  } else {
    // What fits into slots is copied through them: no peer has to reach it.
    const auto allocate_scratch = [&](size_t bytes) {
      if (bytes > kMappedEagerBytesMax) return allocate(bytes);
      op.memory.small_scratch = std::make_unique<std::byte[]>(bytes);
      return op.memory.small_scratch.get();
    };
    const auto eager_limit = [&](int peer) { return links_.eager_limit(peer); };
    Program program = compile(schedule, blocks, call, slice_bytes, eager_limit, allocate_scratch);
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
  binder.allocate_windows(worker_.staging());
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
  if (!has_operations()) worker_.add_busy(*this);
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

bool Engine::advance() {
  if (has_failed()) return false;
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
  return moved && !failures_.has_failed();
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
  if (Group* group = op.group; group != nullptr && group->end_part()) worker_.note_ended(*group);
}

void Engine::end_links() {
  assert(owed_to_peers() == nullptr);
  has_ended_ = true;
  links_.end();
  worker_.flush();
}

bool Engine::quiesce(bool trusts_leaves) {
  worker_.drop(*this);
  if (!std::exchange(has_ended_, true)) {
    links_.end();
    worker_.flush();
  }
  const auto is_quiet = [](const Operation* op) { return op->executor->is_quiet(); };
  return pending_peer(trusts_leaves) < 0 && std::ranges::all_of(queues_.active(), is_quiet);
}

int Engine::pending_peer(bool trusts_leaves) const {
  for (Link* link : links_.open())
    if (link->ready() && !link->has_ended() && !(trusts_leaves && failures_.has_left(link->peer())))
      return link->peer();
  return -1;
}

const Operation* Engine::owed_to_peers() const {
  const auto& active = queues_.active();
  const auto owed = std::ranges::find_if(
      active, [](const Operation* op) { return op->call.collective != Collective::recv; });
  return owed == active.end() ? nullptr : *owed;
}

std::optional<int> Engine::next_sender(int channel) {
  if (worker_.has_failed()) return {};
  const std::vector<Link*>& links = links_.open();
  for (size_t i = 0; i < links.size(); ++i) {
    last_sender_ = (last_sender_ + 1) % links.size();
    Link& link = *links[last_sender_];
    if (has_unexpected_message(link, queues_, channel)) return link.peer();
  }
  failures_.check_senders();
  return {};
}

}  // namespace ropewalk
