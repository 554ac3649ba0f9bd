// Connected sockets between ranks, for transports and control; see socket_broker.h for the real
// one.
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/secure_channel.h"
#include "ropewalk/status.h"

namespace ropewalk {

/// A connected stream socket, and the keys of what goes over it.
struct ConnectedSocket {
  UniqueFd fd;
  ConnectionKeys keys;

  explicit operator bool() const { return static_cast<bool>(fd); }
};

/// Gives at most one connected, mutually authenticated, non-blocking stream socket per
/// (peer, stream). Symmetric: either side or both may ask; exactly one connection results. Its end
/// may stay unread for any time: that a peer has died in silence is the monitor's to notice.
/// Thread-safe.
class SocketSource {
 public:
  virtual ~SocketSource() = default;
  /// Begins connecting. Returns at once or after a local connect; harmless when repeated. A failure
  /// to connect goes to the monitor as peer_lost.
  virtual void request(int peer, int stream) = 0;
  /// The socket, once there is one; empty: not yet.
  virtual ConnectedSocket take(int peer, int stream) = 0;
  /// The peers whose first stream `take` would give: perhaps only they have asked for it. Cheap
  /// where there are none.
  virtual std::vector<int> offers() const = 0;
  /// A descriptor readable when a new socket may be taken (shared with other wake-ups; the reader
  /// need not clear it: take() does when nothing is left). -1: none.
  virtual int event_fd() const = 0;
  /// Before any request: stream i between two ranks is to go through networks[i modulo their
  /// number], "10.77.0.0/24", where both have an address there. Every rank gives the same ones.
  virtual void use_networks(const std::vector<std::string>& /*networks*/) {}
};

}  // namespace ropewalk
