// The listening sockets of a rank, and the strangers in front of them.
#pragma once

#include <array>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/auth.h"
#include "bootstrap/poll_set.h"
#include "bootstrap/sockets.h"

namespace ropewalk::bootstrap {

/// A connection whose dialer has proved that it has the key; it waits for an Answer.
struct AuthenticatedSocket {
  UniqueFd fd;
  Hello hello;
  HandshakeSecrets secrets;
  std::string source;  // its address

  /// Once accepted.
  ConnectedSocket connected() { return {std::move(fd), secrets.acceptors_keys()}; }
};

/// Sends the result; false where the connection is gone.
bool send_result(const AuthenticatedSocket& incoming, HandshakeResult result);

/// Accepts and authenticates. One thread; never blocks: each connection is a small state machine
/// with a deadline, so that a stranger who says nothing, too little, too much or nonsense costs
/// nobody anything. There are at most kHalfOpenMax at a time at each listener; then the next makes
/// the oldest of the source that has the most go, once that is kSparedNs old, and waits in the
/// kernel's queue until then. Each source of strangers is logged once.
///
/// Without a descriptor for the next it takes one that it keeps for that: only so it learns whether
/// that is a stranger or a rank, which is told to come again.
class Acceptor {
 public:
  /// `coordinator`: rank 0's other sockets, at which the job joins; elsewhere none at first.
  Acceptor(std::vector<UniqueFd> own, std::vector<UniqueFd> coordinator, int rank,
           const Key& join_key);

  static constexpr size_t kHalfOpenMax = 256;
  static constexpr int64_t kSparedNs = 100 * kMillisecond_ns;

  /// Another socket at which ranks join: of this host.
  void listen_for_joins(UniqueFd listener) {
    close_on_fork(listener.get());
    listeners_[kCoordinator].push_back(std::move(listener));
  }
  /// Ranks of other hosts may join at this rank's own sockets, too.
  void take_joins() { takes_joins_ = true; }
  /// Once all have joined. Others of this process may then accept there, for the next job.
  void close_coordinator() {
    listeners_[kCoordinator].clear();
    takes_joins_ = false;
  }

  /// Links inside the world wait until this is known.
  void set_session_key(const Key& key) { session_key_ = key; }
  void prepare(PollSet& set, int64_t now_ns);
  std::vector<AuthenticatedSocket> advance(const PollSet& set, int64_t now_ns);
  /// Since when there has been no descriptor for ranks that came; 0: there is.
  int64_t exhausted_since_ns() const { return exhausted_since_ns_; }
  /// Somebody has connected and not yet said all that it has to.
  bool has_half_open() const { return !pending_.empty(); }
  /// How many connections were refused, and where the last came from.
  int refused() const { return refused_; }
  const std::string& last_refused() const { return last_refused_; }

 private:
  enum Listener : uint8_t { kOwn = 0, kCoordinator = 1 };  // of listeners_
  struct HalfOpen {
    UniqueFd fd;
    Listener listener = kOwn;
    bool is_on_spare = false;
    bool is_new = true;  // not in the poll set yet
    std::string source;
    int64_t since_ns = 0;
    Bytes received;
    std::optional<Hello> hello;
    std::optional<HandshakeSecrets> secrets;  // once the Reply is sent
  };
  enum class Progress : uint8_t { waiting, complete, over };

  void keep_spare();
  UniqueFd accept_one(int listener_fd, bool& is_on_spare);
  void accept_all(int listener_fd, Listener listener, int64_t now_ns);
  bool is_full(Listener listener) const;
  /// Who goes first where there is no room.
  std::list<HalfOpen>::iterator oldest_of_the_most(Listener listener);
  /// When there is room for one more.
  int64_t room_at_ns(Listener listener);
  /// False where nobody can be made to go.
  bool make_room(Listener listener, int64_t now_ns);
  Progress step(HalfOpen& connection, bool readable);
  bool serves(Listener listener, const Hello& hello) const;
  Progress reply(HalfOpen& connection, const Key& key);
  Progress check_proof(const HalfOpen& connection);
  const Key* key_for(const Hello& hello) const;
  /// Reads up to `want` bytes in all; `waiting` until they are there.
  Progress fill(HalfOpen& connection, size_t want);
  Progress refuse(const HalfOpen& connection, const char* why, bool suspicious);

  std::array<std::vector<UniqueFd>, 2> listeners_;  // by Listener
  const int rank_;
  const Key join_key_;
  std::optional<Key> session_key_;
  bool takes_joins_ = false;
  UniqueFd spare_;  // for one more connection
  int64_t exhausted_since_ns_ = 0;
  bool exhaustion_told_ = false;
  int64_t accept_again_ns_ = 0;  // after accept() failed for want of descriptors
  int replies_left_ = 0;         // in this call of advance(): each takes some 100 us
  std::list<HalfOpen> pending_;
  int refused_ = 0;
  std::string last_refused_;
  std::set<std::string> logged_;
};

}  // namespace ropewalk::bootstrap
