// The header that precedes every payload on a TCP stream. docs/protocol.md has every byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ropewalk/transport.h"

namespace ropewalk::tcp {

enum class FrameKind : uint8_t {
  hello = 1,   // first on every stream, and only there
  put = 2,     // one put, or one piece of it
  urgent = 3,  // one urgent put, whole; on stream 0
};

inline constexpr size_t kFrameHeaderBytes = 40;
inline constexpr uint32_t kFrameBytesMax = uint32_t{1} << 30;  // payload of one frame
inline constexpr uint32_t kPutBytesMax = uint32_t{1} << 30;    // payload of one put
inline constexpr uint32_t kProtocolVersion = 2;
inline constexpr uint32_t kStreamsMax = 16;  // sockets per peer

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
void encode(const FrameHeader& header, std::byte* into);

/// Reads kFrameHeaderBytes at `from`. Returns null, or what is wrong with the header by itself, as
/// the end of a sentence about the sender: "sent bytes that are no frame".
const char* decode(const std::byte* from, FrameHeader& header);

}  // namespace ropewalk::tcp
