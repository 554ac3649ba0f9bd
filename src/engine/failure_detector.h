// How a rank finds out that something is wrong with the others, and says who did what: ranks that
// call different things, peers that are lost, that have left, or that never answer.
//
// Headers, grants and probes carry the signature of their call, which is compared with this rank's.
// Two ranks that call different things may wait for each other without a message on its way: so an
// operation that stood still for 50 ms sends each peer that it waits for a probe, which says what
// it is doing, and again every 50 ms.
//
// A call may end before those who called something else are heard of: a root has sent its data, or
// two ranks are both roots. So a signature holds a digest of all calls before it. Where only that
// differs, probes go back, in turns, to the first call that does.
//
// Where nothing is wrong but that a wait lasts too long, who waits for whom tells whose fault it is
// (engine/culprits.h). So what this rank waits for is noted with the monitor as long as it lasts,
// and the control thread answers those who ask.
//
// Owned by the engine and used under its lock. Nothing here is on the path of a call that succeeds,
// except check_header and record.
#pragma once

#include <array>
#include <cassert>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bootstrap/monitor.h"
#include "engine/culprits.h"
#include "engine/operation.h"

namespace ropewalk {

class FailureDetector {
 public:
  /// All references outlive it.
  FailureDetector(LinkTable& links, const OperationQueues& queues, Monitor& monitor,
                  const Clock& clock);

  /// The job's failure, as soon as this rank knows it.
  const Failure* failure() const { return monitor_.failure(); }
  bool has_left(int peer) const { return monitor_.has_left(peer); }
  /// Whether this rank has reported one.
  bool has_failed() const { return failed_; }
  /// Ends the job.
  void fail(const Failure& failure) {
    failed_ = true;
    monitor_.report(failure);
  }
  /// Ends it, as peers may wait for this rank, which is at fault. Returns what they learn.
  Failure fail_here(const Error& error) {
    Failure failure = error.failure();
    failure.rank = failure.peer = links_.rank();
    fail(failure);
    return failure;
  }
  void fail_mismatch(const Signature& own, const Signature& other, int peer);
  /// Asks all ranks what they wait for: soon a wait will have lasted too long. To be repeated until
  /// then.
  void ask_who_waits(int64_t now_ns);
  /// Whether all have answered, of a wait that has lasted for `waited_ns`; true where nobody could.
  bool all_have_answered(int64_t now_ns, int64_t waited_ns) const;
  /// `operation` has waited too long. Names the ranks at which who waits for whom ends, or those
  /// that wait for each other; where neither is known, a peer that it waits for.
  void fail_timeout(const Operation& operation, int64_t waited_ns);

  /// Threads in a wait that lasts, more or fewer by `change`: for all parts of `group`; for all in
  /// which peers wait for this rank; for a message of `channel` of any rank. They allocate nothing
  /// and make no system call.
  void count_awaiters(const Group& group, int change);
  void count_leavers(int change);
  void count_receivers(int channel, int change);
  /// Somebody is told of the end of `group`, from now on.
  void note_callback(const Group& group);
  /// Notes with the monitor what this rank waits for by now.
  void note_waits();

  /// Numbers a collective that starts, and remembers it.
  void record(Signature& signature);
  /// The collectives started so far, and the last of them in words; empty where there is none.
  const CallHistory& calls() const { return calls_; }
  std::string last_call() const {
    return calls_.count == 0 ? "" : describe(history_[(calls_.count - 1) % kHistory]);
  }

  /// Whether a message is the one that `operation` expects; fails the job where not. Where only
  /// what was called before differs the message stays, and check_stalled finds out what that was.
  bool check_header(const Operation& operation, const Link& link, const EagerHeader& header,
                    MessageKind kind, size_t bytes);
  /// `peer`, with which there is a link, has sent a probe.
  void check_probe(int peer);
  /// For who waits for a message of any rank: fails the job where nobody can send one any more.
  void check_senders();
  /// Called now and then while an operation waits and nothing moves (`now` from the clock): asks
  /// peers what they are doing, notices peers that left. Cheap, not for every turn.
  void check_stalled(int64_t now_ns);
  /// A peer that waits for this rank in another call cannot ask before this side connects, too.
  void answer_connects();
  /// The transport has lost `peer`.
  void note_lost(int peer);

