// The sockets of one connection between two ranks: what World's broker is to a job's transports.
#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "bootstrap/dialer.h"
#include "bootstrap/poll_set.h"
#include "bootstrap/sockets.h"

namespace ropewalk::nccl {

/// As transports know the two.
inline constexpr int kReceiverRank = 0, kSenderRank = 1;
/// Of the socket over which they agree on a transport; those of transports count from 0.
inline constexpr int kControlStream = 1023;

/// The sender dials, the receiver accepts. One thread at a time; never blocks.
class PairSockets final : public SocketSource {
 public:
  /// The receiver's: `deliver` brings sockets.
  PairSockets() = default;
  /// The sender's.
  PairSockets(std::vector<bootstrap::SocketAddress> addresses, const Key& key)
      : addresses_(std::move(addresses)), key_(key) {}

  void request(int peer, int stream) override;
  ConnectedSocket take(int peer, int stream) override;
  std::vector<int> offers() const override { return {}; }
  int event_fd() const override { return event_.fd(); }

  /// Goes on with what is being dialed.
  void advance(int64_t now_ns);
  void deliver(int stream, ConnectedSocket socket);
  /// Nothing listens there any more: the process has ended.
  bool is_gone() const;
  /// Why the last attempt to connect has failed; empty: none has.
  std::string why() const;

 private:
  struct Dial {
    int stream;
    bootstrap::Dialer dialer;
  };

  std::vector<bootstrap::SocketAddress> addresses_;  // empty: the receiver
  Key key_{};
  std::list<Dial> dials_;
  std::map<int, ConnectedSocket> ready_;  // by stream
  bootstrap::Event event_;                // set while any is ready
};

}  // namespace ropewalk::nccl
