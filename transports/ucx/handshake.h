// What two ranks tell each other over an authenticated socket before they meet through UCX.
// docs/protocol.md has every byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ropewalk/transport.h"
#include "transports/greeting.h"

namespace ropewalk::ucx {

inline constexpr uint16_t kHandshakeVersion = 1;
inline constexpr size_t kAddressBytesMax = 64 << 10;

struct Handshake {
  uint32_t rank = 0;
  uint32_t link = 0;               // what the peer must put into each message of this link
  std::vector<std::byte> address;  // of the sender's worker, as UCX makes it
  std::vector<std::byte> hello;
};

inline constexpr size_t kHandshakeHeadBytes = 24;

std::vector<std::byte> encode(const Handshake& handshake);

const char* parse_head(const std::byte* head, Handshake& handshake, size_t& rest_bytes);
const char* parse_rest(const std::byte* rest, Handshake& handshake);
using HandshakeReader = ropewalk::HandshakeReader<Handshake, kHandshakeHeadBytes>;

}  // namespace ropewalk::ucx