  /// "waiting for rank 3 to send block 2 (1 of 4 slices here)".
  std::string what_blocks(const Operation& operation) const;
  /// The same for the oldest operation under way, with its name; empty where there is none.
  std::string what_blocks() const;

 private:
  static constexpr size_t kHistory = 64;

  /// The first in the order of calls; null: none is under way.
  const Operation* oldest_collective() const;
  /// That `group` is awaited by now.
  void stamp(const Group& group) const;
  /// Since when some caller waits for `active`, or for what waits behind it; 0: none does.
  int64_t awaited_since_ns(const Operation& active) const;
  Wait wait_of(const Operation& operation) const;
  /// What ranks have said since `since_ns`, and what this one knows of itself; empty where none
  /// has.
  std::vector<KnownRank> known_ranks(int64_t since_ns) const;
  /// What to follow, of `operation` that has lasted for too long.
  std::vector<Wait> waits_behind(const Operation& operation) const;
  Culprits culprits_of(const Operation& operation, int64_t waited_ns) const;
  /// Of one of the last kHistory collectives, or of one that has not ended.
  const Signature* known_signature(uint32_t sequence) const;
  /// Compares what `peer` called with what this rank called as the same operation. Where only what
  /// came before differs it tells the peer about the call before: they go back, in turns, to the
  /// first call that differs. `waits`: the peer may still answer.
  void compare_calls(int peer, const Signature& theirs, bool waits);
  /// Of a peer that left, while this rank goes on: whether this rank had called the same by then.
  void compare_calls_of_left(int peer);
  /// Messages that wait to be taken say what their senders called, perhaps not what this rank did.
  /// `operation` stands still since moved_ns.
  void check_arrivals(const Operation& operation, int64_t now_ns);
  /// Asks a peer what it is doing, unless it has gone.
  void probe(const Operation& operation, Link& link, int64_t now_ns);
  /// Also of those that nothing here waits for: they may wait for what they were sent, and cannot
  /// know that it will not come.
  void report_silent_peers(int64_t now_ns);
  /// For a peer that is lost. Where the reason lies at this end this rank is at fault.
  bool is_own_fault(const Link& link) const;
  void fail_lost(std::string operation, Link& link);
  /// Of a peer that has left, as this rank knows since `since_ns`: whether what it sent may still
  /// arrive, or wait here. The link tells (Link::has_ended), also one that is still being made: who
  /// has left answers, but perhaps not for ever.
  bool may_still_come(int peer, int64_t since_ns, int64_t now_ns) const;
  /// It has left the job or, as its link tells, this communicator.
  bool sends_no_more(int peer) const {
    const Link* const link = links_.find(peer);
    return monitor_.has_left(peer) || (link != nullptr && link->has_ended());
  }
  /// Whom `operation` waits for; nobody where it waits for its turn. Valid until the next call.
  const std::vector<Blocker>& blockers_of(const Operation& operation) const;

  struct PeerState {
    int64_t lost_ns = 0;  // when the transport lost the peer, or last heard of it; 0: not lost
    int64_t left_ns = 0;  // when this rank saw that the peer had left; 0: not
  };
  LinkTable& links_;
  const OperationQueues& queues_;
  Monitor& monitor_;
  const Clock& clock_;
  const size_t waits_max_;  // that others are told of
  bool failed_ = false;
  int64_t asked_ns_ = 0;
  CallHistory calls_;
  std::array<Signature, kHistory> history_{};  // of the last started collectives
  std::vector<PeerState> peers_;
  struct Waiters {
    int threads = 0;
    int64_t since_ns = 0;
    int64_t until_ns = 0;  // of the last that ended
  };
  Waiters leavers_;
  std::array<Waiters, kChannels> receivers_;
  std::vector<Wait> waits_, noted_waits_;  // being gathered, and what the monitor has
  mutable std::vector<Blocker> blockers_;  // see blockers_of: waiting allocates nothing
};

/// Whether a message of `channel` has arrived for which no recv was started.
bool has_unexpected_message(Link& link, const OperationQueues& queues, int channel);

}  // namespace ropewalk
