// One outgoing connection: addresses tried in order, then the handshake.
#pragma once

#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/auth.h"
#include "bootstrap/net.h"
#include "bootstrap/poll_set.h"
#include "bootstrap/sockets.h"

namespace ropewalk::bootstrap {

/// Of which a process that is known to end has answered at none of its addresses: it is gone.
inline constexpr int kRoundsToGone = 2;

/// One thread; never blocks. Tries every address, each with a short timeout, then again after a
/// growing pause, until connected or given up by its owner.
class Dialer {
 public:
  enum class State : uint8_t {
    working,
    connected,  // take() gives the socket
    yielded,    // the peer, the lower rank, is dialing this rank: wait for that
    refused,    // joining only: another key or protocol version; trying again is useless
  };

  /// `addresses` most reachable first. `names`, by address: which of the names that were given for
  /// the peer it belongs to, counted from 0. Empty: there was one.
  Dialer(std::vector<SocketAddress> addresses, const Hello& hello, const Key& key,
         std::vector<size_t> names = {});

  void prepare(PollSet& set);
  void advance(const PollSet& set, int64_t now_ns);
  State state() const { return state_; }
  ConnectedSocket take() { return {std::move(fd_), secrets_->dialers_keys()}; }
  const SocketAddress& address() const { return addresses_[current_]; }
  /// Since when this process has had no descriptor for a connection; 0: it has.
  int64_t exhausted_since_ns() const { return exhausted_since_ns_; }
  /// Why the last attempt failed, or why it was refused. Empty before.
  const std::string& why() const { return why_; }
  /// Nothing listens at its addresses, as their hosts have said in kRoundsToGone rounds: the
  /// process has ended.
  bool is_gone() const { return refused_rounds_ >= kRoundsToGone; }
  /// Another user's process listens there: trying again is useless.
  bool is_denied() const { return error_ == EACCES; }
  /// An attempt has failed and the next has not begun.
  bool is_pausing() const { return phase_ == Phase::pause && !why_.empty(); }
  /// The other end may have taken this connection already, and this end does not know.
  bool awaits_answer() const { return state_ == State::working && phase_ == Phase::answer; }
  /// How often all addresses have been tried.
  int rounds() const { return rounds_; }
  /// How often in a row none of the addresses had the job's key.
  int unanswered_rounds() const { return unanswered_rounds_; }
  /// True when some attempt found the job's key at the other end.
  bool found_job() const { return found_job_; }
  /// Where another job answered last. Empty: nowhere. Joining only.
  const std::string& other_job() const { return other_job_; }

 private:
  enum class Phase : uint8_t { pause, connecting, reply, answer };
  /// Where the other end takes the connection for made once it has sent its answer, this end gives
  /// it up no sooner: that may take long where many ranks share a CPU. The owner has a limit.
  bool is_for_good() const {
    return hello_.purpose == Purpose::socket || hello_.purpose == Purpose::tree;
  }
  void start(int64_t now_ns);
  void note_refusal(int error);
  void connect_done(int64_t now_ns);
  void send(ByteSpan bytes, Phase next, size_t answer_bytes, int64_t now_ns);
  void receive(int64_t now_ns);
  void prove(int64_t now_ns);
  void take_answer(int64_t now_ns);
  void obey(HandshakeResult result, int64_t now_ns);
  void reject_address(int64_t now_ns);
  void next_address(int64_t now_ns, std::string why);
  void refuse(std::string why);

  const std::vector<SocketAddress> addresses_;
  const std::vector<size_t> names_;  // by address
  Hello hello_;
  const Key key_;
  State state_ = State::working;
  Phase phase_ = Phase::pause;
  size_t current_ = 0;
  std::vector<bool> in_other_job_;  // by name: another job's key answered in this turn
  int64_t until_ns_ = 0;            // end of the pause, or of the phase's timeout
  int64_t pause_ns_;
  UniqueFd fd_;
  KeyPair own_;
  std::optional<HandshakeSecrets> secrets_;
  uint16_t peer_version_ = 0;
  Bytes received_;
  size_t wanted_bytes_ = 0;
  bool found_job_ = false;
  bool answered_ = false;  // in this round
  int rounds_ = 0, unanswered_rounds_ = 0;
  bool was_refused_ = false, was_silent_ = false;  // in this round: at some address
  int refused_rounds_ = 0;                         // in a row: refused, and nowhere else wrong
  std::string other_job_;
  std::string why_;
  int error_ = 0;  // errno of the last connect
  int64_t exhausted_since_ns_ = 0;
};

}  // namespace ropewalk::bootstrap
