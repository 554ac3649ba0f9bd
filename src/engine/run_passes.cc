// What hosts and guests do (passes.h).
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

bool stages_in(const PassPeer& peer) {
  return peer.window.base != nullptr && peer.in != nullptr && !peer.in_at.known;
}
bool stages_out(const PassPeer& peer) {
  return peer.window.base != nullptr && peer.out != nullptr && !peer.out_at.known;
}

Place place_of(const Reachable& at, const Window& window, const std::byte* address) {
  if (address == nullptr) return {};
  if (at.known) return {at.key, at.offset, 0, 1};
  return {window.at.key, window.at.offset, kWindowSlots, 1};
}

/// What lies where in one slice of an owned block.
struct PassArguments {
  std::array<const std::byte*, kReduceFanMax> sources;
  std::array<std::byte*, kReduceFanMax> targets;
  size_t source_count = 0, target_count = 0;
};

/// Adds, divides and hands out piece by piece.
void average(const PassArguments& at, size_t bytes, const Program& program) {
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

void Engine::begin_passes(Operation& op) {
  const Call& call = op.call;
  if (op.passes.scales)
    scale(static_cast<std::byte*>(call.out), static_cast<const std::byte*>(call.in), call.count,
          call.type, call.op.scale);
  if (op.passes.saved) std::memcpy(op.passes.saved->data(), call.in, op.passes.saved->bytes());
  for (const KeptPart& part : op.passes.kept) std::memcpy(part.out, part.in, part.bytes);
  for (PassPeer& peer : op.passes.peers) {
    peer.invited = peer.accepted = false;
    peer.staged = peer.returned = 0;
    peer.consumed_seen = peer.link->to_be_consumed(peer.stream);
  }
  for (OwnedBlock& block : op.passes.owned) block.done = 0;
}

bool Engine::run_passes(Operation& op) {
  bool moved = false;
  bool finished = true;
  for (PassPeer& peer : op.passes.peers) {
    if (peer.is_host) moved |= visit(op, peer);
    if (peer.is_guest && !peer.accepted) moved |= welcome(op, peer);
    finished &= !peer.is_host || (peer.invited && peer.returned == peer.slices);
    finished &= !peer.is_guest || peer.accepted;
  }
  for (OwnedBlock& block : op.passes.owned) {
    moved |= serve(op, block);
    finished &= block.done == block.slices;
  }
  if (finished) op.unfinished = 0;
  return moved;
}

/// This rank as guest of `host`.
bool Engine::visit(Operation& op, PassPeer& host) {
  Link& link = *host.link;
  const int s = host.stream;
  bool moved = false;
  if (!host.invited) {
    if (!invite(op, host)) return false;
    moved = true;
  }
  const size_t slice_bytes = op.program.slice_bytes;
  // Notices of an earlier operation's windows may still be on their way: a signed difference.
  const auto done = static_cast<int32_t>(link.consumed(s) - host.consumed_seen);
  while (host.returned < host.slices && static_cast<int32_t>(host.returned) < done) {
    if (stages_out(host))
      std::memcpy(host.out + host.returned * slice_bytes,
                  host.window.base + host.returned % kWindowSlots * slice_bytes,
                  slice_length(host.bytes, slice_bytes, host.returned));
    ++host.returned;
    moved = true;
  }
  if (host.window.base == nullptr) return moved;
  while (host.staged < host.slices && host.staged - host.returned < kWindowSlots) {
    if (stages_in(host))
      std::memcpy(host.window.base + host.staged % kWindowSlots * slice_bytes,
                  host.in + host.staged * slice_bytes,
                  slice_length(host.bytes, slice_bytes, host.staged));
    if (!link.notify_slice(s)) break;
    ++host.staged;
    moved = true;
  }
  return moved;
}

bool Engine::invite(Operation& op, PassPeer& host) {
  if (!host.link->can_send(host.stream)) return false;
  const EagerHeader header{op.signature, host.bytes, MessageKind::invitation};
  const Invitation invitation{place_of(host.in_at, host.window, host.in),
                              place_of(host.out_at, host.window, host.out)};
  if (!host.link->send(host.stream, header, reinterpret_cast<const std::byte*>(&invitation),
                       sizeof(invitation)))
    return false;
  host.invited = true;
  host.link->expect_consumed(host.stream, host.slices);
  return true;
}

/// Takes `guest`'s invitation.
bool Engine::welcome(Operation& op, PassPeer& guest) {
  Link& link = *guest.link;
  const OwnedBlock& block = op.passes.owned[guest.owned];
  const EagerHeader* header = link.front(guest.stream);
  if (header == nullptr || !check_header(op, link, *header, MessageKind::invitation, block.bytes))
    return false;
  Invitation invitation;
  std::memcpy(&invitation, payload_of(*header, sizeof(invitation)), sizeof(invitation));
  const auto map = [&](const Place& place, std::byte*& address) {
    if (place.given == 0 || block.bytes == 0) return true;
    const size_t reach = place.window > 0 ? place.window * op.program.slice_bytes : block.bytes;
    address = link.map(place.key, place.offset, reach);
    return address != nullptr;
  };
  std::byte* in = nullptr;
  guest.their_out = nullptr;
  const bool expected =
      guest.gives == (invitation.in.given != 0) && guest.takes == (invitation.out.given != 0);
  if (block.bytes > 0 && !expected) {
    fail({ErrorCode::protocol, operation_name(op.signature),
          "rank " + std::to_string(guest.rank) + " invites to other parts of the block than it has",
          "check that all ranks run the same version of Ropewalk", rank_, guest.rank});
    return false;
  }
  if (!map(invitation.in, in) || !map(invitation.out, guest.their_out))
    return false;  // check_stalled will say why
  guest.their_in = in;
  guest.in_place = invitation.in;
  guest.out_place = invitation.out;
  guest.accepted = true;
  link.pop(guest.stream);
  return true;
}

/// This rank as owner of `block`.
bool Engine::serve(Operation& op, OwnedBlock& block) {
  bool moved = false;
  const uint32_t turn = std::max<uint32_t>(1, kTurnBytes / op.program.slice_bytes);
  const uint32_t end = std::min(block.slices, block.done + turn);
  while (block.done < end) {
    uint32_t slices = end - block.done;  // as many at once as lie there
    for (uint32_t g : block.guests) {
      const PassPeer& guest = op.passes.peers[g];
      if (!guest.accepted) return moved;
      if (guest.is_staged())
        slices = std::min({slices, 1u, guest.link->slices_arrived(guest.stream)});
    }
    if (slices == 0) return moved;
    pass(op, block, slices);
    for (uint32_t g : block.guests) {
      PassPeer& guest = op.passes.peers[g];
      guest.link->consume(guest.stream, slices);
      if (!guest.is_staged()) continue;
      guest.link->take_slice(guest.stream);
      guest.link->flush();  // it waits to stage the next slice
    }
    block.done += slices;
    moved = true;
  }
  return moved;
}

void Engine::pass(Operation& op, const OwnedBlock& block, uint32_t slices) {
  const size_t slice_bytes = op.program.slice_bytes;
  const size_t begin = block.done * slice_bytes;
  const auto offset = [&](const Place& place) {
    return (place.window > 0 ? block.done % place.window : block.done) * slice_bytes;
  };
  PassArguments at;
  if (block.in != nullptr) at.sources[at.source_count++] = block.in + begin;
  for (uint32_t g : block.sources) {
    const PassPeer& guest = op.passes.peers[g];
    at.sources[at.source_count++] = guest.their_in + offset(guest.in_place);
  }
  const bool unchanged = at.source_count == 1 && block.out == block.in && !op.passes.averages;
  if (block.out != nullptr && !unchanged) at.targets[at.target_count++] = block.out + begin;
  for (uint32_t g : block.targets) {
    const PassPeer& guest = op.passes.peers[g];
    at.targets[at.target_count++] = guest.their_out + offset(guest.out_place);
  }
  if (at.source_count == 0 || at.target_count == 0) return;
  const size_t bytes = std::min(slices * slice_bytes, block.bytes - begin);
  if (op.passes.averages) return average(at, bytes, op.program);
  reduce(std::span(at.targets.data(), at.target_count),
         std::span(at.sources.data(), at.source_count), bytes / size_of(op.program.type),
         op.program.type, op.program.op);
}

}  // namespace ropewalk
