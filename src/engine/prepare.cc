// Binding a schedule to a call's memory: everything that a run must not spend time on.
#include <algorithm>
#include <cassert>
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
  s.counts_hash = pair ? call.tag : differs ? 0 : hash_counts(call.counts);
  return s;
}

RemoteAddress reach(const MemoryRegistration& memory, const std::byte* address) {
  return {true, memory.key(), static_cast<uint64_t>(address - memory.base())};
}

bool contains(const std::byte* base, size_t base_bytes, const std::byte* address, size_t bytes) {
  return base != nullptr && address >= base && address + bytes <= base + base_bytes;
}

/// One region that holds both.
Region hull(const Region& a, const Region& b) {
  Region both;
  both.base = std::min(a.base, b.base);
  both.bytes = static_cast<size_t>(std::max(a.base + a.bytes, b.base + b.bytes) - both.base);
  return both;
}

/// Registered with every transport, in the order of their indices.
std::unique_ptr<RegisteredMemory> allocate(size_t bytes,
                                           const std::vector<Transport*>& transports) {
  auto memory = std::make_unique<RegisteredMemory>(bytes, transports);
  for (Transport* transport : transports) memory->register_with(*transport);
  return memory;
}

}  // namespace

/// Finds, or makes, the registrations of this operation's memory.
class Engine::Binder {
 public:
  Binder(Operation& op, const std::vector<Transport*>& transports, MemoryRegistry& memories,
         int rank, int size)
      : op_(op), transports_(transports), memories_(memories) {
    const Extent extent = extent_of(op.call, rank, size);
    const size_t element = size_of(op.call.type);
    // `in` is written only where it is a part of `out`, or the other way round.
    in_.base = static_cast<std::byte*>(const_cast<void*>(op.call.in));
    in_.bytes = extent.in * element;
    in_.source_only = true;
    out_.base = static_cast<std::byte*>(op.call.out);
    out_.bytes = extent.out * element;
    const bool overlap = in_.bytes > 0 && out_.bytes > 0 && in_.base < out_.base + out_.bytes &&
                         out_.base < in_.base + in_.bytes;
    if (overlap) in_ = out_ = hull(in_, out_);
  }

  /// Where memory is registered already; null elsewhere.
  const MemoryRegistration* find(int transport, const std::byte* address, size_t bytes) {
    const auto t = static_cast<size_t>(transport);
    for (const RegisteredMemory* own : {op_.scratch.get(), op_.owner.saved.get()})
      if (own != nullptr && contains(own->data(), own->bytes(), address, bytes))
        return own->registrations()[t].get();
    const auto memory = memories_.find(address, bytes);
    if (!memory) return nullptr;
    op_.uses.emplace_back(memory);
    return memory->registrations()[t].get();
  }

  /// The caller's plain memory is registered for this operation: its input or output as a whole.
  const MemoryRegistration& find_or_register(int transport, const std::byte* address,
                                             size_t bytes) {
    if (const MemoryRegistration* found = find(transport, address, bytes)) return *found;
    const auto holds = [&](const Region& region) {
      return contains(region.base, region.bytes, address, bytes);
    };
    for (const PlainMemory& plain : op_.plain)
      if (plain.transport == transport && holds(plain.region)) return *plain.registration;
    const Region& region = holds(out_) ? out_ : in_;
    assert(holds(region));
    op_.plain.push_back(
        {transport, region, transports_[static_cast<size_t>(transport)]->register_memory(region)});
    return *op_.plain.back().registration;
  }

  RemoteAddress source(int transport, const std::byte* address, size_t bytes) {
    const MemoryRegistration* memory = find(transport, address, bytes);
    return memory == nullptr ? RemoteAddress{} : reach(*memory, address);
  }

  RemoteAddress target(int transport, std::byte* address, size_t bytes, bool needs_registration) {
    if (needs_registration) return source(transport, address, bytes);
    return reach(find_or_register(transport, address, bytes), address);
  }

 private:
  Operation& op_;
  const std::vector<Transport*>& transports_;
  MemoryRegistry& memories_;
  Region in_, out_;
};

/// Decides for each step of stream `f` how its data travels; true where a window is needed.
bool Engine::bind_steps(Operation& op, size_t f, Binder& binder) {
  const Stream& fixed = op.program.streams[f];
  const Link& link = *op.streams[f].link;
  const int transport = link.transport_index();
  bool needs_window = false;
  for (uint32_t i : fixed.steps) {
    const ProgramStep& step = op.program.steps[i];
    StepState& state = op.steps[i];
    state.stream = static_cast<uint32_t>(f);
    if (state.eager) continue;
    const bool for_reduce = step.for_reduce || step.action == Action::receive_reduce;
    state.exposed = for_reduce && link.mapped();
    if (fixed.sending && state.exposed)
      state.remote = binder.source(transport, step.source, step.bytes);
    else if (fixed.sending && link.registered_sources())
      state.source_memory = &binder.find_or_register(transport, step.source, step.bytes);
    if (step.action == Action::receive_copy)
      state.remote = binder.target(transport, step.target, step.bytes, link.needs_registration());
    const bool uses_window = fixed.sending ? state.exposed : !state.exposed;
    needs_window |= uses_window && !state.remote.known;
  }
  return needs_window;
}

