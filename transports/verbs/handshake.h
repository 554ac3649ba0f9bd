// What two ranks tell each other over an authenticated socket before their queue pairs can meet.
// docs/protocol.md has every byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/transport.h"
#include "transports/greeting.h"
#include "transports/verbs/ports.h"

namespace ropewalk::verbs {

inline constexpr uint16_t kHandshakeVersion = 1;
inline constexpr size_t kLanesMax = 8;            // queue pairs per peer
inline constexpr uint32_t kNoticesMax = 1 << 16;  // that a rank may offer to take, per lane

/// One end of a queue pair.
struct LaneAddress {
  PortAddress port;
  uint32_t queue_pair = 0;     // 24 bits
  uint32_t packet_number = 0;  // the first that this end will send; 24 bits
  uint8_t adapter = 0;         // which half of a remote key's id is for writes on this lane
};

struct Handshake {
  uint32_t rank = 0;
  uint32_t notices = 0;  // how many may be under way to this rank on each lane
  std::vector<LaneAddress> lanes;
  std::vector<std::byte> hello;
};

inline constexpr size_t kHandshakeHeadBytes = 20;
inline constexpr size_t kLaneAddressBytes = 32;
/// Follows the handshake when the sender's queue pairs can receive.
inline constexpr std::byte kReady{0x52};

std::vector<std::byte> encode(const Handshake& handshake);

const char* parse_head(const std::byte* head, Handshake& handshake, size_t& rest_bytes);
const char* parse_rest(const std::byte* rest, Handshake& handshake);
using HandshakeReader = ropewalk::HandshakeReader<Handshake, kHandshakeHeadBytes>;

}  // namespace ropewalk::verbs
