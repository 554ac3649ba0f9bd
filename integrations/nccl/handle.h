// The handle that NCCL carries from the rank that listens to the one that connects: where, and with
// which key.
//
//   "rwnc" u8 version u8 has_job_key u8 addresses zero u16 port zero(6)
//   32 random bytes: nonce or key
//   16 bytes per address (IPv6, or IPv4 within it), at most 4; zeros up to 128 bytes
//
// As a unique id is (docs/protocol.md, "Handshake"): where the ranks have a ROPEWALK_JOB_KEY the
// random bytes are a nonce, and nothing in the handle is secret. Where they have none, they are the
// key: who reads what NCCL's own bootstrap sends, in clear, can connect.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "bootstrap/net.h"
#include "bootstrap/secret.h"
#include "bootstrap/secure_channel.h"
#include "integrations/nccl/abi.h"

namespace ropewalk::nccl {

inline constexpr size_t kHandleAddressesMax = 4;

struct Handle {
  std::array<std::byte, 32> random{};
  bool has_job_key = false;
  std::vector<bootstrap::SocketAddress> addresses;  // with the port

  /// Writes kHandleBytes.
  void encode(std::byte* into) const;
  /// Throws Error(protocol) where that is none.
  static Handle decode(const std::byte* from);
  /// The key of its connections. Throws Error(refused) where only one end has a job's key, and
  /// Error(invalid_argument) for a weak one beyond loopback.
  Key key(const Secret& job_key) const;
};

}  // namespace ropewalk::nccl
