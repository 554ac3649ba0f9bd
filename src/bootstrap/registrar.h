// The other side of joining: one small message from every rank, one back. Rank 0's, and that of
// local registrars, which take those of ranks of their host, and of ranks of other hosts that rank
// 0 sends to them, and pass them on to rank 0.
#pragma once

#include <algorithm>
#include <bit>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/frame_stream.h"
#include "bootstrap/job_monitor.h"
#include "bootstrap/statements.h"

namespace ropewalk::bootstrap {

/// In jobs of several groups, ranks of one group that are on one host join through one of them: so
/// rank 0 neither answers nor holds a connection with each.
inline constexpr int kJoinGroupMin = 16, kJoinGroupMax = 128;
/// Ranks of a group in a job of `size`: there are four to eight groups, until they would be so
/// large that who leads one has more to do than rank 0.
constexpr int join_group_ranks(int size) {
  const auto eighth = static_cast<int>(std::bit_ceil(static_cast<uint32_t>(size)) / 8);
  return std::clamp(eighth, kJoinGroupMin, kJoinGroupMax);
}
constexpr int join_group(int rank, int size) {
  return rank / join_group_ranks(size);
}

/// Where rank 0 has so many connections, ranks of a group that has one already are sent to that: so
/// it needs descriptors for groups, not for hosts.
inline constexpr size_t kDirectJoinsMax = 64;

/// The control thread only. What is wrong goes to the monitor; the owner tells everybody with
/// `broadcast`.
class Registrar {
 public:
  /// `table` (of the job's size; row `own`, this rank's, is filled) receives the records.
  Registrar(PeerTable& table, int own, int64_t deadline_ns, JobMonitor& monitor,
            Statements& statements);

  /// An authenticated connection for joining, from the rank it says it is. Where the job has failed
  /// already it is told so at once.
  void add(ConnectedSocket socket, uint32_t from, std::string source);
  void prepare(PollSet& set, int64_t now_ns);
  void advance(const PollSet& set, int64_t now_ns);
  bool complete() const { return joined_ == table_.size(); }
  /// Whether the Join of every rank but those has come, at whatever time.
  bool all_have_come_but(const std::set<int>& ended) const;
  /// Rank 0's: whom it has sent that rank to; -1: to nobody.
  int leader_of(int rank) const { return leaders_[static_cast<size_t>(rank)]; }
  std::vector<int> missing() const;
  /// The earliest deadline of any rank that has joined, less a little, so that rank 0's answer
  /// reaches it in time.
  int64_t deadline_ns() const { return deadline_ns_; }

  /// Tells every rank its place in the tree. Once, when complete.
  void send_places(const WorldId& world, const Digest& table);

  struct Joined {
    Joiner joiner;
    int64_t deadline_ns;
    uint32_t entry;  // over which it came
  };
  /// A local registrar's: how many have come since `take_joined`, and those, for rank 0.
  size_t joined_here() const { return joined_here_.size(); }
  /// How many have come, this one not counted.
  size_t others() const { return joined_ - 1; }
  /// All of its group have come, rank 0 aside.
  bool has_group() const;
  std::vector<Joined> take_joined() { return std::exchange(joined_here_, {}); }
  /// Likewise, of one rank: false where that has not joined here.
  bool pass_on(const Place& place);

  void broadcast(const Bytes& frame);
  bool flushed() const;

 private:
  struct Entry {
    FrameStream stream;
    std::string source;
    uint32_t from;
    uint32_t number;               // none is used twice
    int64_t watched_until_ns = 0;  // what it passes on may follow its own
    std::vector<int> ranks = {};   // whose records have come: its own first
    bool is_redirected = false;    // to another rank: what comes here before it goes does not count

    bool has(int rank) const { return std::ranges::count(ranks, rank) != 0; }
  };
  /// In this round: those that still have to say who they are. The others have nothing to say
  /// unless they fail: now and then where they are many.
  bool is_watched(const Entry& entry, int64_t now_ns) const {
    const bool passes_on = entry.ranks.size() > 1 && entry.ranks.size() < kJoinGroupMax;
    return entry.ranks.empty() || passes_on || now_ns < entry.watched_until_ns || watches_all_ ||
           !entry.stream.idle();
  }
  bool is_local() const { return own_ != 0; }
  int size() const { return static_cast<int>(table_.size()); }
  /// Whether a rank that joins may come over the connection of that one.
  bool may_come_through(const Entry& entry, int rank) const;
  void handle(Entry& entry, const Frame& frame, int64_t now_ns);
  void note_came(uint32_t rank);
  /// Rank 0's: the connection of the rank through which the one that sends this, its first, is to
  /// join; null where it joins here.
  const Entry* leader_for(const Entry& entry, const Join& join) const;
  void enroll(Entry& entry, const std::shared_ptr<const Join>& join, int64_t now_ns);
  void enroll(Entry& entry, uint32_t size, const Joiner& joiner,
              std::shared_ptr<const PeerRecord> shared, int64_t now_ns);
  /// A local registrar's, of one that has gone: true where rank 0 has not heard of it yet.
  bool withdraw(const Entry& entry);
  /// Rank 0's, of a job that has not failed.
  bool waits_for_others() const {
    return !is_local() && !complete() && monitor_.failure() == nullptr;
  }
  /// Says whom it waits for, where that takes long.
  void tell_missing(int64_t now_ns);
  void fail(ErrorCode code, std::string reason, std::string advice, int peer);

  PeerTable& table_;
  const int own_;
  int64_t deadline_ns_;
  JobMonitor& monitor_;
  Statements& statements_;
  size_t joined_ = 1;
  uint32_t entries_made_ = 0;
  bool watches_all_ = false;
  int64_t watches_all_next_ns_ = 0;
  int64_t begun_ns_ = 0, tell_next_ns_ = 0;
  std::list<Entry> entries_;
  std::vector<Joined> joined_here_;  // a local registrar's
  std::vector<bool> come_;           // ranks whose Join has come
  std::vector<int> leaders_;         // by rank: whom it was sent to, once; else -1
  std::set<int> unfit_leaders_;      // from whom a rank has come back
};

}  // namespace ropewalk::bootstrap