/// The same for a peer of the owner executor.
bool Engine::bind_peer(OwnerPeer& peer, Binder& binder) {
  if (peer.bytes == 0) return false;
  const int transport = peer.link->transport_index();
  if (peer.in != nullptr) peer.in_at = binder.source(transport, peer.in, peer.bytes);
  if (peer.out != nullptr)
    peer.out_at = binder.target(transport, peer.out, peer.bytes, peer.link->needs_registration());
  return (peer.in != nullptr && !peer.in_at.known) || (peer.out != nullptr && !peer.out_at.known);
}

/// Names the memory of an operation that is not under way.
void Engine::bind(Operation& op) {
  op.uses.clear();
  op.plain.clear();
  Binder binder(op, transports_, memories_, rank_, size_);
  Windows windows;
  for (size_t f = 0; f < op.streams.size(); ++f)
    if (bind_steps(op, f, binder)) windows.emplace_back(op.streams[f].link, &op.streams[f].window);
  for (OwnerPeer& peer : op.owner.peers)
    if (bind_peer(peer, binder)) windows.emplace_back(peer.link, &peer.window);
  give_windows(op, windows);
  op.bound = true;
}

void Engine::give_windows(Operation& op, const Windows& windows) {
  const auto is_missing = [](const auto& entry) { return entry.second->base == nullptr; };
  if (std::none_of(windows.begin(), windows.end(), is_missing)) return;
  const size_t window_bytes = kWindowSlots * op.program.slice_bytes;
  op.windows = allocate(windows.size() * window_bytes, transports_);
  for (size_t w = 0; w < windows.size(); ++w) {
    const auto& [link, window] = windows[w];
    const auto transport = static_cast<size_t>(link->transport_index());
    window->base = op.windows->data() + w * window_bytes;
    window->at = reach(*op.windows->registrations()[transport], window->base);
  }
}

void Engine::bind_anew(Operation& op) {
  op.bound = false;
  try {
    bind(op);
  } catch (const Error& error) {
    // Peers may have started it, and would wait.
    Failure failure = error.failure();
    failure.rank = failure.peer = rank_;
    fail(failure);
    throw Error(failure);
  }
}

void Engine::prepare_streams(Operation& op) {
  op.steps = std::vector<StepState>(op.program.steps.size());
  for (size_t i = 0; i < op.steps.size(); ++i) {
    op.steps[i].operation = &op;
    op.steps[i].slices = op.program.steps[i].slices;
    op.steps[i].eager = op.program.steps[i].bytes <= kEagerBytesMax;
  }
  op.streams.resize(op.program.streams.size());
  for (size_t f = 0; f < op.streams.size(); ++f) {
    op.streams[f].link = &link_to(op.program.streams[f].peer);
    op.streams[f].id = stream_of(kPointToPointContext, op.program.streams[f].lane);
  }
}

void Engine::prepare_owner(Operation& op, const Schedule& schedule,
                           const std::vector<BlockMemory>& blocks) {
  const size_t in_bytes = extent_of(op.call, rank_, size_).in * size_of(op.call.type);
  const bool overwrites =
      op.call.collective == Collective::all_to_all && op.call.in == op.call.out && in_bytes > 0;
  std::unique_ptr<RegisteredMemory> saved;
  if (overwrites) saved = allocate(in_bytes, transports_);
  op.owner = make_owner_program(op.call, schedule, blocks, op.program.slice_bytes,
                                saved ? saved->data() : nullptr);
  op.owner.saved = std::move(saved);
  for (OwnerPeer& peer : op.owner.peers) peer.link = &link_to(peer.rank);
}

bool Engine::are_all_mapped() const {
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && !is_mapped(peer)) return false;
  return true;
}

std::shared_ptr<Operation> Engine::prepare(const Call& call, const Schedule& schedule,
                                           Algorithm algorithm, size_t slice_bytes) {
  unmap_deregistered();
  auto op = std::make_shared<Operation>();
  op->call = call;
  op->algorithm = algorithm;
  op->signature = signature_of(call, algorithm, slice_bytes);

  const std::vector<BlockMemory> blocks = lay_out(call, schedule);
  if (size_ > 1 && are_all_mapped() && can_run_owner(call, schedule, blocks)) {
    op->executor = ExecutorKind::owner;
    op->program.type = call.type;
    op->program.op = call.op;
    op->program.ranks = size_;
    op->program.slice_bytes = slice_bytes;
    prepare_owner(*op, schedule, blocks);
    bind(*op);
    return op;
  }
  const size_t scratch = scratch_bytes(schedule, blocks, call);
  if (scratch > 0) op->scratch = allocate(scratch, transports_);
  op->program =
      compile(schedule, blocks, call, slice_bytes, op->scratch ? op->scratch->data() : nullptr);
  if (can_run_sequential(op->program, algorithm)) op->executor = ExecutorKind::sequential;
  prepare_streams(*op);
  bind(*op);
  return op;
}

}  // namespace ropewalk
