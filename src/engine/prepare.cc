// Binding a schedule to a call's memory: everything that a run must not spend time on.
#include <algorithm>
#include <cstdint>

#include "engine/engine.h"

namespace ropewalk {
namespace {

Signature signature_of(const Call& call, Algorithm algorithm, size_t slice_bytes) {
  Signature s;
  // Both ends of a message must be equal: a receive is signed as the send it waits for.
  const bool receives = call.collective == Collective::recv;
  const bool pair = receives || call.collective == Collective::send;
  s.collective = static_cast<uint8_t>(receives ? Collective::send : call.collective);
  s.type = static_cast<uint8_t>(call.type);
  s.op = static_cast<uint8_t>(call.op.kind);
  s.algorithm = static_cast<uint8_t>(algorithm);
  s.root = pair ? 0 : call.root;
  s.slice_bytes = static_cast<uint32_t>(slice_bytes);
  // all_to_all_v: each pair has its own count, checked where the message arrives.
  const bool differs = call.collective == Collective::all_to_all && !call.counts.empty();
  s.count = call.counts.empty() ? call.count : 0;
  s.counts_hash = differs ? 0 : hash_counts(call.counts);
  return s;
}

Reachable reach(const RegisteredMemory& memory, int transport, const std::byte* address) {
  return {true, memory.registrations()[static_cast<size_t>(transport)]->key(),
          static_cast<uint64_t>(address - memory.data())};
}

bool contains(const RegisteredMemory* memory, const std::byte* address, size_t bytes) {
  return memory != nullptr && address >= memory->data() &&
         address + bytes <= memory->data() + memory->bytes();
}

/// Finds, or makes, the names by which peers reach this operation's memory.
class Binder {
 public:
  Binder(Operation& op, const std::vector<Transport*>& transports, MemoryRegistry& memories,
         int rank, int size)
      : op_(op), transports_(transports), memories_(memories) {
    const Extent extent = extent_of(op.call, rank, size);
    out_ = {static_cast<std::byte*>(op.call.out), extent.out * size_of(op.call.type), -1, 0};
    op.registrations.resize(transports.size());
  }

  Reachable source(int transport, const std::byte* address, size_t bytes) {
    if (contains(op_.scratch.get(), address, bytes)) return reach(*op_.scratch, transport, address);
    if (auto memory = memories_.find(address, bytes))
      return use(*memory, memory, transport, address);
    return {};
  }

  Reachable target(int transport, std::byte* address, size_t bytes, bool needs_registration) {
    const Reachable found = source(transport, address, bytes);
    if (found.known || needs_registration) return found;
    auto& registration = op_.registrations[static_cast<size_t>(transport)];
    if (!registration)
      registration = transports_[static_cast<size_t>(transport)]->register_memory(out_);
    return {true, registration->key(), static_cast<uint64_t>(address - out_.base)};
  }

 private:
  Reachable use(const RegisteredMemory& memory, const std::shared_ptr<RegisteredMemory>& shared,
                int transport, const std::byte* address) {
    op_.uses.emplace_back(shared);
    return reach(memory, transport, address);
  }

  Operation& op_;
  const std::vector<Transport*>& transports_;
  MemoryRegistry& memories_;
  Region out_;
};

/// Registered with every transport, in the order of their indices.
std::unique_ptr<RegisteredMemory> allocate(size_t bytes,
                                           const std::vector<Transport*>& transports) {
  auto memory = std::make_unique<RegisteredMemory>(bytes);
  for (Transport* transport : transports) memory->register_with(*transport);
  return memory;
}

/// Decides for each step of `fifo` how its data travels; true where a window is needed.
bool bind_steps(Operation& op, size_t f, Binder& binder) {
  const Fifo& fixed = op.program.fifos[f];
  const Link& link = *op.fifos[f].link;
  const int transport = link.transport_index();
  bool needs_window = false;
  for (uint32_t i : fixed.steps) {
    const ProgramStep& step = op.program.steps[i];
    StepState& state = op.steps[i];
    state.fifo = static_cast<uint32_t>(f);
    if (state.eager) continue;
    const bool for_reduce = step.for_reduce || step.action == Action::receive_reduce;
    state.exposed = for_reduce && link.mapped();
    if (fixed.sending && state.exposed)
      state.reachable = binder.source(transport, step.source, step.bytes);
    if (step.action == Action::receive_copy)
      state.reachable =
          binder.target(transport, step.target, step.bytes, link.needs_registration());
    const bool uses_window = fixed.sending ? state.exposed : !state.exposed;
    needs_window |= uses_window && !state.reachable.known;
  }
  return needs_window;
}

}  // namespace

std::shared_ptr<Operation> Engine::prepare(const Call& call, const Schedule& schedule,
                                           Algorithm algorithm, size_t slice_bytes) {
  auto op = std::make_shared<Operation>();
  op->call = call;
  op->algorithm = algorithm;
  op->signature = signature_of(call, algorithm, slice_bytes);

  const std::vector<BlockMemory> blocks = lay_out(call, schedule);
  const size_t scratch = scratch_bytes(schedule, blocks, call);
  if (scratch > 0) op->scratch = allocate(scratch, transports_);
  op->program =
      compile(schedule, blocks, call, slice_bytes, op->scratch ? op->scratch->data() : nullptr);
  std::vector<bool> mapped(static_cast<size_t>(size_));
  for (int peer = 0; peer < size_; ++peer) mapped[static_cast<size_t>(peer)] = is_mapped(peer);
  if (algorithm == Algorithm::direct) fuse(op->program, mapped);

  op->fused_slices.resize(op->program.fused.size());
  op->steps = std::vector<StepState>(op->program.steps.size());
  for (size_t i = 0; i < op->steps.size(); ++i) {
    op->steps[i].operation = op.get();
    op->steps[i].slices = op->program.steps[i].slices;
    op->steps[i].eager = op->program.steps[i].bytes <= kEagerBytesMax;
  }
  Binder binder(*op, transports_, memories_, rank_, size_);
  op->fifos.resize(op->program.fifos.size());
  std::vector<FifoState*> windowed;
  for (size_t f = 0; f < op->fifos.size(); ++f) {
    op->fifos[f].link = &link_to(op->program.fifos[f].peer);
    op->fifos[f].stream = stream_of(kPointToPointContext, 0);
    if (bind_steps(*op, f, binder)) windowed.push_back(&op->fifos[f]);
  }
  const size_t window_bytes = kWindowSlots * slice_bytes;
  if (!windowed.empty()) op->windows = allocate(windowed.size() * window_bytes, transports_);
  for (size_t w = 0; w < windowed.size(); ++w) {
    windowed[w]->window.base = op->windows->data() + w * window_bytes;
    windowed[w]->window.at =
        reach(*op->windows, windowed[w]->link->transport_index(), windowed[w]->window.base);
  }
  return op;
}

}  // namespace ropewalk
