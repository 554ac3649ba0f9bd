// What the transport keeps per peer.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <span>

#include "transports/greeting.h"
#include "transports/network_peers.h"
#include "transports/ucx/handshake.h"
#include "transports/ucx/inbox.h"
#include "transports/ucx/library.h"
#include "transports/ucx/message.h"

namespace ropewalk {

class UcxTransport;

namespace ucx {

struct Peer;

/// A message under way: UCX reads `message` until `sent`.
struct Put {
  /// Bytes of puts up to this are copied behind the header: one message, one piece.
  static constexpr size_t kCopiedMax = 216;

  Peer* peer = nullptr;
  uint64_t cookie = 0;
  bool sent = false;
  std::array<std::byte, kPutHeaderBytes + kCopiedMax> message;
};

/// The bytes of a long put under way.
struct Receive {
  Peer* peer = nullptr;
  uint32_t sequence = 0;
};

struct Peer final : NetworkPeer {
  static constexpr uint32_t kPutsMax = 256;  // a power of two

  Peer(UcxTransport& owner_, int rank_, uint32_t link_)
      : NetworkPeer(rank_), owner(owner_), link(link_) {
    for (Put& put : puts) put.peer = this;
  }
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
    return end_put - first_put < kPutsMax && sent - credited < Inbox::kWindow;
  }

  UcxTransport& owner;
  const uint32_t link;      // our name for the link: the rank in the low half, the rest at random
  uint32_t their_link = 0;  // the peer's, from its handshake
  Greeting<HandshakeReader> greeting;
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
  Inbox inbox;
  std::array<Receive, Inbox::kWindow> receives;  // by sequence
  uint32_t told = 0;                             // of inbox.taken(), what the peer was told
  bool telling = false;                          // a credit message is under way
  std::array<std::byte, kCreditBytes> credit;
};

// Begin sentences about a peer that UCX's own word ends.
inline constexpr const char kNotSent[] = "it could not be sent to: ";
inline constexpr const char kNotFetched[] = "it could not be fetched from: ";
inline constexpr const char kNotReached[] = "it could not be reached: ";

/// For a request after which UCX is to call `done(request, status, about)`, unless it is done at
/// once.
inline ucp_request_param_t calls(ucp_send_nbx_callback_t done, void* about, uint32_t flags = 0) {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = done;
  param.user_data = about;
  param.flags = flags;
  return param;
}

}  // namespace ucx
}  // namespace ropewalk
