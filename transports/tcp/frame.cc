#include "transports/tcp/frame.h"

#include "base/little_endian.h"
#include "ropewalk/transport.h"

namespace ropewalk::tcp {
namespace {

constexpr uint32_t kMagic = 0x545752;  // "RWT"; the kind is the fourth byte

using little_endian::load;
using little_endian::store;

}  // namespace

void encode(const FrameHeader& header, std::byte* into) {
  store(into, kMagic | uint32_t{static_cast<uint8_t>(header.kind)} << 24);
  store(into + 4, header.notice);
  store(into + 8, header.key);
  store(into + 16, header.offset);
  store(into + 24, header.bytes);
  store(into + 28, header.put_bytes);
  store(into + 32, header.sequence);
}

const char* decode(const std::byte* from, FrameHeader& header) {
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
