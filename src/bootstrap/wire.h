// Every byte of the bootstrap, encoded and decoded. docs/protocol.md has the grammar.
//
// Integers are little-endian. Decoders are pure, bounded, and strict: they give nothing unless the
// span is exactly one well-formed message whose every field is inside its limit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/agreement.h"
#include "bootstrap/monitor.h"
#include "bootstrap/world.h"
#include "ropewalk/status.h"

namespace ropewalk::bootstrap {

using Bytes = std::vector<std::byte>;
using ByteSpan = std::span<const std::byte>;

/// Also of the calls that the library makes by itself, as src/communicator/cost_probe.h does.
inline constexpr uint16_t kProtocolVersion = 15;

// Limits. A record or failure that keeps them fits into kFramePayloadMax.
inline constexpr size_t kFrameHeaderBytes = 5;
inline constexpr size_t kFramePayloadMax = 16384;
inline constexpr size_t kNameBytesMax = 255;  // host_name, host_id, names of transports
inline constexpr size_t kAddressBytesMax = 64;
inline constexpr size_t kAddressesMax = 16;
inline constexpr size_t kTransportInfosMax = 16;
inline constexpr size_t kTransportBytesMax = 4096;  // cpus and transport_infos together
inline constexpr size_t kOperationBytesMax = 256;
inline constexpr size_t kReasonBytesMax = 2048;
inline constexpr size_t kRankRunsMax = 1024;  // of a failure's peers, of a decision's members
inline constexpr size_t kEndedRunsMax = 500;  // of those who ended before it
inline constexpr uint32_t kRanksMax = 1u << 20;
inline constexpr uint32_t kStreamsMax = 1024;
inline constexpr uint32_t kNewcomersMax = 256;  // that wait at a rank

// --- Handshake: fixed lengths, no frames --------------------------------------------------------

using PublicKey = std::array<std::byte, 32>;  // X25519
using Mac = std::array<std::byte, 32>;
using WorldId = std::array<std::byte, 16>;
using Digest = std::array<std::byte, 32>;     // BLAKE2b-256
using Signature = std::array<std::byte, 64>;  // Ed25519

enum class Purpose : uint8_t {
  join = 1,
  tree = 2,
  socket = 3,
  failure = 4,
  agreement = 5,
  join_running = 6,  // of a newcomer, which has no rank
};

/// With the job's key; all others with the world's.
constexpr bool is_for_joining(Purpose purpose) {
  return purpose == Purpose::join || purpose == Purpose::join_running;
}

/// The first version with this handshake, which stays as it is.
inline constexpr uint16_t kHandshakeVersion = 4;

/// The dialer's first message.
struct Hello {
  uint16_t version = kProtocolVersion;
  Purpose purpose = Purpose::join;
  uint32_t from = 0, to = 0;  // ranks
  uint32_t stream = 0;        // Purpose::socket only
  PublicKey public_key = {};  // of this connection
};
inline constexpr size_t kHelloBytes = 64;

/// The acceptor's.
struct Reply {
  uint16_t version = kProtocolVersion;
  PublicKey public_key = {};
};
inline constexpr size_t kReplyBytes = 48;

inline constexpr size_t kProofBytes = 32;  // the dialer's Mac

/// How the acceptor decides about an authenticated (or, for bad_key, not authenticated) dialer.
enum class HandshakeResult : uint8_t {
  accepted = 0,
  bad_key = 1,
  wrong_version = 2,
  wrong_rank = 3,  // another rank than the one dialed, or a link that has no place here
  busy = 4,        // not now: try again
  yield = 5,       // stop dialing: the acceptor, the lower rank, is dialing already
  already = 6,     // this (peer, stream) is connected
};

/// The acceptor's last message.
struct Answer {
  HandshakeResult result = HandshakeResult::bad_key;
  Mac mac = {};  // zeros with bad_key
};
inline constexpr size_t kAnswerBytes = 40;

/// As it follows `like` in a frame.
Bytes encode(const PeerRecord& record, const PeerRecord& like);

/// Message: Hello, Reply or Answer, which have so many bytes as the constants here say; PeerRecord;
/// Records; or what is in a Signed.
template <class Message>
Bytes encode(const Message& message);

// --- Frames -------------------------------------------------------------------------------------

enum class FrameType : uint8_t {
  join = 1,       // rank -> 0: Join
  place = 2,      // 0 -> rank: Place
  records = 3,    // down the tree, in rank order: Records
  ready = 4,      // up the tree: this subtree is linked; empty
  go = 5,         // down the tree: every rank is linked; empty
  failure = 6,    // both ways: Signed<JobFailure>
  heartbeat = 7,  // both ways: Heartbeat
  leave = 8,      // both ways: Signed<Leave>
  who_waits = 9,  // both ways: who waits for whom? Empty
  waits = 10,     // both ways: Signed<Waits>
  // The same of a part, both ways:
  part_failure = 11,    // Signed<PartFailure>
  part_leave = 12,      // Signed<PartLeave>
  part_who_waits = 13,  // PartQuestion
  part_waits = 14,      // Signed<PartWaits>
  agreement = 15,       // also over connections of its own: AgreementMessage
  newcomers = 16,       // both ways: Signed<Newcomers>
  admission = 17,       // member -> newcomer: Admission
  redirect = 18,        // 0 -> rank: Redirect
};

struct FrameHeader {
  uint32_t payload_bytes = 0;
  FrameType type = FrameType::heartbeat;
};
struct Joiner {
  uint32_t remaining_ms = 0;  // how long it will still wait
  PeerRecord record;
};
/// Of one rank; of several from a local registrar.
struct Join {
  uint32_t size = 0;  // of the job, as the sender sees it
  std::vector<Joiner> joiners;
};
/// Of ranks that have one parent.
struct Place {
  int rank = 0, ranks = 1;  // whose it is: the first, and how many
  WorldId world = {};
  Digest table = {};  // statements.h
  PeerRecord parent;
  std::string coordinator;  // where a local registrar has found rank 0; from rank 0 itself: empty
};
/// To a rank that is to join through another of its group, on another host.
struct Redirect {
  PeerRecord to;
};
/// Of some ranks; one at least.
struct Records {
  std::vector<PeerRecord> records;
};
struct Heartbeat {
  uint32_t interval_ms = 0;  // the sender sends one at least so often
};
inline constexpr int64_t kWaitAgeMax_ns = int64_t{1} << 62;  // any time minus it can be told
/// The rank in it says it.
struct JobFailure : Failure {
  uint32_t epoch = 0;  // of those that have followed each other in this world, from 0
};
/// To all: what `rank` waits for. Each since_ns is an age; heard_ns and until_ns do not travel.
struct Waits {
  uint32_t rank = 0;
  RankWaits answer;
};
struct Leave {
  uint32_t rank = 0;
  CallsMade calls;
  LeaveToken token = {};
};
// Of a part by its number, not 0. `rank` is the one in the job that says it; all other numbers are
// of ranks in the part.
struct PartFailure {
  uint32_t part = 0;
  uint32_t rank = 0;
  Failure failure;
};
struct PartLeave {
  uint32_t part = 0;
  uint32_t rank = 0;
  CallsMade calls;
};
struct PartQuestion {
  uint32_t part = 0;
};
struct PartWaits {
  uint32_t part = 0;
  uint32_t rank = 0;
  RankWaits answer;
};
/// All who wait at `rank` to join the job that runs.
struct Newcomers {
  uint32_t rank = 0;
  uint32_t revision = 0;  // counts what this rank has said of it
  std::vector<uint32_t> numbers;
};
/// Of a newcomer to the next epoch, where it is one of the last ranks.
struct Admission {
  std::string unique_id;  // to join with
  int rank = 1, size = 2;
  uint32_t remaining_ms = 0;      // how long the members will wait
  int epoch = 1;                  // the number of that
  std::vector<int> former_ranks;  // of the members in the epoch before, ascending
  std::string reason;             // why that ended
};
/// What the rank in it says (statements.h).
template <class Message>
struct Signed {
  Message message;
  Signature signature = {};
};
constexpr FrameType type_of(const JobFailure& /*message*/) {
  return FrameType::failure;
}
constexpr FrameType type_of(const Leave& /*message*/) {
  return FrameType::leave;
}
constexpr FrameType type_of(const Waits& /*message*/) {
  return FrameType::waits;
}
constexpr FrameType type_of(const PartFailure& /*message*/) {
  return FrameType::part_failure;
}
constexpr FrameType type_of(const PartLeave& /*message*/) {
  return FrameType::part_leave;
}
constexpr FrameType type_of(const PartWaits& /*message*/) {
  return FrameType::part_waits;
}

constexpr FrameType type_of(const Newcomers& /*message*/) {
  return FrameType::newcomers;
}

/// Message: any of the structures above (Hello, Reply, Answer, FrameHeader, what follows a
/// header).
template <class Message>
std::optional<Message> decode(ByteSpan bytes);

// Whole frames, header included. A Failure's texts and peers are cut to their limits. A PeerRecord
// must keep its limits (`within_limits`), and Records must fit.
Bytes frame(FrameType type, ByteSpan payload = {});
Bytes frame(const Join& join);
/// As few as hold all of them.
std::vector<Bytes> join_frames(uint32_t size, std::span<const Joiner> joiners);
Bytes frame(const Place& place);
Bytes frame(const Redirect& redirect);
Bytes frame(const Records& records);
Bytes frame(const Heartbeat& heartbeat);
Bytes frame(const PartQuestion& question);
Bytes frame(const AgreementMessage& message);
Bytes frame(const Admission& admission);
/// Message: one for which there is a type_of.
template <class Message>
Bytes frame(const Signed<Message>& said);

inline constexpr const char* kForgedAdvice =
    "look at what lies between the two hosts: it changes bytes, or forges them";

/// What one rank says of itself, in whatever order its addresses are.
bool is_same_record(const PeerRecord& a, const PeerRecord& b);
/// "rank 3 (host, pid 12)".
std::string describe(const PeerRecord& record);
/// The same with another number.
std::string describe(const PeerRecord& record, int rank);

bool within_limits(const PeerRecord& record);
/// Of cpus and transport_infos.
size_t transport_bytes(const PeerRecord& record);

}  // namespace ropewalk::bootstrap
