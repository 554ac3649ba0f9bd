// What owners and contributors do (owner_program.h).
#include <algorithm>
#include <array>
#include <cstring>

#include "engine/engine.h"
#include "reduce/reduce.h"

namespace ropewalk {
namespace {

/// Averages are summed, divided and handed out by so much at a time, which stays in L1.
constexpr size_t kPieceBytes = 16 << 10;
/// After so many bytes other operations, and news of failures, get their turn.
constexpr size_t kTurnBytes = 1 << 20;

bool stages_in(const OwnerPeer& peer) {
  return peer.window.base != nullptr && peer.in != nullptr && !peer.in_at.known;
}
bool stages_out(const OwnerPeer& peer) {
  return peer.window.base != nullptr && peer.out != nullptr && !peer.out_at.known;
}

RemoteBuffer remote_buffer(const RemoteAddress& at, const Window& window,
                           const std::byte* address) {
  if (address == nullptr) return {};
  if (at.known) return {at.key, at.offset, 0, 1};
  return {window.at.key, window.at.offset, kWindowSlots, 1};
}

/// What lies where in one slice of an owned block.
struct ReduceArguments {
  std::array<const std::byte*, kReduceFanMax> sources;
  std::array<std::byte*, kReduceFanMax> targets;
  size_t source_count = 0, target_count = 0;
};

/// Adds, divides and hands out piece by piece.
void average(const ReduceArguments& at, size_t bytes, const Program& program) {
  const size_t element = size_of(program.type);
  for (size_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const size_t count = std::min(kPieceBytes, bytes - begin) / element;
    std::array<const std::byte*, kReduceFanMax> sources;
    std::array<std::byte*, kReduceFanMax> targets;
    for (size_t i = 0; i < at.source_count; ++i) sources[i] = at.sources[i] + begin;
    for (size_t i = 0; i < at.target_count; ++i) targets[i] = at.targets[i] + begin;
    const std::span all_targets(targets.data(), at.target_count);
    reduce(all_targets.first(1), std::span(sources.data(), at.source_count), count, program.type,
           program.op);
    divide(targets[0], count, program.type, program.ranks);
    if (at.target_count == 1) continue;
    const std::byte* averaged = targets[0];
    reduce(all_targets.subspan(1), std::span(&averaged, 1), count, program.type, program.op);
  }
}

}  // namespace

void Engine::begin_owner(Operation& op) {
  const Call& call = op.call;
  if (op.owner.scales)
    scale(static_cast<std::byte*>(call.out), static_cast<const std::byte*>(call.in), call.count,
          call.type, call.op.scale);
  if (op.owner.saved) std::memcpy(op.owner.saved->data(), call.in, op.owner.saved->bytes());
  for (const KeptPart& part : op.owner.kept) std::memcpy(part.out, part.in, part.bytes);
  for (OwnerPeer& peer : op.owner.peers) {
    peer.descriptor_sent = peer.accepted = false;
    peer.staged = peer.returned = 0;
    peer.consumed_seen = peer.link->to_be_consumed(peer.stream);
  }
  for (OwnedBlock& block : op.owner.owned) block.done = 0;
}

bool Engine::run_owner_executor(Operation& op) {
  bool moved = false;
  bool finished = true;
  for (OwnerPeer& peer : op.owner.peers) {
    if (peer.is_owner) moved |= run_contributor(op, peer);
    if (peer.is_contributor && !peer.accepted) moved |= accept_descriptor(op, peer);
    finished &= !peer.is_owner || (peer.descriptor_sent && peer.returned == peer.slices);
    finished &= !peer.is_contributor || peer.accepted;
  }
  for (OwnedBlock& block : op.owner.owned) {
    moved |= run_owner(op, block);
    finished &= block.done == block.slices;
  }
  if (finished) op.unfinished = 0;
  return moved;
}

/// This rank as contributor of `owner`.
bool Engine::run_contributor(Operation& op, OwnerPeer& owner) {
  Link& link = *owner.link;
  const int s = owner.stream;
  bool moved = false;
  if (!owner.descriptor_sent) {
    if (!send_descriptor(op, owner)) return false;
    moved = true;
  }
  const size_t slice_bytes = op.program.slice_bytes;
  // Notices of an earlier operation's windows may still be on their way: a signed difference.
  const auto done = static_cast<int32_t>(link.consumed(s) - owner.consumed_seen);
  while (owner.returned < owner.slices && static_cast<int32_t>(owner.returned) < done) {
    if (stages_out(owner))
      std::memcpy(owner.out + owner.returned * slice_bytes,
                  owner.window.base + owner.returned % kWindowSlots * slice_bytes,
                  slice_length(owner.bytes, slice_bytes, owner.returned));
    ++owner.returned;
    moved = true;
  }
  if (owner.window.base == nullptr) return moved;
  while (owner.staged < owner.slices && owner.staged - owner.returned < kWindowSlots) {
    if (stages_in(owner))
      std::memcpy(owner.window.base + owner.staged % kWindowSlots * slice_bytes,
                  owner.in + owner.staged * slice_bytes,
                  slice_length(owner.bytes, slice_bytes, owner.staged));
    if (!link.notify_slice(s)) break;
    ++owner.staged;
    moved = true;
  }
  return moved;
}

bool Engine::send_descriptor(Operation& op, OwnerPeer& owner) {
  if (!owner.link->can_send(owner.stream)) return false;
  const EagerHeader header{op.signature, owner.bytes, MessageKind::descriptor};
  const BufferDescriptor descriptor{remote_buffer(owner.in_at, owner.window, owner.in),
                                    remote_buffer(owner.out_at, owner.window, owner.out)};
  if (!owner.link->send(owner.stream, header, reinterpret_cast<const std::byte*>(&descriptor),
                        sizeof(descriptor)))
    return false;
  owner.descriptor_sent = true;
  owner.link->expect_consumed(owner.stream, owner.slices);
  return true;
}

/// Takes `contributor`'s descriptor.
bool Engine::accept_descriptor(Operation& op, OwnerPeer& contributor) {
  Link& link = *contributor.link;
  const OwnedBlock& block = op.owner.owned[contributor.owned];
  const EagerHeader* header = link.front(contributor.stream);
  if (header == nullptr || !check_header(op, link, *header, MessageKind::descriptor, block.bytes))
    return false;
  BufferDescriptor descriptor;
  std::memcpy(&descriptor, payload_of(*header, sizeof(descriptor)), sizeof(descriptor));
  const auto map = [&](const RemoteBuffer& place, std::byte*& address) {
    if (place.given == 0 || block.bytes == 0) return true;
    const size_t reach = place.window > 0 ? place.window * op.program.slice_bytes : block.bytes;
    address = link.map(place.key, place.offset, reach);
    return address != nullptr;
  };
  std::byte* in = nullptr;
  contributor.their_out = nullptr;
  const bool expected = contributor.gives == (descriptor.in.given != 0) &&
                        contributor.takes == (descriptor.out.given != 0);
  if (block.bytes > 0 && !expected) {
    fail({ErrorCode::protocol, operation_name(op.signature),
          "rank " + std::to_string(contributor.rank) +
              " describes other parts of the block than it has",
          "check that all ranks run the same version of Ropewalk", rank_, contributor.rank});
    return false;
  }
  if (!map(descriptor.in, in) || !map(descriptor.out, contributor.their_out))
    return false;  // check_stalled will say why
  contributor.their_in = in;
  contributor.in_buffer = descriptor.in;
  contributor.out_buffer = descriptor.out;
  contributor.accepted = true;
  link.pop(contributor.stream);
  return true;
}

/// This rank as owner of `block`.
bool Engine::run_owner(Operation& op, OwnedBlock& block) {
  bool moved = false;
  const uint32_t turn = std::max<uint32_t>(1, kTurnBytes / op.program.slice_bytes);
  const uint32_t end = std::min(block.slices, block.done + turn);
  while (block.done < end) {
    uint32_t slices = end - block.done;  // as many at once as lie there
    for (uint32_t g : block.contributors) {
      const OwnerPeer& contributor = op.owner.peers[g];
      if (!contributor.accepted) return moved;
      if (contributor.is_staged())
        slices = std::min({slices, 1u, contributor.link->slices_arrived(contributor.stream)});
    }
    if (slices == 0) return moved;
    reduce_slices(op, block, slices);
    for (uint32_t g : block.contributors) {
      OwnerPeer& contributor = op.owner.peers[g];
      contributor.link->consume(contributor.stream, slices);
      if (!contributor.is_staged()) continue;
      contributor.link->take_slice(contributor.stream);
      contributor.link->flush();  // it waits to stage the next slice
    }
    block.done += slices;
    moved = true;
  }
  return moved;
}

void Engine::reduce_slices(Operation& op, const OwnedBlock& block, uint32_t slices) {
  const size_t slice_bytes = op.program.slice_bytes;
  const size_t begin = block.done * slice_bytes;
  const auto offset = [&](const RemoteBuffer& place) {
    return (place.window > 0 ? block.done % place.window : block.done) * slice_bytes;
  };
  ReduceArguments at;
  if (block.in != nullptr) at.sources[at.source_count++] = block.in + begin;
  for (uint32_t g : block.sources) {
    const OwnerPeer& contributor = op.owner.peers[g];
    at.sources[at.source_count++] = contributor.their_in + offset(contributor.in_buffer);
  }
  const bool unchanged = at.source_count == 1 && block.out == block.in && !op.owner.averages;
  if (block.out != nullptr && !unchanged) at.targets[at.target_count++] = block.out + begin;
  for (uint32_t g : block.targets) {
    const OwnerPeer& contributor = op.owner.peers[g];
    at.targets[at.target_count++] = contributor.their_out + offset(contributor.out_buffer);
  }
  if (at.source_count == 0 || at.target_count == 0) return;
  const size_t bytes = std::min(slices * slice_bytes, block.bytes - begin);
  if (op.owner.averages) return average(at, bytes, op.program);
  reduce(std::span(at.targets.data(), at.target_count),
         std::span(at.sources.data(), at.source_count), bytes / size_of(op.program.type),
         op.program.type, op.program.op);
}

}  // namespace ropewalk
