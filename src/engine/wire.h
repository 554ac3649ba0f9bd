// What engines write into each other's memory (docs/protocol.md, "Engine").
//
// For each ordered pair of linked ranks the receiver owns an inbox: for every stream a ring of
// eager slots and a ring of grant slots, and one probe slot. A stream is a FIFO of messages; there
// are kStreams of them per direction: kContexts collectives may be in flight, each with kLanes
// lanes, and one more context carries send/recv.
//
// Every message begins with an eager slot: the whole payload where it is at most kEagerBytesMax,
// else an announcement, after which the payload follows in slices, each with a `data` notice:
//   - into the place that the receiver granted: its final buffer (direct), or a window of staging
//     slots, whose reuse the receiver allows by `consumed` notices;
//   - or, where the peer's memory is mapped and the message is to be reduced, not at all: the
//     announcement says where the sender's data lies (exposed), and `consumed` notices say that the
//     receiver has read it.
#pragma once

#include <cstdint>

#include "engine/signature.h"
#include "ropewalk/transport.h"
#include "schedule/schedule.h"

namespace ropewalk {

/// The cookie of puts that only a link cares about; others carry the address of a StepState.
inline constexpr uint64_t kProbeCookie = 1;

inline constexpr int kContexts = 4;  // collectives in flight
inline constexpr int kPointToPointContext = kContexts;
inline constexpr int kStreams = (kContexts + 1) * kLanes;
inline constexpr uint32_t kSlots = 8;   // eager messages in flight per stream
inline constexpr uint32_t kGrants = 8;  // grants in flight per stream
inline constexpr size_t kEagerBytesMax = 4096;
inline constexpr uint32_t kWireVersion = 1;

constexpr int stream_of(int context, int lane) {
  return context * kLanes + lane;
}

enum class MessageKind : uint32_t { eager = 1, announced = 2, exposed = 3 };

struct EagerHeader {
  Signature signature;
  MessageKind kind = MessageKind::eager;
  uint32_t slices = 0;  // announced, exposed: how many `data` notices follow
  uint64_t bytes = 0;   // of the message
};
static_assert(sizeof(EagerHeader) == 48);

/// The payload of an `exposed` slot: where the sender's data lies.
struct Exposure {
  RemoteKey key;
  uint64_t offset = 0;
  uint32_t window = 0;  // the data cycles through this many slots of slice_bytes; 0: it lies whole
  uint32_t unused = 0;
};
static_assert(sizeof(Exposure) == 32);

enum class GrantKind : uint32_t { direct = 1, window = 2 };

struct Grant {
  Signature signature;
  GrantKind kind = GrantKind::direct;
  uint32_t window = 0;  // window: slots of slice_bytes each, used in a circle
  RemoteKey key;
  uint64_t offset = 0;
};
static_assert(sizeof(Grant) == 64);

struct Probe {
  Signature signature;
  uint32_t point_to_point = 0;  // 1: the sequence counts messages of the pair
  uint32_t check = 0;           // check_of(signature)
};
static_assert(sizeof(Probe) == 40);

struct Hello {
  uint32_t version = kWireVersion;
  uint32_t inbox_bytes = 0;
  RemoteKey inbox;
};
static_assert(sizeof(Hello) == 24);

// Where things lie in an inbox.
inline constexpr size_t kSlotBytes = (sizeof(EagerHeader) + kEagerBytesMax + 63) / 64 * 64;
inline constexpr size_t kStreamBytes = kSlots * kSlotBytes + kGrants * sizeof(Grant);
inline constexpr size_t kProbeOffset = kStreams * kStreamBytes;
inline constexpr size_t kInboxBytes = kProbeOffset + 64;
constexpr size_t slot_offset(int stream, uint32_t number) {
  return static_cast<size_t>(stream) * kStreamBytes + (number % kSlots) * kSlotBytes;
}
constexpr size_t grant_offset(int stream, uint32_t number) {
  return static_cast<size_t>(stream) * kStreamBytes + kSlots * kSlotBytes +
         (number % kGrants) * sizeof(Grant);
}

// Notices: kind in bits 28-31, stream in bits 20-27, amount in bits 0-19.
enum class NoticeKind : uint32_t {
  eager = 1,     // an eager slot was filled
  credit = 2,    // `amount` eager slots may be reused
  grant = 3,     // a grant slot was filled
  data = 4,      // a slice is there
  consumed = 5,  // `amount` slices of a window, or of exposed data, were read
  probe = 6,     // the probe slot was filled
};
constexpr uint32_t make_notice(NoticeKind kind, int stream, uint32_t amount = 1) {
  return static_cast<uint32_t>(kind) << 28 | static_cast<uint32_t>(stream) << 20 | amount;
}
constexpr NoticeKind notice_kind(uint32_t notice) {
  return static_cast<NoticeKind>(notice >> 28);
}
constexpr int notice_stream(uint32_t notice) {
  return static_cast<int>(notice >> 20 & 0xff);
}
constexpr uint32_t notice_amount(uint32_t notice) {
  return notice & 0xfffff;
}

}  // namespace ropewalk
