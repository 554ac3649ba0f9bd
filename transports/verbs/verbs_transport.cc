#include "transports/verbs/verbs_transport.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

namespace ropewalk {

using verbs::Lane;
using verbs::Registration;
using verbs::WorkId;

namespace {

constexpr int kCompletionsAtOnce = 32;
// Pieces of a long put begin at multiples of this: whole packets.
constexpr size_t kPieceGrain = 4096;
// Longer ones leave at once: what a doorbell costs is nothing beside their time on the wire, and
// the first to be put is the first to be sent, to whichever peer.
constexpr size_t kHeldBytesMax = 4096;

}  // namespace

std::unique_ptr<MemoryRegistration> VerbsTransport::register_memory(const Region& region) {
  if (region.is_own())
    return std::make_unique<Registration>(region,
                                          std::make_unique<verbs::AdapterPages>(region, adapters_));
  return std::make_unique<Registration>(plain_memory_.acquire(region));
}

// ---- Putting ----

Posted VerbsTransport::put(const PutRequest& request) {
  Posted answer;
  Peer* const p = target_of(request, answer);
  if (p == nullptr) return answer;
  return request.bytes <= inline_bytes_max_ ? put_copied(*p, request) : put_registered(*p, request);
}

// By the first lane alone.
Posted VerbsTransport::put_copied(Peer& peer, const PutRequest& request) {
  Lane& lane = *peer.lanes[0];
  if (!peer.has_place() || !lane.can_put()) return Posted::full;
  const uint32_t key = verbs::remote_key(request.key, lane.peer_adapter);
  lane.put_copied(request.source, static_cast<uint32_t>(request.bytes),
                  {request.offset, key, request.notice}, !batching_);
  if (!leave(peer, lane, request.bytes)) return Posted::lost;
  if (peer.first_put == peer.end_put) return Posted::done;
  Peer::Put& put = peer.puts[peer.end_put++ % Peer::kPutsMax];
  put.cookie = request.cookie;
  put.lanes = 0;
  return Posted::posted;
}

Posted VerbsTransport::put_registered(Peer& peer, const PutRequest& request) {
  const auto* memory = static_cast<const Registration*>(request.source_memory);
  const size_t bytes = request.bytes;
  if (bytes > put_bytes_max_)
    return refuse(peer, fmt::format("its {} bytes are more than the {} that the port allows; lower "
                                    "ROPEWALK_SLICE_BYTES",
                                    bytes, put_bytes_max_));
  if (memory == nullptr || !memory->contains(request.source, bytes))
    return refuse(peer, "its source is not in the registered memory named");
  const std::span lanes =
      std::span(peer.lanes).first(peer.is_striped(bytes) ? peer.lanes.size() : 1);
  const auto has_room = [](const auto& lane) { return lane->can_put(); };
  if (!peer.has_place() || !std::ranges::all_of(lanes, has_room)) return Posted::full;

  // The first lane's piece is at least kStripeBytes long (Peer::is_striped).
  const size_t share = (bytes + lanes.size() - 1) / lanes.size();
  const size_t piece =
      std::max(verbs::kStripeBytes, (share + kPieceGrain - 1) / kPieceGrain * kPieceGrain);
  Peer::Put& put = peer.puts[peer.end_put % Peer::kPutsMax];
  put.cookie = request.cookie;
  put.lanes = static_cast<uint8_t>(lanes.size());
  size_t begin = 0;
  for (size_t i = 0; i < lanes.size(); ++i) {
    Lane& lane = *lanes[i];
    const size_t length = lanes.size() == 1 ? bytes : std::min(piece, bytes - begin);
    const auto at = static_cast<uint64_t>(request.source + begin - memory->base());
    lane.put_registered({at, static_cast<uint32_t>(length), memory->local_key(lane.adapter)},
                        {request.offset + begin, verbs::remote_key(request.key, lane.peer_adapter),
                         request.notice});
    if (!leave(peer, lane, bytes)) return Posted::lost;
    put.ends[i] = lane.position();
    begin += length;
  }
  ++peer.end_put;
  return Posted::posted;
}

// Sends what was put, or holds it back where it is short. False where the peer was lost.
bool VerbsTransport::leave(Peer& peer, Lane& lane, size_t bytes) {
  if (batching_ && bytes <= kHeldBytesMax && lane.held() < Lane::kBatch) {
    if (!peer.is_held) held_.push_back(&peer);
    peer.is_held = true;
    return true;
  }
  return posted(peer, lane, lane.flush());
}

void VerbsTransport::set_batching(bool on) {
  batching_ = on;
  if (!on) release_held();
}

void VerbsTransport::release_held() {
  while (!held_.empty()) {
    Peer& peer = *held_.back();
    held_.pop_back();
    peer.is_held = false;
    if (!peer.open()) continue;
    for (const auto& lane : peer.lanes)
      if (!posted(peer, *lane, lane->flush())) break;
  }
}

// ---- Polling ----

size_t VerbsTransport::poll(std::span<Completion> into) {
  size_t count = 0;
  if (!peers_.any_ready()) {
    // First, since it may throw, and what `drain` gives out is given.
    if (is_time_to_look()) poll_control();
    count = drain(into);
    if (!peers_.any_ready()) return count;
  }
  return count + peers_.collect(into.subspan(count), [this](Peer& peer) { give_credits(peer); });
}

// A batch of completions of each adapter; all of them where a peer has failed, who is lost after
// all that came from it. Returns how many of `into` were filled; the rest waits for `collect`.
size_t VerbsTransport::drain(std::span<Completion> into) {
  std::array<ibv_wc, kCompletionsAtOnce> completions;
  size_t filled = 0;
  for (const auto& device : devices_) {
    int count = 0;
    do {
      count = ibv_poll_cq(device->cq.get(), kCompletionsAtOnce, completions.data());
      for (int i = 0; i < count; ++i) {
        const ibv_wc& completion = completions[static_cast<size_t>(i)];
        if (filled < into.size() && pass(completion, into[filled]))
          ++filled;
        else
          completed(completion);
      }
      progress_made_ |= count > 0;
    } while (!peers_.failing().empty() && count > 0);
  }
  if (!peers_.failing().empty()) lose_failing();
  return filled;
}

// Gives out what nearly always comes: a put of one lane, with nothing of its peer before it.
bool VerbsTransport::pass(const ibv_wc& completion, Completion& into) {
  if (completion.status != IBV_WC_SUCCESS || completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
    return false;
  const WorkId id = WorkId::unpack(completion.wr_id);
  Peer& peer = peers_[id.peer];
  if (peer.state != Peer::State::linked || peer.in_ready || id.lane != 0 ||
      peer.is_striped(completion.byte_len))
    return false;
  Lane& lane = *peer.lanes[0];
  if (lane.has_notice()) return false;
  lane.passed();
  into = {Completion::Kind::notice, peer.rank, ntohl(completion.imm_data), 0};
  if (posted(peer, lane, lane.received())) posted(peer, lane, lane.give_credits());
  return true;
}

void VerbsTransport::completed(const ibv_wc& completion) {
  const WorkId id = WorkId::unpack(completion.wr_id);
  Peer& peer = peers_[id.peer];
  if (!peer.open()) return;
  Lane& lane = *peer.lanes[id.lane];
  if (completion.status != IBV_WC_SUCCESS) return failed(peer, lane, completion);
  if (!id.is_send) return arrived(peer, lane, completion);
  lane.complete(id.position);
  posted(peer, lane, lane.give_credits());
  peers_.publish(peer);
}

void VerbsTransport::arrived(Peer& peer, Lane& lane, const ibv_wc& completion) {
  const uint32_t immediate = ntohl(completion.imm_data);
  if (completion.opcode == IBV_WC_RECV) {
    if (!lane.credit(immediate)) peers_.lose(peer, "it gave back more than it was sent");
  } else if (lane.overflows()) {
    peers_.lose(peer, "it sent more notices than it may");
  } else {
    lane.arrived(immediate, completion.byte_len);
  }
  if (peer.open() && posted(peer, lane, lane.received())) peers_.publish(peer);
}

// ---- Giving out ----

void VerbsTransport::give_credits(Peer& peer) {
  for (const auto& lane : peer.lanes)
    if (!posted(peer, *lane, lane->give_credits())) return;
}

}  // namespace ropewalk
