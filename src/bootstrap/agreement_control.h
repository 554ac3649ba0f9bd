// The agreements of an epoch's members, over the links of the control tree where two of them have
// one, else over connections made for them.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "bootstrap/agreement.h"
#include "bootstrap/decision_log.h"
#include "bootstrap/dialer.h"
#include "bootstrap/frame_stream.h"
#include "bootstrap/tree.h"

namespace ropewalk::bootstrap {

/// The control thread only. It answers the others about agreements that are over here as long as it
/// lives, so it should as long as some may not have heard.
class AgreementControl {
 public:
  using Dial = std::function<std::unique_ptr<Dialer>(int peer)>;
  /// What a peer's host does not acknowledge for `link_timeout` is lost. `tree` outlives it.
  AgreementControl(Dial dial, std::chrono::nanoseconds link_timeout, Tree& tree)
      : dial_(std::move(dial)), link_timeout_(link_timeout), tree_(tree) {}

  /// The next, in the order in which all members begin them: `setup.instance` is set here.
  void begin(Agreement::Setup setup, int64_t deadline_ns);
  /// This rank begins none any more: who waits for it in one is told.
  void close() { is_closed_ = true; }
  /// The process of `peer` has ended, or takes part no more.
  void note_ended(int peer);
  /// `peer` has dialed this rank.
  void hear(int peer, ConnectedSocket socket);
  /// A frame of an agreement has come over the tree.
  void take(int peer, const Frame& frame, int64_t now_ns);

  void prepare(PollSet& set);
  void advance(const PollSet& set, int64_t now_ns);
  /// Of the agreement that was begun; once.
  std::optional<AgreementEnd> take_end() { return std::exchange(end_, std::nullopt); }
  /// Ranks whose processes have ended, or gave up, as connections told.
  const std::set<int>& ended() const { return ended_; }
  bool flushed() const;

 private:
  struct AgreementConnection {
    int peer;
    std::unique_ptr<Dialer> dialer;  // until there is a stream
    std::optional<FrameStream> stream;
  };
  void add_connection(AgreementConnection& link, ConnectedSocket socket);
  static void tell_decision(FrameStream& stream, uint32_t instance, const Decision& decision);
  bool is_over(AgreementConnection& link, const PollSet& set, int64_t now_ns);
  void look_at_tree();
  void acknowledge(int peer) const;
  void answer_alone(int peer, const AgreementMessage& message);
  bool has_connection(int peer, bool open) const;
  void dial(int peer);
  void send(int peer, const AgreementMessage& message);
  void send_messages();
  void check_end(int64_t now_ns);

  const Dial dial_;
  const std::chrono::nanoseconds link_timeout_;
  Tree& tree_;
  std::set<int> neighbours_;  // in the tree, when the last agreement was begun, and still
  std::list<AgreementConnection> connections_;
  std::set<int> ended_;
  uint32_t begun_ = 0;  // agreements
  std::optional<Agreement> agreement_;
  int64_t deadline_ns_ = 0;
  std::optional<AgreementEnd> end_;
  bool is_over_ = true;  // the last that was begun
  bool is_closed_ = false;
  DecisionLog decisions_;                  // others' late questions are answered so
  std::map<int, AgreementMessage> early_;  // of the next instance: the last from each peer
};

}  // namespace ropewalk::bootstrap
