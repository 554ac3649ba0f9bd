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

/// Registered with every transport, in the order of their indices.
std::unique_ptr<RegisteredMemory> allocate(size_t bytes,
                                           const std::vector<Transport*>& transports) {
  auto memory = std::make_unique<RegisteredMemory>(bytes);
  for (Transport* transport : transports) memory->register_with(*transport);
  return memory;
}

}  // namespace

/// Finds, or makes, the names by which peers reach this operation's memory.
class Engine::Binder {
 public:
  Binder(Operation& op, const std::vector<Transport*>& transports, MemoryRegistry& memories,
         int rank, int size)
      : op_(op), transports_(transports), memories_(memories) {
    const Extent extent = extent_of(op.call, rank, size);
    out_ = {static_cast<std::byte*>(op.call.out), extent.out * size_of(op.call.type), -1, 0};
    op.registrations.resize(transports.size());
  }

  Reachable source(int transport, const std::byte* address, size_t bytes) {
    for (const RegisteredMemory* own : {op_.scratch.get(), op_.passes.saved.get()})
      if (contains(own, address, bytes)) return reach(*own, transport, address);
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

/// Decides for each step of fifo `f` how its data travels; true where a window is needed.
bool Engine::bind_steps(Operation& op, size_t f, Binder& binder) {
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

void Engine::give_windows(Operation& op, const std::vector<std::pair<Link*, Window*>>& windows) {
  if (windows.empty()) return;
  const size_t window_bytes = kWindowSlots * op.program.slice_bytes;
  op.windows = allocate(windows.size() * window_bytes, transports_);
  for (size_t w = 0; w < windows.size(); ++w) {
    const auto& [link, window] = windows[w];
    window->base = op.windows->data() + w * window_bytes;
    window->at = reach(*op.windows, link->transport_index(), window->base);
  }
}

void Engine::prepare_fifos(Operation& op, Binder& binder) {
  op.steps = std::vector<StepState>(op.program.steps.size());
  for (size_t i = 0; i < op.steps.size(); ++i) {
    op.steps[i].operation = &op;
    op.steps[i].slices = op.program.steps[i].slices;
    op.steps[i].eager = op.program.steps[i].bytes <= kEagerBytesMax;
  }
  op.fifos.resize(op.program.fifos.size());
  std::vector<std::pair<Link*, Window*>> windows;
  for (size_t f = 0; f < op.fifos.size(); ++f) {
    FifoState& fifo = op.fifos[f];
    fifo.link = &link_to(op.program.fifos[f].peer);
    fifo.stream = stream_of(kPointToPointContext, 0);
    if (bind_steps(op, f, binder)) windows.emplace_back(fifo.link, &fifo.window);
  }
  give_windows(op, windows);
}

void Engine::prepare_passes(Operation& op, const Schedule& schedule,
                            const std::vector<BlockMemory>& blocks, Binder& binder) {
  const size_t in_bytes = extent_of(op.call, rank_, size_).in * size_of(op.call.type);
  const bool overwrites =
      op.call.collective == Collective::all_to_all && op.call.in == op.call.out && in_bytes > 0;
  std::unique_ptr<RegisteredMemory> saved;
  if (overwrites) saved = allocate(in_bytes, transports_);
  op.passes = make_passes(op.call, schedule, blocks, op.program.slice_bytes,
                          saved ? saved->data() : nullptr);
  op.passes.saved = std::move(saved);
  std::vector<std::pair<Link*, Window*>> windows;
  for (PassPeer& peer : op.passes.peers) {
    peer.link = &link_to(peer.rank);
    if (peer.bytes == 0) continue;
    const int transport = peer.link->transport_index();
    if (peer.in != nullptr) peer.in_at = binder.source(transport, peer.in, peer.bytes);
    if (peer.out != nullptr)
      peer.out_at = binder.target(transport, peer.out, peer.bytes, peer.link->needs_registration());
    if ((peer.in != nullptr && !peer.in_at.known) || (peer.out != nullptr && !peer.out_at.known))
      windows.emplace_back(peer.link, &peer.window);
  }
  give_windows(op, windows);
}

bool Engine::are_all_mapped() const {
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && !is_mapped(peer)) return false;
  return true;
}

std::shared_ptr<Operation> Engine::prepare(const Call& call, const Schedule& schedule,
                                           Algorithm algorithm, size_t slice_bytes) {
  forget_withdrawn();
  auto op = std::make_shared<Operation>();
  op->call = call;
  op->algorithm = algorithm;
  op->signature = signature_of(call, algorithm, slice_bytes);

  const std::vector<BlockMemory> blocks = lay_out(call, schedule);
  Binder binder(*op, transports_, memories_, rank_, size_);
  if (size_ > 1 && are_all_mapped() && can_pass(call, schedule, blocks)) {
    op->runner = Runner::passes;
    op->program.type = call.type;
    op->program.op = call.op;
    op->program.ranks = size_;
    op->program.slice_bytes = slice_bytes;
    prepare_passes(*op, schedule, blocks, binder);
    return op;
  }
  const size_t scratch = scratch_bytes(schedule, blocks, call);
  if (scratch > 0) op->scratch = allocate(scratch, transports_);
  op->program =
      compile(schedule, blocks, call, slice_bytes, op->scratch ? op->scratch->data() : nullptr);
  if (can_run_in_order(op->program, algorithm)) op->runner = Runner::in_order;
  prepare_fifos(*op, binder);
  return op;
}

}  // namespace ropewalk
