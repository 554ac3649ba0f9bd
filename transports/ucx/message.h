// What travels between two ranks as UCX active messages. docs/protocol.md has every byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transports/little_endian.h"

namespace ropewalk::ucx {

inline constexpr unsigned kPutMessage = 0, kCreditMessage = 1;  // ids of active messages

/// Precedes the bytes of a put: as the header of its message, or in front of the payload where the
/// message has no header.
struct PutHeader {
  uint64_t link = 0;    // the receiver's name for the link, from its handshake
  uint64_t key = 0;     // of the region; these two are 0 for a pure notice
  uint64_t offset = 0;  // into the region
  uint32_t notice = 0;
  uint16_t sequence = 0;  // of the put among those of the link, modulo 2^16
  uint16_t taken = 0;     // how many puts of the other direction were taken, ever, modulo 2^16
};
// With an engine's shortest message it fits into what UCX sends at once over shared memory.
inline constexpr size_t kPutHeaderBytes = 32;

/// Tells `taken` where no put does.
struct Credit {
  uint64_t link = 0;
  uint16_t taken = 0;
};
inline constexpr size_t kCreditBytes = 10;

/// The count, near one that is known, of which only the lower half travels.
constexpr uint32_t widen(uint16_t low, uint32_t not_before) {
  return not_before + static_cast<uint16_t>(low - static_cast<uint16_t>(not_before));
}

inline void encode(const PutHeader& header, std::byte* into) {
  using little_endian::store;
  store(into, header.link);
  store(into + 8, header.key);
  store(into + 16, header.offset);
  store(into + 24, header.notice);
  store(into + 28, header.sequence);
  store(into + 30, header.taken);
}

inline PutHeader decode_put(const std::byte* from) {
  using little_endian::load;
  return {load<uint64_t>(from),      load<uint64_t>(from + 8),  load<uint64_t>(from + 16),
          load<uint32_t>(from + 24), load<uint16_t>(from + 28), load<uint16_t>(from + 30)};
}

inline void encode(const Credit& credit, std::byte* into) {
  little_endian::store(into, credit.link);
  little_endian::store(into + 8, credit.taken);
}

inline Credit decode_credit(const std::byte* from) {
  return {little_endian::load<uint64_t>(from), little_endian::load<uint16_t>(from + 8)};
}

}  // namespace ropewalk::ucx
