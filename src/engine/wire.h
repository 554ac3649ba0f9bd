// What engines write into each other's memory (docs/protocol.md, "Engine").
//
// For each ordered pair of linked ranks the receiver owns an inbox: a ring of message slots, and
// one probe slot. All streams of all communicators share the ring. A stream holds messages in
// order; each communicator has kStreams of them per direction: kContexts collectives may be in
// flight, each with kLanes lanes, and one more context carries send/recv.
//
// Every message begins in a slot. Where the peer's inbox is mapped the sender stores into it, the
// header's `number` last, and the receiver looks there: one cache line carries a small message.
// Else the slot is put, with an `eager` notice.
//
// A slot holds the whole payload where that is at most eager_bytes_max, else an announcement, after
// which the payload follows in slices, each with a `data` notice:
//   - into the place that the receiver granted: its final buffer (direct), or a window of staging
//     slots, whose reuse the receiver allows by `consumed` notices;
//   - or, where the peer's memory is mapped and the message is to be reduced, not at all: the
//     announcement says where the sender's data lies (exposed), and `consumed` notices say that the
//     receiver has read it.
//
// Owners (engine/owner_program.h) are sent descriptors instead: an eager slot that says where the
// sender's part of a block lies, and where its result goes.
#pragma once

#include <cstdint>
#include <string>

#include "ropewalk/call.h"
#include "ropewalk/status.h"
#include "ropewalk/transport.h"
#include "schedule/schedule.h"

namespace ropewalk {

/// What a rank says it is calling: travels in every header, so that ranks that call different
/// things learn it (docs/protocol.md, "Signature").
///
/// Some ranks end a call without hearing of it from those who called something else: a root that
/// has sent its data, two roots of one broadcast. So a signature also carries a digest of all calls
/// before it, and the next message between the two shows the difference.
///
/// 32 bytes on the wire, little-endian, compared byte for byte.
struct Signature {
  uint32_t sequence = 0;  // of the collective in its communicator (or of the pair's message)
  Collective collective{};
  DataType type{};
  ReduceKind op{};
  Algorithm algorithm{};
  int32_t root = 0;
  uint32_t slice_bytes = 0;
  uint64_t count = 0;
  uint32_t rest_hash = 0;  // of the _v forms' counts and of the made schedule; send: the tag
  uint32_t history = 0;    // CallHistory::digest before this call; send: 0

