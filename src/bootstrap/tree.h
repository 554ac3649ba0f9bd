// This rank's links in the control tree: heartbeats, failures, orderly leaves.
#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/death_watch.h"
#include "bootstrap/frame_stream.h"
#include "bootstrap/job_monitor.h"
#include "bootstrap/statements.h"

namespace ropewalk::bootstrap {

// The control tree: rank 0 is the root, every rank has at most 8 children. In large jobs rank 0 has
// 2: all join at it, and it would pass the table of all of them on to each child.
inline constexpr int kTreeArity = 8;
constexpr int root_arity(int size) {
  return size <= 64 ? kTreeArity : 2;
}
/// Ranks that wait for the same ask at the same time: a question is passed on once in so long.
inline constexpr int64_t kQuestionInterval_ns = 25 * kMillisecond_ns;

/// Of a rank in a job of `size`; -1: the root's.
constexpr int tree_parent(int rank, int size) {
  assert(rank >= 0 && rank < size);
  if (rank == 0) return -1;
  return (rank + kTreeArity - 1 - root_arity(size)) / kTreeArity;
}
/// From the first child of `rank` to what follows its last.
constexpr std::pair<int, int> tree_children(int rank, int size) {
  assert(rank >= 0 && rank < size);
  const int root = root_arity(size);
  const int begin = rank == 0 ? 1 : root + 1 + kTreeArity * (rank - 1);
  const int end = begin + (rank == 0 ? root : kTreeArity);
  return {std::min(begin, size), std::min(end, size)};
}
/// Whom a rank whose parent has gone links with: the nearest ancestor that is there, or else the
/// lowest rank; -1: it is that.
template <class IsThere>
int parent_among(int rank, int size, const IsThere& is_there) {
  for (int other = tree_parent(rank, size); other >= 0; other = tree_parent(other, size))
    if (is_there(other)) return other;
  for (int other = 0; other < rank; ++other)
    if (is_there(other)) return other;
  return -1;
}

/// The control thread only.
///
/// A failure, once the monitor has one, is sent over every link, and every rank passes on the first
/// that it hears of and that is genuine. A link that breaks, or whose other end stays silent,
/// without that neighbour having left, is such a failure. A leave is flooded likewise, once per
/// rank.
///
/// A rank that has left relays for the others as long as it waits for them, which is not for ever.
/// When it goes, its children look for another parent: the nearest ancestor that is there, or else
/// the lowest rank. Parents have lower numbers than their children, so there is no ring.
class Tree {
 public:
  struct Inbound {
    int peer;
    Frame frame;
  };

  /// `table` gives names to messages; it may fill up later, must outlive the tree and has `size`
  /// entries. `death_watch`, which outlives it too, says what ranks that have ended knew.
  Tree(int rank, int size, std::chrono::nanoseconds timeout, std::chrono::nanoseconds link_timeout,
       JobMonitor& monitor, Statements& statements, const PeerTable& table,
       const DeathWatch& death_watch);

  /// Takes a new link. What is known already, of a failure or of ranks that have left, is sent over
  /// it at once.
  void add(int peer, ConnectedSocket socket, int64_t now_ns);
  /// Whom this rank may link with in place of a parent that has left and gone, the nearest first;
  /// empty where it has a parent, or is the lowest rank that is left.
  std::vector<int> parents_wanted() const;
  /// Nothing listens at `peer` any more, which has left, or this rank has.
  void note_gone(int peer);
  /// The monitor's next epoch has begun, without `departed`. Links that stay have said nothing of
  /// it yet. Where the parent has gone, or the link with it, another is wanted. Returns whose links
  /// have closed since the failure, as those of the dead do.
  std::set<int> renew(const std::vector<int>& departed, int64_t now_ns);
  /// `peer` has said the failure of this epoch, before this rank was in it.
  void note_informed(int peer);
  bool has(int peer) const;
  /// Those in touch.
  std::set<int> neighbours() const;
  /// Has this kernel acknowledge at once what `peer` has sent.
  void acknowledge(int peer) const;
  /// The process of `peer` has ended, as its kernel says; its connections may stay open for long.
  /// False where it is no neighbour: then nothing is done.
  bool note_died(int peer);
  /// Of one that is none.
  void report_death(int rank);
  void send(int peer, const Bytes& frame);
  /// To every neighbour except one.
  void flood(const Bytes& frame, int except = -1);

