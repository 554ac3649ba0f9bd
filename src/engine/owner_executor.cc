#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "engine/executors.h"
#include "engine/failure_detector.h"
#include "engine/memory_binder.h"
#include "reduce/reduce.h"

namespace ropewalk {
namespace {

/// Averages are summed, divided and handed out by so much at a time, which stays in L1.
constexpr size_t kPieceBytes = 16 << 10;
/// After so many bytes other operations, and news of failures, get their turn.
constexpr size_t kTurnBytes = 1 << 20;

/// Where slice `index` of `owner`'s window lies.
std::byte* window_slot(const OwnerPeer& owner, uint32_t index, size_t slice_bytes) {
  return owner.window.base + index % kWindowSlots * slice_bytes;
}

/// One block goes through it, which may be shorter than its slots.
size_t window_bytes(const OwnerProgram& program, size_t block_bytes) {
  return std::min(kWindowSlots * program.slice_bytes, block_bytes);
}

/// What lies where in one slice of an owned block.
struct SliceBuffers {
  std::array<const std::byte*, kReduceFanMax> sources;
  std::array<std::byte*, kReduceFanMax> targets;
  size_t source_count = 0, target_count = 0;
};

/// Adds, divides and hands out piece by piece; moves the pointers on.
void average(SliceBuffers& at, size_t bytes, const OwnerProgram& program) {
  const std::span sources(at.sources.data(), at.source_count);
  const std::span targets(at.targets.data(), at.target_count);
  while (bytes > 0) {
    const size_t piece = std::min(kPieceBytes, bytes);
    const size_t count = piece / size_of(program.type);
    reduce(targets.first(1), sources, count, program.type, program.op);
    divide(targets[0], count, program.type, program.ranks);
    const std::byte* averaged = targets[0];
    if (targets.size() > 1)
      reduce(targets.subspan(1), std::span(&averaged, 1), count, program.type, program.op);
    for (const std::byte*& source : sources) source += piece;
    for (std::byte*& target : targets) target += piece;
    bytes -= piece;
  }
}

}  // namespace

OwnerExecutor::OwnerExecutor(const EngineParts& engine, const Operation& operation,
                             OwnerProgram program)
    : Executor(engine, operation), program_(std::move(program)) {
  assert(engine_.links.are_all_mapped());
  for (OwnerPeer& peer : program_.peers) peer.link = &require_link(peer.rank);
}

void OwnerExecutor::bind(MemoryBinder& binder) {
  for (OwnerPeer& peer : program_.peers) {
    if (peer.bytes == 0) continue;
    if (peer.in != nullptr) peer.in_at = binder.source(*peer.link, peer.in, peer.bytes);
    if (peer.out != nullptr) peer.out_at = binder.target(*peer.link, peer.out, peer.bytes);
    if (peer.stages_in() || peer.stages_out())
      binder.add_window(*peer.link, peer.window, window_bytes(program_, peer.bytes));
  }
}

void OwnerExecutor::begin(int context) {
  assert(finished_);
  finished_ = false;
  const Call& call = operation_.call;
  if (program_.scales)
    scale(static_cast<std::byte*>(call.out), static_cast<const std::byte*>(call.in), call.count,
          call.type, call.op.scale);
  if (const auto& saved = operation_.memory.scratch)
    std::memcpy(saved->data(), call.in, saved->bytes());
  for (const KeptPart& part : program_.kept) std::memcpy(part.out, part.in, part.bytes);
  for (OwnerPeer& peer : program_.peers) {
    peer.stream = stream_of(context, 0);
    peer.descriptor_sent = peer.accepted = false;
    peer.staged = peer.returned = 0;
    peer.consumed_seen = peer.link->to_be_consumed(peer.stream);
  }
  for (OwnedBlock& block : program_.owned) block.done = 0;
}

bool OwnerExecutor::progress() {
  assert(operation_.begun);
  if (!connect()) return false;
  bool moved = false;
  bool finished = true;
  for (OwnerPeer& peer : program_.peers) {
    if (peer.is_owner) moved |= run_contributor(peer);
    if (peer.is_contributor && !peer.accepted) moved |= accept_descriptor(peer);
    finished &= !peer.is_owner || (peer.descriptor_sent && peer.returned == peer.slices);
    finished &= !peer.is_contributor || peer.accepted;
  }
  for (OwnedBlock& block : program_.owned) {
    moved |= run_owner(block);
    finished &= block.done == block.slices;
  }
  if (finished) finished_ = true;
  return moved;
}

/// This rank as contributor of `owner`.
bool OwnerExecutor::run_contributor(OwnerPeer& owner) {
  Link& link = *owner.link;
  const int s = owner.stream;
  bool moved = false;
  if (!owner.descriptor_sent) {
    if (!send_descriptor(owner)) return false;
    moved = true;
  }
  const size_t slice_bytes = program_.slice_bytes;
  // Notices of an earlier operation's windows may still be on their way: a signed difference.
  const auto done = static_cast<int32_t>(link.consumed(s) - owner.consumed_seen);
  while (owner.returned < owner.slices && static_cast<int32_t>(owner.returned) < done) {
    if (owner.stages_out())
      std::memcpy(owner.out + owner.returned * slice_bytes,
                  window_slot(owner, owner.returned, slice_bytes),
                  slice_length(owner.bytes, slice_bytes, owner.returned));
    ++owner.returned;
    moved = true;
  }
  if (!owner.stages_in() && !owner.stages_out()) return moved;
  while (owner.staged < owner.slices && owner.staged - owner.returned < kWindowSlots) {
    if (owner.stages_in())
      std::memcpy(window_slot(owner, owner.staged, slice_bytes),
                  owner.in + owner.staged * slice_bytes,
                  slice_length(owner.bytes, slice_bytes, owner.staged));
    if (!link.notify_slice(s)) break;
    ++owner.staged;
    moved = true;
  }
  return moved;
}

bool OwnerExecutor::send_descriptor(OwnerPeer& owner) {
  const EagerHeader header{operation_.signature, owner.bytes, MessageKind::descriptor};
  const BufferDescriptor descriptor{owner.stages_in() ? owner.window.at : owner.in_at,
                                    owner.stages_out() ? owner.window.at : owner.out_at};
  if (!owner.link->can_send(owner.stream) ||
      !owner.link->send(owner.stream, header, reinterpret_cast<const std::byte*>(&descriptor),
                        sizeof(descriptor)))
    return false;
  owner.descriptor_sent = true;
  owner.link->expect_consumed(owner.stream, owner.slices);
  return true;
}

/// Takes `contributor`'s descriptor.
bool OwnerExecutor::accept_descriptor(OwnerPeer& contributor) {
  Link& link = *contributor.link;
  const OwnedBlock& block = program_.owned[contributor.owned];
  const EagerHeader* header = link.front(contributor.stream);
  if (header == nullptr || !engine_.failures.check_header(operation_, link, *header,
                                                          MessageKind::descriptor, block.bytes))
    return false;
  BufferDescriptor descriptor;
  std::memcpy(&descriptor, payload_of(*header, sizeof(descriptor)), sizeof(descriptor));
  const auto map = [&](const RemoteBuffer& place, std::byte*& address) {
    if (place.known == 0 || block.bytes == 0) return true;
    address = link.map(place.key, place.offset,
                       place.window > 0 ? window_bytes(program_, block.bytes) : block.bytes);
    return address != nullptr;
  };
  contributor.their_in = contributor.their_out = nullptr;
  const bool expected = contributor.gives == (descriptor.in.known != 0) &&
                        contributor.takes == (descriptor.out.known != 0);
  if (block.bytes > 0 && !expected) {
    engine_.failures.fail({ErrorCode::protocol, operation_name(operation_.signature),
                           "rank " + std::to_string(contributor.rank) +
                               " describes other parts of the block than it has",
                           "check that all ranks run the same version of Ropewalk",
                           engine_.links.rank(), contributor.rank});
    return false;
  }
  if (!map(descriptor.in, contributor.their_in) || !map(descriptor.out, contributor.their_out))
    return false;  // check_stalled will say why
  contributor.in_buffer = descriptor.in;
  contributor.out_buffer = descriptor.out;
  contributor.accepted = true;
  link.pop(contributor.stream);
  return true;
}

/// This rank as owner of `block`.
bool OwnerExecutor::run_owner(OwnedBlock& block) {
  bool moved = false;
  const uint32_t turn = std::max<uint32_t>(1, kTurnBytes / program_.slice_bytes);
  const uint32_t end = std::min(block.slices, block.done + turn);
  while (block.done < end) {
    uint32_t slices = end - block.done;  // as many at once as lie there
    for (uint32_t g : block.contributors) {
      const OwnerPeer& contributor = program_.peers[g];
      if (!contributor.accepted) return moved;
      if (contributor.is_staged())
        slices = std::min({slices, 1u, contributor.link->slices_arrived(contributor.stream)});
    }
    if (slices == 0) return moved;
    reduce_slices(block, slices);
    for (uint32_t g : block.contributors) {
      OwnerPeer& contributor = program_.peers[g];
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

void OwnerExecutor::reduce_slices(const OwnedBlock& block, uint32_t slices) const {
  const size_t slice_bytes = program_.slice_bytes;
  const size_t begin = block.done * slice_bytes;
  const auto offset = [&](const RemoteBuffer& place) {
    return (place.window > 0 ? block.done % place.window : block.done) * slice_bytes;
  };
  SliceBuffers at;
  if (block.in != nullptr) at.sources[at.source_count++] = block.in + begin;
  for (uint32_t g : block.sources) {
    const OwnerPeer& contributor = program_.peers[g];
    at.sources[at.source_count++] = contributor.their_in + offset(contributor.in_buffer);
  }
  const bool unchanged = at.source_count == 1 && block.out == block.in && !program_.averages;
  if (block.out != nullptr && !unchanged) at.targets[at.target_count++] = block.out + begin;
  for (uint32_t g : block.targets) {
    const OwnerPeer& contributor = program_.peers[g];
    at.targets[at.target_count++] = contributor.their_out + offset(contributor.out_buffer);
  }
  if (at.source_count == 0 || at.target_count == 0) return;
  const size_t bytes = std::min(slices * slice_bytes, block.bytes - begin);
  if (program_.averages) return average(at, bytes, program_);
  reduce(std::span(at.targets.data(), at.target_count),
         std::span(at.sources.data(), at.source_count), bytes / size_of(program_.type),
         program_.type, program_.op);
}

void OwnerExecutor::find_blockers(std::vector<Blocker>& blockers) const {
  assert(operation_.begun);
  for (const OwnerPeer& peer : program_.peers) {
    const OwnedBlock* block = peer.is_contributor ? &program_.owned[peer.owned] : nullptr;
    if (block != nullptr && !peer.accepted)
      blockers.push_back({peer.link, false, block->number});
    else if (block != nullptr && peer.is_staged() && block->done < block->slices)
      blockers.push_back({peer.link, false, block->number, block->done, block->slices});
    else if (peer.is_owner && (!peer.descriptor_sent || peer.returned < peer.slices))
      blockers.push_back({peer.link, true, peer.block, peer.returned, peer.slices});
  }
}

}  // namespace ropewalk
