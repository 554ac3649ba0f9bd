// What the transport keeps per peer and per socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "transports/tcp/inbox.h"
#include "transports/tcp/outbox.h"
#include "transports/tcp/stream.h"
#include "transports/tcp/tcp_transport.h"

namespace ropewalk {

inline std::string errno_text(int error) {
  return std::generic_category().message(error);
}

struct TcpTransport::PeerStream {
  inline PeerStream(Peer& peer_, int fd, int rank, const tcp::Reader::Expected& expected,
                    std::span<const std::byte> hello, const Regions& regions);
  Peer& peer;
  tcp::Stream stream;
};

struct TcpTransport::Peer {
  enum class State : uint8_t { linking, linked, lost, dropped };

  explicit Peer(int rank_) : rank(rank_) {}
  bool open() const { return state == State::linking || state == State::linked; }

  const int rank;
  State state = State::linking;
  bool lost_to_tell = false;  // `lost` was not given out yet
  bool in_ready = false;
  int ended = 0;                                   // streams that the peer has closed
  std::vector<std::byte> hello;                    // ours, for the peer
  std::vector<std::unique_ptr<PeerStream>> links;  // by stream; null: no socket yet
  tcp::Inbox inbox;
  tcp::Outbox outbox;
  LossReason why;
};

inline TcpTransport::PeerStream::PeerStream(Peer& peer_, int fd, int rank,
                                            const tcp::Reader::Expected& expected,
                                            std::span<const std::byte> hello,
                                            const Regions& regions)
    : peer(peer_), stream(fd, rank, expected, hello, regions, peer_.inbox, peer_.outbox) {}

}  // namespace ropewalk
