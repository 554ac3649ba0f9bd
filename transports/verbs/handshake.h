// What two ranks tell each other over an authenticated socket before their queue pairs can meet.
// docs/protocol.md has every byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/transport.h"
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
inline constexpr size_t kHandshakeBytesMax =
    kHandshakeHeadBytes + kLanesMax * kLaneAddressBytes + kHelloBytesMax;
/// Follows the handshake when the sender's queue pairs can receive.
inline constexpr std::byte kReady{0x52};

std::vector<std::byte> encode(const Handshake& handshake);

/// Reads a handshake as its bytes come in.
class HandshakeReader {
 public:
  /// Takes the next byte. False: it can be no handshake; see `violation`.
  bool take(std::byte byte);
  bool complete() const { return complete_; }
  /// The end of a sentence about the sender: "sent bytes that are no handshake".
  const char* violation() const { return violation_; }
  const Handshake& handshake() const { return handshake_; }

 private:
  bool parse_head();
  bool parse_rest();
  bool refuse(const char* violation);

  std::vector<std::byte> bytes_;
  size_t wanted_ = kHandshakeHeadBytes;
  bool complete_ = false;
  const char* violation_ = nullptr;
  Handshake handshake_;
};

}  // namespace ropewalk::verbs
