// The header that precedes every payload on a TCP stream. docs/protocol.md has every byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/little_endian.h"
#include "ropewalk/transport.h"

namespace ropewalk::tcp {

enum class FrameKind : uint8_t {
  hello = 1,   // first on every stream, and only there
  put = 2,     // one put, or one piece of it
  urgent = 3,  // one urgent put, whole; on stream 0
  fence = 4,   // what came before is given up, and sequence numbers begin anew
};

inline constexpr uint32_t kMagic = 0x545752;  // "RWT"; the kind is the fourth byte
inline constexpr size_t kFrameHeaderBytes = 40;
inline constexpr uint32_t kFrameBytesMax = uint32_t{1} << 30;  // payload of one frame
inline constexpr uint32_t kPutBytesMax = uint32_t{1} << 30;    // payload of one put
inline constexpr uint32_t kProtocolVersion = 5;
inline constexpr uint32_t kStreamsMax = 16;  // sockets per peer
// Over networks, where streams go through adapters of their own, each carries a share of a longer
// put, which then takes as long as its bytes do. Over loopback that would be calls for nothing.
inline constexpr uint32_t kSharedBytesMin = 8 << 10;

/// Fields as a put uses them; what a hello keeps in them stands behind the colon.
struct FrameHeader {
  FrameKind kind = FrameKind::put;
  uint32_t notice = 0;     // : protocol version
  uint64_t key = 0;        // id of the target region : the sender's rank
  uint64_t offset = 0;     // of this payload in the region, in bytes : number of this stream
  uint32_t bytes = 0;      // payload that follows this header
  uint32_t put_bytes = 0;  // payload of all frames of the put : streams per peer
  uint64_t sequence = 0;   // of the put, per sender and receiver, from 0; urgent ones apart : 0
};

using FrameBytes = std::array<std::byte, kFrameHeaderBytes>;

/// Little-endian, whatever the machine.
inline void encode(const FrameHeader& header, std::byte* into) {
  little_endian::store(into, kMagic | uint32_t{static_cast<uint8_t>(header.kind)} << 24);
  little_endian::store(into + 4, header.notice);
  little_endian::store(into + 8, header.key);
  little_endian::store(into + 16, header.offset);
  little_endian::store(into + 24, header.bytes);
  little_endian::store(into + 28, header.put_bytes);
  little_endian::store(into + 32, header.sequence);
}

/// Reads kFrameHeaderBytes at `from`. Returns null, or what is wrong with the header by itself, as
/// the end of a sentence about the sender: "sent bytes that are no frame".
inline const char* decode(const std::byte* from, FrameHeader& header) {
  using little_endian::load;
  const auto word = load<uint32_t>(from);
  if ((word & 0xffffff) != kMagic) return "sent bytes that are no frame";
  header.kind = static_cast<FrameKind>(word >> 24);
  header.notice = load<uint32_t>(from + 4);
  header.key = load<uint64_t>(from + 8);
  header.offset = load<uint64_t>(from + 16);
  header.bytes = load<uint32_t>(from + 24);
  header.put_bytes = load<uint32_t>(from + 28);
  header.sequence = load<uint64_t>(from + 32);
  switch (header.kind) {
    case FrameKind::hello:
      return header.bytes <= kHelloBytesMax ? nullptr : "sent a hello that is too long";
    case FrameKind::urgent:
      return header.bytes <= kUrgentPutBytesMax && header.bytes == header.put_bytes
                 ? nullptr
                 : "sent an urgent frame of a wrong length";
    case FrameKind::fence:
      return header.bytes == 0 && header.put_bytes == 0 ? nullptr : "sent a fence with a payload";
    case FrameKind::put:
      if (header.bytes > kFrameBytesMax || header.put_bytes > kPutBytesMax)
        return "sent a frame that is too long";
      // Only a pure notice has no payload; a piece is never empty.
      if (header.bytes > header.put_bytes || (header.bytes == 0 && header.put_bytes != 0))
        return "sent a frame longer than its put";
      return nullptr;
  }
  return "sent a frame of unknown kind";
}

}  // namespace ropewalk::tcp
