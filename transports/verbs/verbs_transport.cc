#include "transports/verbs/verbs_transport.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "transports/verbs/peer.h"

namespace ropewalk {

using verbs::Lane;
using verbs::Registration;
using verbs::WorkId;

namespace {

constexpr int kCompletionsAtOnce = 32;
// While polls find nothing, sockets and events are looked at so often.
constexpr uint32_t kPollsPerLook = 4096;
// Pieces of a long put begin at multiples of this: whole packets.
constexpr size_t kPieceGrain = 4096;

}  // namespace

std::unique_ptr<Memory> VerbsTransport::register_memory(const Region& region) {
  // A memfd is Ropewalk's own memory, which stays mapped while it is registered.
  if (region.memfd >= 0 || region.dmabuf >= 0)
    return std::make_unique<Registration>(region,
                                          std::make_unique<verbs::AdapterPages>(region, adapters_));
  return std::make_unique<Registration>(plain_memory_.acquire(region));
}

VerbsTransport::Peer* VerbsTransport::find(int peer) const {
  return peer >= 0 && peer < size_ ? peers_[static_cast<size_t>(peer)].get() : nullptr;
}

// ---- Putting ----

bool VerbsTransport::has_room(const Peer& peer, size_t lanes) const {
  if (peer.end_put - peer.first_put == Peer::kPutsMax) return false;
  for (size_t i = 0; i < lanes; ++i)
    if (!peer.lanes[i]->can_put()) return false;
  return true;
}

Posted VerbsTransport::put(int peer, const std::byte* source, const Memory* source_memory,
                           size_t bytes, RemoteKey key, uint64_t offset, uint32_t notice,
                           uint64_t cookie) {
  Peer* p = find(peer);
  assert(p != nullptr);
  if (p->state != Peer::State::linked) return p->open() ? Posted::full : Posted::lost;
  if (bytes > 0 && (offset > key.bytes || bytes > key.bytes - offset)) {
    lose(*p, "a put was refused: it does not lie in the peer's region");
    return Posted::lost;
  }
  if (bytes > put_bytes_max_) {
    lose(*p, fmt::format("a put of {} bytes was refused: the port allows {}; lower "
                         "ROPEWALK_SLICE_BYTES",
                         bytes, put_bytes_max_));
    return Posted::lost;
  }
  const size_t lanes = p->is_striped(bytes) ? p->lanes.size() : 1;
  if (!has_room(*p, lanes)) return Posted::full;

  const auto* memory = static_cast<const Registration*>(source_memory);
  const bool copied = bytes <= inline_bytes_max_;
  if (!copied && (memory == nullptr || !memory->contains(source, bytes))) {
    lose(*p, "a put was refused: its source is not in the registered memory named");
    return Posted::lost;
  }
  // The first lane's piece is at least kStripeBytes long (Peer::is_striped).
  const size_t share = (bytes + lanes - 1) / lanes;
  const size_t piece =
      std::max(kStripeBytes, (share + kPieceGrain - 1) / kPieceGrain * kPieceGrain);
  Peer::Put& put = p->puts[p->end_put % Peer::kPutsMax];
  put.cookie = cookie;
  put.lanes = copied ? 0 : static_cast<uint8_t>(lanes);
  for (size_t i = 0, begin = 0; i < lanes; ++i) {
    Lane& lane = *p->lanes[i];
    const size_t length = lanes == 1 ? bytes : std::min(piece, bytes - begin);
    Lane::Write part;
    part.source = source + begin;
    part.bytes = static_cast<uint32_t>(length);
    part.remote_at = offset + begin;
    part.remote_key = verbs::remote_key(key, lane.peer_adapter);
    part.notice = notice;
    part.copied = copied;
    if (!copied) {
      part.local_key = memory->local_key(lane.adapter);
      part.local_at = static_cast<uint64_t>(source + begin - memory->base());
    }
    if (!write(*p, lane, part)) return Posted::lost;
    put.ends[i] = lane.position();
    begin += length;
  }
  if (copied && p->first_put == p->end_put) return Posted::done;
  ++p->end_put;
  return Posted::posted;
}

// False where the peer was lost.
bool VerbsTransport::write(Peer& peer, Lane& lane, const Lane::Write& put) {
  lane.put(put, !gathering_);
  if (gathering_ && lane.held() < Lane::kBatch) {
    if (!peer.is_held) held_.push_back(&peer);
    peer.is_held = true;
    return true;
  }
  const int error = lane.flush();
  if (error != 0) failed_to_post(peer, lane, error);
  return error == 0;
}

void VerbsTransport::release() {
  gathering_ = false;
  while (!held_.empty()) {
    Peer& peer = *held_.back();
    held_.pop_back();
    peer.is_held = false;
    for (const auto& lane : peer.lanes) {
      const int error = lane->flush();
      if (error == 0) continue;
      failed_to_post(peer, *lane, error);
      break;
    }
  }
}

// ---- Polling ----

size_t VerbsTransport::poll(std::span<Completion> into) {
  if (ready_.empty()) {
    drain();
    if (!linking_.empty() || ++polls_ % kPollsPerLook == 0) look_around();
    if (ready_.empty()) return 0;
  }
  return collect(into);
}

// A batch of completions of each adapter; all of them where a peer has failed, who is lost after
// all that came from it.
void VerbsTransport::drain() {
  std::array<ibv_wc, kCompletionsAtOnce> completions;
  for (const auto& device : devices_) {
    int count = 0;
    do {
      count = ibv_poll_cq(device->cq, kCompletionsAtOnce, completions.data());
      for (int i = 0; i < count; ++i) completed(completions[static_cast<size_t>(i)]);
      can_do_more_ |= count > 0;
    } while (!failing_.empty() && count > 0);
  }
  for (size_t i = failing_.size(); i-- > 0;) {
    Peer& peer = *failing_[i];
    if (peer.state == Peer::State::linked && (peer.notice_ready() || peer.put_done()))
      publish(peer);  // and it is lost the next time
    else
      lose(peer, std::string(peer.why));
  }
}

void VerbsTransport::completed(const ibv_wc& completion) {
  const WorkId id = WorkId::unpack(completion.wr_id);
  Peer& peer = *peers_[id.peer];
  if (!peer.open()) return;
  Lane& lane = *peer.lanes[id.lane];
  if (completion.status != IBV_WC_SUCCESS) return failed(peer, lane, completion);
  if (!id.is_send) return arrived(peer, lane, completion);
  lane.complete(id.position);
  if (const int error = lane.give_credits(); error != 0) failed_to_post(peer, lane, error);
  publish(peer);
}

void VerbsTransport::arrived(Peer& peer, Lane& lane, const ibv_wc& completion) {
  const uint32_t immediate = ntohl(completion.imm_data);
  if (completion.opcode == IBV_WC_RECV) {
    if (!lane.credit(immediate)) lose(peer, "it gave back more than it was sent");
  } else if (lane.overflows()) {
    lose(peer, "it sent more notices than it may");
  } else {
    lane.arrived(immediate, completion.byte_len);
  }
  if (!peer.open()) return;
  if (const int error = lane.received(); error != 0) return failed_to_post(peer, lane, error);
  publish(peer);
}

// ---- Giving out ----

// Queues the peer for `collect` where it has something.
void VerbsTransport::publish(Peer& peer) {
  if (peer.in_ready || peer.state == Peer::State::dropped) return;
  const bool has_news = peer.lost_to_tell || (peer.state == Peer::State::linked &&
                                              (peer.notice_ready() || peer.put_done()));
  if (has_news) ready_.add(peer);
}

size_t VerbsTransport::collect(std::span<Completion> into) {
  return ready_.give_out(into, [this](Peer& peer, std::span<Completion> rest) {
    const size_t count = collect(peer, rest);
    publish(peer);  // what did not fit
    return count;
  });
}

size_t VerbsTransport::collect(Peer& peer, std::span<Completion> into) {
  size_t count = 0;
  if (peer.state == Peer::State::linked) {
    for (; count < into.size() && peer.put_done(); ++count)
      into[count] = {Completion::Kind::put_done, peer.rank, 0, 0,
                     peer.puts[peer.first_put++ % Peer::kPutsMax].cookie};
    for (; count < into.size() && peer.notice_ready(); ++count) into[count] = take_notice(peer);
    for (const auto& lane : peer.lanes)
      if (const int error = lane->give_credits(); error != 0) {
        failed_to_post(peer, *lane, error);
        break;
      }
  }
  if (count < into.size() && peer.lost_to_tell) {
    into[count++] = {Completion::Kind::lost, peer.rank, 0, 0, 0};
    peer.lost_to_tell = false;
  }
  return count;
}

Completion VerbsTransport::take_notice(Peer& peer) {
  const Lane::Notice first = peer.lanes[0]->front();
  const size_t lanes = peer.is_striped(first.bytes) ? peer.lanes.size() : 1;
  uint32_t bytes = 0;
  for (size_t i = 0; i < lanes; ++i) {
    bytes += peer.lanes[i]->front().bytes;
    peer.lanes[i]->take();
  }
  return {Completion::Kind::notice, peer.rank, first.notice, bytes, 0};
}

}  // namespace ropewalk
