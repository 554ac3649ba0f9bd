#include "integrations/nccl/receive_link.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "integrations/nccl/logging.h"

namespace ropewalk::nccl {

ReceiveLink::ReceiveLink(LinkParts parts) : Link(kReceiverRank, std::move(parts)) {
  for (Receive& receive : receives_) receive.link = this;
}

void ReceiveLink::on_notice(uint32_t notice) {
  Receive& receive = receives_[notice & 0x1f];
  const uint32_t entry = notice >> 5 & 0x7;
  const uint64_t bytes = notice >> 8;
  const bool is_wanted = receive.is_active && entry < static_cast<uint32_t>(receive.count) &&
                         (receive.finished >> entry & 1) == 0 && bytes <= kPieceBytes &&
                         bytes <= receive.room[entry] - receive.received[entry];
  if (!is_wanted)
    return lose("it sent what was not asked for", "run the same version of Ropewalk on every rank");
  receive.received[entry] += bytes;
  if (bytes == kPieceBytes) return;
  receive.finished |= uint32_t{1} << entry;
  --receive.unfinished;
}

Result ReceiveLink::check(const GroupedReceive& receive) const {
  if (receive.count < 1 || receive.count > kReceivesMax) {
    warn("irecv of {} messages; {} at most", receive.count, kReceivesMax);
    return Result::invalid_argument;
  }
  for (int i = 0; i < receive.count; ++i) {
    const auto* memory = static_cast<const MemoryRegistration*>(
        receive.memories == nullptr ? nullptr : receive.memories[i]);
    if (is_registered(memory, receive.data[i], receive.bytes[i])) continue;
    warn("irecv of {} bytes into memory that is not registered; call regMr first",
         receive.bytes[i]);
    return Result::invalid_argument;
  }
  return Result::success;
}

void ReceiveLink::write_posting(const GroupedReceive& receive, size_t slot) {
  for (int i = 0; i < receive.count; ++i) {
    PostedReceive& entry = ring()[slot][static_cast<size_t>(i)];
    entry = {};
    entry.bytes = receive.bytes[i];
    entry.tag = receive.tags[i];
    if (entry.bytes == 0) continue;
    const auto& memory = *static_cast<const MemoryRegistration*>(receive.memories[i]);
    entry.key = memory.key();
    entry.offset =
        static_cast<uint64_t>(static_cast<const std::byte*>(receive.data[i]) - memory.base());
  }
}

/// Urgent, so that postings are in order among themselves and behind nothing.
Posted ReceiveLink::put_posting(size_t slot, int count) {
  const Posting& posting = ring()[slot];
  return transport().put({.peer = peer(),
                          .source = reinterpret_cast<const std::byte*>(&posting),
                          .source_memory = &ring_memory(),
                          .bytes = static_cast<size_t>(count) * sizeof(PostedReceive),
                          .key = peers_hello().ring,
                          .offset = peers_hello().ring_offset + slot * sizeof(Posting),
                          .notice = static_cast<uint32_t>(slot) | static_cast<uint32_t>(count) << 8,
                          .urgent = true,
                          .cookie = slot});
}

Result ReceiveLink::irecv(const GroupedReceive& receive, Request** request) {
  const std::lock_guard lock(mutex_);
  *request = nullptr;
  const size_t slot = posted_ % kRequestsMax;
  Receive& next = receives_[slot];
  if (next.is_posting_under_way) progress();
  if (is_lost()) return fail_lost();
  if (const Result checked = check(receive); checked != Result::success) return checked;
  if (next.is_active || next.is_posting_under_way) return Result::success;
  write_posting(receive, slot);
  // Before the put: what it asks for may come while the transport is polled.
  next.count = next.unfinished = receive.count;
  next.finished = 0;
  next.received = {};
  std::copy_n(receive.bytes, receive.count, next.room.begin());
  Posted posted = put_posting(slot, receive.count);
  if (posted == Posted::full) {
    progress();
    if (!is_lost()) posted = put_posting(slot, receive.count);
  }
  if (posted == Posted::lost) lose_for_transport();
  if (is_lost()) return fail_lost();
  if (posted == Posted::full) return Result::success;
  next.is_active = true;
  next.is_posting_under_way = posted == Posted::posted;
  ++posted_;
  *request = &next;
  return Result::success;
}

Result ReceiveLink::test(Request& request, int* done, int* bytes) {
  const std::lock_guard lock(mutex_);
  Receive& receive = static_cast<Receive&>(request);
  if (!receive.is_active) {
    warn("test of a request that is over; test each until it is done, and no more");
    return Result::invalid_argument;
  }
  if (receive.unfinished > 0) progress();
  *done = receive.unfinished == 0 ? 1 : 0;
  if (*done == 0) return is_lost() ? fail_lost() : Result::success;
  for (int i = 0; bytes != nullptr && i < receive.count; ++i)
    bytes[i] = static_cast<int>(std::min<uint64_t>(receive.received[static_cast<size_t>(i)],
                                                   std::numeric_limits<int>::max()));
  receive.is_active = false;
  return Result::success;
}

}  // namespace ropewalk::nccl
