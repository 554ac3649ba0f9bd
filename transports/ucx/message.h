// What travels between two ranks as UCX active messages. docs/protocol.md has every byte.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "base/little_endian.h"

namespace ropewalk::ucx {

// Ids of active messages.
inline constexpr unsigned kPutMessage = 0, kCreditMessage = 1, kCompactPutMessage = 2;

/// Precedes the bytes of a put: as the header of its message, or in front of the payload where the
/// message has no header.
struct PutHeader {
  uint32_t link = 0;  // the receiver's name for the link, from its handshake
  uint32_t notice = 0;
  uint16_t sequence = 0;  // of the put among those of the link, modulo 2^16
  uint16_t taken = 0;     // how many puts of the other direction were taken, ever, modulo 2^16
  uint64_t key = 0;       // of the region (memory/regions.h); these two are 0 for a pure notice
  uint64_t offset = 0;    // into the region
};
inline constexpr size_t kPutHeaderBytes = 32;
/// For keys and offsets with small numbers, which nearly all are: adapters take few bytes with a
/// work request (UCX_RC_TX_MIN_INLINE: 64).
inline constexpr size_t kCompactPutHeaderBytes = 20;

/// Tells `taken` where no put does.
struct Credit {
  uint32_t link = 0;
  uint16_t taken = 0;
};
inline constexpr size_t kCreditBytes = 6;

/// The count, near one that is known, of which only the lower half travels.
constexpr uint32_t widen(uint16_t low, uint32_t not_before) {
  return not_before + static_cast<uint16_t>(low - static_cast<uint16_t>(not_before));
}

constexpr bool is_compact(const PutHeader& header) {
  return (header.key & 0xffff0000ffff0000) == 0 && header.offset >> 32 == 0;
}

inline void encode_common(const PutHeader& header, std::byte* into) {
  using little_endian::store;
  store(into, header.link);
  store(into + 4, header.notice);
  store(into + 8, header.sequence);
  store(into + 10, header.taken);
}
inline void encode(const PutHeader& header, std::byte* into) {
  encode_common(header, into);
  little_endian::store(into + 12, uint32_t{0});
  little_endian::store(into + 16, header.key);
  little_endian::store(into + 24, header.offset);
}
/// Only where `is_compact`.
inline void encode_compact(const PutHeader& header, std::byte* into) {
  assert(is_compact(header));
  encode_common(header, into);
  little_endian::store(into + 12, static_cast<uint16_t>(header.key));
  little_endian::store(into + 14, static_cast<uint16_t>(header.key >> 32));
  little_endian::store(into + 16, static_cast<uint32_t>(header.offset));
}

inline PutHeader decode_common(const std::byte* from) {
  using little_endian::load;
  PutHeader header;
  header.link = load<uint32_t>(from);
  header.notice = load<uint32_t>(from + 4);
  header.sequence = load<uint16_t>(from + 8);
  header.taken = load<uint16_t>(from + 10);
  return header;
}
inline PutHeader decode_put(const std::byte* from) {
  PutHeader header = decode_common(from);
  header.key = little_endian::load<uint64_t>(from + 16);
  header.offset = little_endian::load<uint64_t>(from + 24);
  return header;
}
inline PutHeader decode_compact_put(const std::byte* from) {
  using little_endian::load;
  PutHeader header = decode_common(from);
  header.key = load<uint16_t>(from + 12) | uint64_t{load<uint16_t>(from + 14)} << 32;
  header.offset = load<uint32_t>(from + 16);
  return header;
}

inline void encode(const Credit& credit, std::byte* into) {
  little_endian::store(into, credit.link);
  little_endian::store(into + 4, credit.taken);
}

inline Credit decode_credit(const std::byte* from) {
  return {little_endian::load<uint32_t>(from), little_endian::load<uint16_t>(from + 4)};
}

}  // namespace ropewalk::ucx
