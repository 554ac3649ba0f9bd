// What the transport keeps per peer.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transports/greeting.h"
#include "transports/ucx/handshake.h"
#include "transports/ucx/inbox.h"
#include "transports/ucx/message.h"
#include "transports/ucx/ucx_transport.h"

namespace ropewalk {

/// UCX reads `message` until `sent`.
struct UcxTransport::Put {
  /// Bytes of puts up to this are copied behind the header: one message, one piece.
  static constexpr size_t kCopiedMax = 216;

  Peer* peer = nullptr;
  uint64_t cookie = 0;
  bool sent = false;
  std::array<std::byte, ucx::kPutHeaderBytes + kCopiedMax> message;
};

struct UcxTransport::Receive {
  Peer* peer = nullptr;
  uint32_t sequence = 0;
};

struct UcxTransport::Peer final : NetworkPeer {
  static constexpr uint32_t kPutsMax = 256;  // a power of two

  Peer(UcxTransport& owner_, int rank_, uint32_t link_, std::span<const std::byte> hello);
  /// UCX is making the connection.
  bool wiring() const { return endpoint != nullptr && !stood; }

  // For NetworkPeers.
  bool gives() const { return state == State::linked; }
  bool put_done() const { return first_put != end_put && puts[first_put % kPutsMax].sent; }
  uint64_t take_put() {
    assert(put_done());
    return puts[first_put++ % kPutsMax].cookie;
  }
  bool notice_ready() const { return inbox.ready(); }
  uint32_t take_notice() { return inbox.take(); }
  std::span<const std::byte> hello_here() const { return greeting.hello(); }

  bool can_put() const {
    return end_put - first_put < kPutsMax && sent - credited < ucx::Inbox::kWindow;
  }

  UcxTransport& owner;
  const uint32_t link;      // our name for the link: the rank in the low half, the rest at random
  uint32_t their_link = 0;  // the peer's, from its handshake
  Greeting<ucx::HandshakeReader> greeting;
  ucp_ep_h endpoint = nullptr;
  bool flushing = false;           // until UCX's own connection stands
  bool greeted = false;            // the first message to the peer was posted
  bool met = false;                // the first of the peer's has come
  bool stood = false;              // the link did once
  void* closing = nullptr;         // UCX's request, while the endpoint ends
  uint32_t under_way = 0;          // requests that UCX has not completed
  std::array<Put, kPutsMax> puts;  // a ring of those whose put_done is to come
  uint32_t first_put = 0, end_put = 0;
  uint32_t sent = 0;      // puts, ever
  uint32_t credited = 0;  // of those, how many the peer has taken
  ucx::Inbox inbox;
  std::array<Receive, ucx::Inbox::kWindow> receives;  // by sequence
  uint32_t told = 0;                                  // of inbox.taken(), what the peer was told
  bool telling = false;                               // a credit message is under way
  std::array<std::byte, ucx::kCreditBytes> credit;
};

}  // namespace ropewalk