  bool operator==(const Signature&) const = default;
};
static_assert(sizeof(Signature) == 32);

/// The collectives that a rank has started: how many, and a digest of all their signatures.
struct CallHistory {
  uint32_t count = 0;
  uint32_t digest = 0;
  /// `next` carries this digest already.
  void add(const Signature& next);
};

/// What a rank says of `call`, before it has a number. `made_digest`: Schedule::digest.
Signature signature_of(const Call& call, Algorithm algorithm, size_t slice_bytes,
                       uint64_t made_digest);

/// Equal except for what was called before.
bool is_same_call(const Signature& a, const Signature& b);

/// "all_reduce(1024 float32, sum, ring)".
std::string describe(const Signature& signature);
/// "all_reduce #17".
std::string operation_name(const Signature& signature);
/// What `rank`, whose `own` is, says of a `peer` that has called `other`.
Failure mismatch_of(const Signature& own, int rank, const Signature& other, int peer);

/// FNV-1a over the bytes of `signature`.
uint32_t check_of(const Signature& signature);

/// The cookie of puts that only a link cares about; others carry the address of a StepState.
inline constexpr uint64_t kProbeCookie = 1;

inline constexpr int kContexts = 4;  // collectives in flight
inline constexpr int kPointToPointContext = kContexts;
static_assert(kChannels == kLanes);  // a channel of send and recv is a lane of their context
inline constexpr int kStreams = (kContexts + 1) * kLanes;
inline constexpr uint32_t kSlots = 16;                    // of the ring of a direction
inline constexpr uint32_t kUnreadMax = 8;                 // messages of a stream
inline constexpr uint32_t kCreditBatch = kUnreadMax / 2;  // read before credits go back
inline constexpr uint32_t kGrants = 8;                    // grants in flight per stream
inline constexpr uint32_t kWindowSlots = 4;               // staging slots of a window
inline constexpr size_t kMappedEagerBytesMax = 4096;
inline constexpr size_t kSentEagerBytesMax = 16 << 10;
inline constexpr size_t kSequentialBytesMax = 4096;     // longer messages are worth working ahead
inline constexpr uint32_t kCommunicatorsMax = 1 << 14;  // with numbers below; 0 is the whole job
/// The last of these numbers are those of epochs that follow another over its links, the others but
/// 0 of parts.
inline constexpr uint32_t kFollowersMax = 256;
constexpr uint16_t communicator_of_epoch(uint32_t epoch) {
  return static_cast<uint16_t>(epoch == 0 ? 0 : kCommunicatorsMax - kFollowersMax - 1 + epoch);
}
/// In tables by communicator: numbers of epochs are high, and few are used.
constexpr size_t table_index_of(uint16_t communicator) {
  constexpr size_t kFollowers = kCommunicatorsMax - kFollowersMax;
  return communicator < kFollowers ? 2 * size_t{communicator} : 2 * (communicator - kFollowers) + 1;
}
constexpr bool is_of_epoch(uint16_t communicator) {
  return communicator == 0 || communicator >= kCommunicatorsMax - kFollowersMax;
}
inline constexpr uint32_t kWireVersion = 9;

/// The eager limit of a link. Beyond it a network carries three frames more for each message, and
/// the grant has to be there in time; a rank that maps the sender's memory reads what lies there.
/// `spreads`: longer puts go over several adapters at once, which whole messages do not.
constexpr size_t eager_bytes_max(bool mapped, bool spreads = false) {
  return mapped || spreads ? kMappedEagerBytesMax : kSentEagerBytesMax;
}
/// `spread_bytes_min`: as in a transport's Capabilities.
constexpr bool spreads(size_t spread_bytes_min) {
  return spread_bytes_min < kSentEagerBytesMax;
}

static_assert(kSequentialBytesMax <= kMappedEagerBytesMax);

constexpr int stream_of(int context, int lane) {
  return context * kLanes + lane;
}

enum class MessageKind : uint8_t {
  eager = 1,
  announced = 2,
  exposed = 3,
  descriptor = 4,
  grant = 5,  // goes back to the sender of an announcement
};

struct EagerHeader {
  Signature signature;
  uint64_t bytes = 0;  // of the message
  MessageKind kind = MessageKind::eager;
  uint8_t stream = 0;
  uint8_t credits = 0;  // so many messages of the stream, the other way, were read: as `credit`
  uint8_t slots = 0;    // so many slots of the ring, the other way, may be reused: as `slots`
  uint16_t communicator = 0;
  uint16_t number = 0;  // of the message on its connection, from 1; written last where mapped
};
static_assert(sizeof(EagerHeader) == 48);

/// Where the payload of a slot begins. What fits shares the header's cache line; more begins with a
/// line of its own, so that vectors do not straddle lines.
constexpr size_t payload_offset(size_t payload_bytes) {
  return sizeof(EagerHeader) + payload_bytes <= 64 ? sizeof(EagerHeader) : 64;
}
inline const std::byte* payload_of(const EagerHeader& header, size_t payload_bytes) {
  return reinterpret_cast<const std::byte*>(&header) + payload_offset(payload_bytes);
}

/// Registered memory as peers can name it. window > 0: slice i lies at
/// offset + (i mod window) * slice_bytes; else at offset + i * slice_bytes. The payload of an
/// `exposed` slot, where `known` is 0, says so where the sender's data lies; that of a grant, where
/// the receiver wants it: with a window in a staging area, else at its final place.
struct RemoteBuffer {
  RemoteKey key;
  uint64_t offset = 0;
  uint32_t window = 0;
  uint32_t known = 0;  // 0: peers cannot name it; in a descriptor (`given`): there is none
};
static_assert(sizeof(RemoteBuffer) == 32);

/// The payload of a `descriptor` slot: its receiver, the block's owner, is to read the sender's
/// part of the block and to write the result. Where either side has a window each slice is ready
/// with its `data` notice, else all are at once. `consumed` notices say that slices are done. Both
/// sides may name one window.
struct BufferDescriptor {
  RemoteBuffer in, out;
};

struct Probe {
  Signature signature;
  uint16_t point_to_point = 0;  // 1: the sequence counts messages of the pair
  uint16_t communicator = 0;
  uint32_t check = 0;  // check_of(signature)
};
static_assert(sizeof(Probe) == 40);

struct LinkHello {
  uint32_t version = kWireVersion;
  uint32_t inbox_bytes = 0;  // 0: this rank has left, and there will be no link
  RemoteKey memory;          // that the inbox is in
  uint64_t offset = 0;       // where
};
static_assert(sizeof(LinkHello) == 32);

// Where things lie in an inbox.
inline constexpr size_t kProbeOffset = 0;
inline constexpr size_t kFreedOffset = 64;  // u32: how many slots of the ring were free again, ever
inline constexpr size_t kRingOffset = 128;
inline constexpr size_t kSlotBytesMax = 64 + kSentEagerBytesMax;
constexpr size_t slot_bytes(bool mapped) {
  return 64 + eager_bytes_max(mapped);
}
constexpr size_t inbox_bytes(bool mapped) {
  return kRingOffset + kSlots * slot_bytes(mapped);
}

// Notices: kind in bits 29-31, communicator in bits 15-28, stream in bits 11-14, amount in bits
// 0-10.
enum class NoticeKind : uint32_t {
  eager = 1,     // the next slot of the ring was filled
  credit = 2,    // `amount` messages of the stream were read
  slots = 3,     // `amount` slots of the ring may be reused
  data = 4,      // a slice is there
  consumed = 5,  // `amount` slices of a window, or of exposed data, were read
  probe = 6,     // the probe slot was filled
  end = 7,       // nothing comes any more: `amount` kEndOfUrgent, or kEndOfSlices, put like those
};
inline constexpr uint32_t kEndOfUrgent = 1, kEndOfSlices = 2;
inline constexpr uint32_t kNoticeAmountMax = 0x7ff;
static_assert(kStreams <= 1 << 4 && kSlots <= kNoticeAmountMax);
constexpr uint32_t make_notice(NoticeKind kind, uint16_t communicator, int stream,
                               uint32_t amount = 1) {
  return static_cast<uint32_t>(kind) << 29 | static_cast<uint32_t>(communicator) << 15 |
         static_cast<uint32_t>(stream) << 11 | amount;
}
constexpr NoticeKind notice_kind(uint32_t notice) {
  return static_cast<NoticeKind>(notice >> 29);
}
constexpr uint16_t notice_communicator(uint32_t notice) {
  return notice >> 15 & (kCommunicatorsMax - 1);
}
constexpr int notice_stream(uint32_t notice) {
  return static_cast<int>(notice >> 11 & 0xf);
}
constexpr uint32_t notice_amount(uint32_t notice) {
  return notice & kNoticeAmountMax;
}

}  // namespace ropewalk