  void prepare(PollSet& set);
  /// Sends what was given to `send` and `flood`: before anybody is told what that is about.
  void flush();
  /// Handles what arrived; gives back the frames that are not the tree's own business (those of
  /// joining), in order per peer.
  std::vector<Inbound> advance(const PollSet& set, int64_t now_ns);

  /// Spreads the monitor's failure, once.
  void spread_failure();
  bool failure_is_spread() const { return failure_spread_; }
  /// Neighbours that have ended without having sent the failure, or have not sent it back in time,
  /// since the last call: they may not have passed it on.
  std::vector<int> take_uninformed(int64_t now_ns);
  /// Asks where the monitor wants to know who waits for whom.
  void spread_question();
  /// Announces that this rank leaves, once.
  void announce_leave(const CallsMade& calls);
  /// Every rank has left, or there is nobody to hear more from: who went may not have passed on
  /// that others had left, and they may be gone as well.
  bool all_left() const { return awaited_ == 0 || is_alone(); }
  /// Everything sent has been acknowledged, and a failure has come back from all neighbours that
  /// are not taken for unaware.
  bool flushed() const;

  /// "rank 3 (host, pid 12)".
  std::string describe(int rank) const;
  /// `peer` has sent what makes no sense.
  void protocol_fault(int peer);

 private:
  struct Edge {
    int peer;
    FrameStream stream;
    int64_t heard_ns;
    int64_t silence_max_ns;
    bool is_local;  // both ends are on this host
    bool open = true;
    bool given_up = false;              // it has been silent for too long
    bool knows = false;                 // has sent the job's failure
    bool is_uninformed = false;         // as take_uninformed has told
    std::vector<int> held_leaves = {};  // of ranks; still to be sent
    int64_t held_since_ns = 0;          // the first of them
  };
  void handle(Edge& link, Frame& frame, std::vector<Inbound>& others);
  void handle_failure(Edge& link, const Frame& frame);
  void handle_leave(const Edge& link, const Frame& frame);
  /// Of one that was not known: to be passed on over all links but that to `from`.
  void hold_leave(int rank, int from);
  void spread_leaves();
  /// Of this rank's part of the tree, as it was when all joined.
  bool is_below(int rank) const;
  void handle_waits(const Edge& link, const Frame& frame);
  /// Passes the question on, and answers it, unless that was done a moment ago. `from`: the
  /// neighbour that asks; -1: this rank does.
  void answer_question(int from);
  void beat(int64_t now_ns);
  int64_t find_beat_ns() const;
  void check_silence(Edge& link, int64_t now_ns);
  /// At once where the other end is on this host.
  void report_silent(const Edge& link, std::string reason, const char* advice);
  void close(Edge& link, std::string reason);
  /// The job's, where the process of `peer` has ended: that, or what it knew as it ended.
  Failure failure_at_end_of(int peer, std::string reason) const;
  /// One neighbour at least is gone, all others have left, and for a while no other has come, nor
  /// any news.
  bool is_alone() const;

  const int rank_, size_;
  const int64_t beat_min_ns_;             // between two of our own heartbeats; on a full host more
  const int64_t silence_max_ns_;          // longest time without one
  const int64_t network_silence_max_ns_;  // so that the kernel notices first that a path is cut
  JobMonitor& monitor_;
  Statements& statements_;
  const PeerTable& table_;
  const DeathWatch& death_watch_;
  std::list<Edge> links_;
  std::vector<bool> gone_;          // has left, and its link is closed
  std::set<int> lost_;              // has not left, and its link has closed since the failure
  std::vector<int> uninformed_;     // for take_uninformed
  const int64_t hold_leaves_ns_;    // before one is passed on, at most
  std::vector<Bytes> leaves_;       // frames of those that have left
  bool heard_leaves_ = false;       // in this round
  int parent_;                      // -1: none
  int awaited_;                     // how many have not left
  int awaited_below_ = 0;           // of those below this rank, and itself
  int64_t beat_ns_ = beat_min_ns_;  // between this one and the next
  int64_t next_beat_ns_ = 0;
  int64_t advanced_ns_ = 0;
  int64_t gone_ns_ = 0;  // when the last neighbour went, or another leave came after that
  bool failure_spread_ = false;
  int64_t spread_ns_ = 0;
  int64_t answered_ns_ = 0;  // a question
};

}  // namespace ropewalk::bootstrap
