// Which sockets between ranks exist, and who dials when both sides want one.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/poll_set.h"
#include "bootstrap/sockets.h"
#include "bootstrap/wire.h"

namespace ropewalk::bootstrap {

/// The SocketSource of a World: the table and its rule; the control thread does the dialing.
///
/// The rule for simultaneous dials, decided under one mutex per process: a lower rank that has
/// begun to dial refuses the higher's dial (HandshakeResult::yield), and the higher waits; a lower
/// rank that has not takes the higher's dial, and then never dials itself. A higher rank always
/// takes the lower's dial. So the lower rank alone decides, and decides once: exactly one
/// connection.
class SocketBroker final : public SocketSource {
 public:
  struct SocketId {
    int peer = -1, stream = 0;
    auto operator<=>(const SocketId&) const = default;
  };

  SocketBroker(int rank, int size, int64_t timeout_ns);

  // SocketSource; any thread. `request` throws Error(invalid_argument) for a peer or stream that
  // cannot be.
  void request(int peer, int stream) override;
  ConnectedSocket take(int peer, int stream) override;
  std::vector<int> offers() const override;
  int event_fd() const override { return ready_event_.fd(); }
  void use_networks(const std::vector<std::string>& networks) override;

  /// Empty: any will do.
  std::string network_of(int stream) const;

  // The control thread only.

  /// Set when `to_dial` has something new.
  Event& news() { return news_; }
  /// The links requested since the last call, which are to be dialed now.
  std::vector<SocketId> to_dial();
  /// Decides about an incoming dial. After `accepted` the caller must call `deliver`, or `lost`
  /// where the socket is of no use.
  HandshakeResult claim(SocketId link);
  void deliver(SocketId link, ConnectedSocket socket);
  void lost(SocketId link);
  /// The peer refused our dial because it dials itself.
  void yielded(SocketId link);
  /// False once the link no longer needs this rank's dialer.
  bool is_dialing(SocketId link) const;
  /// These ranks have gone, and are not to be linked with.
  void forget(const std::vector<int>& peers);
  /// When the timeout of the next link that was requested and is not there ends, and which that
  /// is; INT64_MAX and peer -1: all are there.
  std::pair<int64_t, SocketId> next_deadline() const;

 private:
  enum class State : uint8_t {
    idle,
    dialing,   // this rank dials
    waiting,   // this rank, the higher, was told that the lower dials
    arriving,  // claimed, not yet delivered
    ready,     // the socket waits for take()
    taken,
  };
  struct Entry {
    State state = State::idle;
    int64_t deadline_ns = INT64_MAX;  // of a request that is not yet fulfilled
    ConnectedSocket socket;
  };

  const int rank_, size_;
  const int64_t timeout_ns_;
  mutable std::mutex mutex_;  // guards all below
  std::map<SocketId, Entry> entries_;
  std::vector<SocketId> to_dial_;
  std::vector<std::string> networks_;
  std::set<int> offers_;  // peers whose stream 0 is in State::ready
  int ready_ = 0;         // entries in State::ready
  Event ready_event_;     // set while ready_ > 0
  Event news_;
};

}  // namespace ropewalk::bootstrap
