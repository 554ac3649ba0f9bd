// Start here.
//
// A Communicator joins this process, as one rank of `size()`, with the other ranks of the job, and
// runs collectives among them:
//
//   auto comm = ropewalk::Communicator::create();          // rank and size from the launcher
//   auto gradients = comm->allocate<float>(1 << 20);       // registered: nothing is copied
//   comm->all_reduce(gradients.span(), ropewalk::kAvg);
//
// Every rank must call the same operations, with the same counts, types, ops and roots, in the same
// order; else every rank gets Error(mismatch) that says who called what: from this call, or, where
// it ended before the others were heard of, from the next one or from `leave`. Point-to-point send
// and recv are ordered between each pair of ranks only.
//
// Threads: any thread may call; calls from several threads at once are serialized, and their order
// must then be made equal on all ranks by the caller.
// Forked children: the communicator stays the parent's. In the child every call throws
// Error(invalid_argument), and destructors do nothing.
// Errors: every call may throw Error. After peer_lost, timeout, mismatch, aborted or revoked the
// communicator is broken: buffers of unfinished operations have unspecified content and every later
// call throws the same error, but `shrink` and `grow`, which give another of those who are left,
// and `agree`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "ropewalk/buffer.h"
#include "ropewalk/call.h"
#include "ropewalk/epoch.h"
#include "ropewalk/state_sync.h"
#include "ropewalk/status.h"
#include "ropewalk/types.h"

namespace ropewalk {

/// How to join. What is unset comes from ROPEWALK_* variables, then from the launcher (Open MPI,
/// MPICH, Slurm, torchrun), then from defaults (`ropewalk env` prints all).
struct Options {
  std::optional<int> rank;
  std::optional<int> size;
  /// "host:port" at which rank 0 listens; several, with commas between, are tried in turn.
  std::optional<std::string> coordinator;
  /// A socket that listens there already. Rank 0 only; in an elastic job any rank on its host.
  std::optional<int> coordinator_fd;
  std::optional<std::string> key;                   // the job's secret, the same on every rank
  std::optional<std::string> transport;             // "auto", "shm", "tcp", "verbs", "ucx"
  std::optional<bool> secure;                       // seal what is sent between hosts; default off
  std::optional<std::chrono::nanoseconds> timeout;  // of every wait; default 30 s
  std::optional<bool> progress_thread;  // drive started operations in the background; default on
  std::optional<int> progress_cpu;      // bind progress threads to this CPU; on_done runs there
  std::optional<std::chrono::nanoseconds> join_timeout;  // of joining; default the timeout
  /// Processes may join while the job runs (Communicator::grow): the first rank on a host of one of
  /// the coordinator's addresses listens there as long as it lives. Alike on every rank.
  std::optional<bool> elastic;
  /// This process joins a job that runs, which is elastic, with its key: `create` returns once the
  /// members have called `grow`. Rank and size do not count.
  std::optional<bool> join_running;
  /// Who may go on after a failure (Communicator::shrink): more than half of the ranks; with
  /// `tie_breaker` also half of them, the lowest among them; in any case `quorum_min` at least.
  std::optional<bool> tie_breaker;  // default false
  std::optional<int> quorum_min;    // default 1
  /// With `join_running`: how long to wait for the members to call `grow`; default: no limit.
  std::optional<std::chrono::nanoseconds> admission_timeout;
  /// Once it is asked to stop, `create` waits for no other process any more and ends with
  /// Error(aborted), which ranks that were joining too hear as well. It still waits for the
  /// resolver and the launcher, and once all have joined for what they measure or agree upon then,
  /// at most `timeout`: it may succeed.
  std::optional<std::stop_token> stop;
};

class Group;  // src/engine/operation.h

namespace internal {
/// What Work and Plan have in common.
class Handle {
 public:
  Handle() = default;
  /// `owner` holds what the operation runs on.
  Handle(std::shared_ptr<const void> owner, std::shared_ptr<Group> group)
      : owner_(std::move(owner)), group_(std::move(group)) {}
  Handle(Handle&&) noexcept = default;
  Handle& operator=(Handle&&) noexcept;

 protected:
  ~Handle();

  std::shared_ptr<const void> owner_;  // goes after the operation
  std::shared_ptr<Group> group_;  // Work's: atomic; without parts once it is known to have ended
};
}  // namespace internal

/// A started operation. Destroying it unfinished waits for it (with the communicator's deadline).
/// May outlive its Communicator; what has not ended by then throws Error(invalid_argument). After
/// the end test and wait go on to tell the same. Movable. Threads: any, several at once.
class Work : public internal::Handle {
 public:
  using Handle::Handle;

  /// True when finished; throws Error when failed. Makes progress.
  bool test();
  /// Waits until finished, at most for `timeout` (default: the communicator's); throws Error.
  void wait(std::optional<std::chrono::nanoseconds> timeout = {});
  /// Calls `done` once: with null when this has finished, with the failure when it never will. A
  /// progress thread calls it, and another one takes over meanwhile, so `done` may block, start
  /// operations and wait for them, and leave the communicator; it must not throw. Where this has
  /// ended already, the caller's thread calls it before on_done returns. Where the system gives no
  /// thread, the thread that finishes the operation calls it.
  /// At the deadline the operation fails as in `wait`, unless a thread waits for it, which has a
  /// deadline of its own.
  void on_done(std::function<void(const Failure*)> done,
               std::optional<std::chrono::nanoseconds> timeout = {});
  /// The same as `wait` for at most `limit`, without failing then: true when finished. Throws Error
  /// when it has failed. Leaves its CPU to threads that compute there: for one that merely follows
  /// a call.
  bool wait_for(std::chrono::nanoseconds limit);
};

/// A call fixed once and run many times: buffers, schedule and staging are resolved, so that a run
/// allocates nothing (between hosts some may: docs/tuning.md, "Plans that learn"). Its memory must
/// outlive it. It may outlive its Communicator; runs then throw
/// Error(invalid_argument). At most one run of a plan is under way at a time. Movable; destroying
/// it waits for a run that is under way.
class Plan : public internal::Handle {
 public:
  using Handle::Handle;

  void run();  // start, then wait
  void start();
  bool test();
  void wait(std::optional<std::chrono::nanoseconds> timeout = {});
  Algorithm algorithm() const;  // what the planner chose
};

class Communicator {
 public:
  /// Joins the job; returns when all ranks have. Throws Error within the timeout. Called again it
  /// joins another one of the same ranks, with connections and memory of its own: `split` and
  /// `create_group` make communicators that share those.
  static std::unique_ptr<Communicator> create(const Options& options = {});
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Leaves the job, as `leave`. What it has given out may go later.
  ~Communicator();

  /// Ends what it has started, except receives, leaves the job and waits until all ranks do; not
  /// where it is broken, nor while an exception is being thrown: then the others learn that this
  /// rank has gone.
  /// Afterwards calls throw Error(invalid_argument). Throws Error(mismatch) where ranks made other
  /// calls than each other and no call has thrown it; the destructor logs it. Not while another
  /// thread is in a call. The second call does nothing.
  void leave();

  int rank() const;
  int size() const;
  int local_rank() const;  // among the ranks of this host
  int local_size() const;
  /// How the ranks are reached: "shm", "tcp", "verbs", "ucx", "ucx/shm", "shm+tcp", ..., or "self"
  /// for a job of one. Equal on all ranks.
  std::string transport() const;

  /// Registered memory (see buffer.h). Not collective.
  template <class T>
  Buffer<T> allocate(size_t size) {
    auto memory = allocate_elements(size, sizeof(T));
    T* data = static_cast<T*>(memory.get());
    return Buffer<T>(std::move(memory), data, size);
  }

  // Any call, three ways.
  /// `timeout`: default the communicator's.
  void run(const Call& call, std::optional<std::chrono::nanoseconds> timeout = {});
  /// The same without a deadline, for a caller that has other things to keep going: while it waits
  /// it calls `meanwhile`, which must not throw, about every 50 µs, or every ms where that lasts.
  void run_beside(const Call& call, const std::function<void()>& meanwhile);
  /// Returns at once; between hosts only while fewer than 1,000 calls of its kind are under way, or
  /// it may wait for some of them.
  Work start(const Call& call);
  Plan plan(const Call& call);
  /// Many calls as one operation: all are started, then the handle waits for all. Small
  /// all_reduces of equal type and op are fused into one. Ranks group their collectives alike.
  /// No calls: a Work that has ended.
  Work start_group(std::span<const Call> calls);

  // The common calls on any contiguous range of elements: span, vector, array, Buffer. In place
  // where only one range is given. To start or plan one: `comm->start(Call::all_reduce(data))`.
  void all_reduce(MutableElements auto&& inout, ReduceOp op = kSum) {
    run(Call::all_reduce(inout, op));
  }
  template <Elements In, MutableElementsLike<In> Out>
  void all_reduce(In&& in, Out&& out, ReduceOp op = kSum) {
    run(Call::all_reduce(in, out, op));
  }
  /// `in` is size() parts of as many elements as `out`.
  template <Elements In, MutableElementsLike<In> Out>
  void reduce_scatter(In&& in, Out&& out, ReduceOp op = kSum) {
    run(Call::reduce_scatter(in, out, op));
  }
  template <Elements In, MutableElementsLike<In> Out>
  void all_gather(In&& in, Out&& out) {
    run(Call::all_gather(in, out));
  }
  void broadcast(MutableElements auto&& inout, int root = 0) { run(Call::broadcast(inout, root)); }
  /// `out` is written on `root` only and may be empty elsewhere.
  template <Elements In, MutableElementsLike<In> Out>
  void reduce(In&& in, Out&& out, int root = 0, ReduceOp op = kSum) {
    run(Call::reduce(in, out, root, op));
  }
  /// `out` is written on `root` only and may be empty elsewhere.
  template <Elements In, MutableElementsLike<In> Out>
  void gather(In&& in, Out&& out, int root = 0) {
    run(Call::gather(in, out, root));
  }
  /// `in` is read on `root` only and may be empty elsewhere.
  template <Elements In, MutableElementsLike<In> Out>
  void scatter(In&& in, Out&& out, int root = 0) {
    run(Call::scatter(in, out, root));
  }
  /// Over networks, in jobs of more than 201 ranks, parts go by way of other ranks, which hold up
  /// to a whole vector of them (at most 128 MiB; longer ones go straight, as do those with counts).
  template <Elements In, MutableElementsLike<In> Out>
  void all_to_all(In&& in, Out&& out) {
    run(Call::all_to_all(in, out, size()));
  }
  void send(Elements auto&& in, int to) { run(Call::send(in, to)); }
  void recv(MutableElements auto&& out, int from) { run(Call::recv(out, from)); }
  void barrier();
  /// In place, on all ranks that are left or on none: when this throws on one, it does on each, and
  /// `inout` is on each as it was, also where a peer had written over RDMA before it died. Then the
  /// epoch has ended. Error(no_quorum) is the exception: this rank cannot know what the others
  /// have. Beside all_reduce it takes a barrier, a copy, and memory of the library as large as the
  /// largest call. `timeout` (default: the communicator's) is of the sum and of the barrier each;
  /// where they fail, those who are left agree within as much again, and wait half of it for
  /// ranks of which nothing is known. A communicator of the whole job.
  void all_reduce_committed(MutableElements auto&& inout, ReduceOp op = kSum,
                            std::optional<std::chrono::nanoseconds> timeout = {}) {
    run_committed(Call::all_reduce(inout, op), timeout);
  }
  /// The same of a Call that is an all_reduce, also out of place: then it is `out` that stays.
  void run_committed(const Call& call, std::optional<std::chrono::nanoseconds> timeout = {});

  /// The rank whose next message on `channel` is here, or begins to arrive, where no recv has been
  /// started that takes it; nothing when none has come within `limit`. So a rank can receive from
  /// whoever sends first. Throws Error when the communicator is broken, and soon after every other
  /// rank has left the job: then it breaks.
  std::optional<int> next_sender(std::chrono::nanoseconds limit, int channel = 0);
  /// Makes the next_sender of this rank that waits for `channel` in another thread, or else the
  /// next one, return at the latest now.
  void interrupt_next_sender(int channel = 0);

  /// Breaks the communicator on every rank with `reason`.
  void abort(const std::string& reason);
  /// Why it is broken, as this rank knows; nothing where it is not. Any thread.
  std::optional<Failure> failure() const;
  /// The process whose end or abort broke this communicator, where it is another one of this host.
  /// For those who must not end before it has, lest they be taken for the cause.
  std::optional<int64_t> culprit_process() const;

  // The next epoch (epoch.h, docs/elastic.md).
  /// Ends this epoch on every rank: calls under way on any of its communicators, and all later
  /// ones, throw Error(revoked), or what else had failed before. Returns at once. Any thread, in
  /// any state.
  void revoke(const std::string& reason);
  /// Collective of those who are left of the whole job, after a failure or without one (then it
  /// ends this epoch): a communicator of the next epoch, of all ranks that call this, in their
  /// order. Ranks may die meanwhile. Returns as soon as all that are left have come; waits half of
  /// `timeout` (default: the communicator's) for those of whom nothing is known. This communicator
  /// may be destroyed then. Throws Error(no_quorum) where this rank cannot go on: no quorum of this
  /// epoch's ranks was reached (Options::tie_breaker), or it has gone on without it. A rank on
  /// which this or `agree` has failed agrees with the others of this epoch no more. An epoch has
  /// one successor: after it has returned, a call throws Error(invalid_argument). Not while another
  /// thread is in a call. Memory from `allocate` may be used on, as any other.
  std::unique_ptr<Communicator> shrink(std::optional<std::chrono::nanoseconds> timeout = {});
  /// Collective of the whole job, as `shrink`, and mixes with it: where nothing has failed and
  /// nobody waits to join (Options::join_running), the epoch goes on, and this returns null on all
  /// ranks. Else a communicator of the next epoch, in which those who wait are the last ranks.
  /// Waits nearly all of `timeout` for ranks of which nothing is known. Where one of the newcomers
  /// does not come the members go on without them; they wait again. All or part of who waits is
  /// admitted.
  std::unique_ptr<Communicator> grow(std::optional<std::chrono::nanoseconds> timeout = {});
  /// Collective with the others' `shrink` or `grow`, for which it ends this epoch: they go on
  /// without this rank, however few they are, as it has agreed to that. Afterwards destroy this
  /// communicator. Throws as `shrink`.
  void depart(std::optional<std::chrono::nanoseconds> timeout = {});
  /// How many processes wait to join, as far as this rank has heard: ranks may differ for a moment.
  /// Any thread.
  int pending() const;
  /// Collective of those who are left of the whole job, after a failure or without one: the AND of
  /// the bits of all that take part, and who they are, the same on all, whoever dies meanwhile.
  /// Throws as `shrink`.
  Agreed agree(uint64_t bits, std::optional<std::chrono::nanoseconds> timeout = {});
  /// Of this communicator; 0 as the job starts.
  const Epoch& epoch() const;

  // State for those who lack it (state_sync.h, docs/elastic.md).
  /// Collective: whoever lacks the state of `source` gets it from all who have it. Returns once all
  /// have told what they have: the time to hash `buffers`, and to copy what this rank sends. Who
  /// has the state may change it from then on, others touch their buffers after StateSync::wait.
  /// Other calls may go on meanwhile. Buffers whose bytes are right already are not sent. Throws
  /// the same Error(mismatch) on all ranks where names, sizes, `source` or two states of the chosen
  /// revision differ; then nothing has changed.
  StateSync start_sync_state(std::span<const NamedBuffer> buffers, uint64_t revision,
                             StateSource source = StateSource::newest());
  /// The same, and waits: without a copy. `timeout`: as StateSync::wait.
  StateReport sync_state(std::span<const NamedBuffer> buffers, uint64_t revision,
                         StateSource source = StateSource::newest(),
                         std::optional<std::chrono::nanoseconds> timeout = {});

  /// Collective: a communicator for each `color`, of the ranks that gave it, in the order of (key,
  /// rank); null where color is negative. It shares the connections and threads of this one, and
  /// costs no descriptor. Its deadlines, failures and order of calls are its own: it may fail while
  /// this one goes on, unless a rank is lost. It may outlive this one.
  std::unique_ptr<Communicator> split(int color, int key = 0);
  /// What each rank of a group has passed, in their order, given to all of them: by whatever means
  /// they have, such as a key-value store. Calls on one rank belong to those on the others in turn.
  using Exchange = std::function<std::vector<std::string>(const std::string& own)>;
  /// The same for `ranks` alone, in this order, this one among them: a call of theirs, of which the
  /// other ranks need not know. `timeout`: of its waits; else this one's. Throws what `exchange`
  /// throws: the others hear of it by the same means or, where they have their group, in that.
  std::unique_ptr<Communicator> create_group(const std::vector<int>& ranks,
                                             const Exchange& exchange,
                                             std::optional<std::chrono::nanoseconds> timeout = {});

  class Impl;  // src/communicator/impl.h
  explicit Communicator(std::shared_ptr<Impl> impl);

 private:
  std::unique_ptr<Communicator> next_epoch(bool admits,
                                           std::optional<std::chrono::nanoseconds> timeout);
  std::shared_ptr<void> allocate_elements(size_t count, size_t element_bytes);
  StateSync start_state(std::span<const NamedBuffer> buffers, uint64_t revision, StateSource source,
                        bool is_copied);

  std::shared_ptr<Impl> impl_;  // shared with what it has given out
};

}  // namespace ropewalk
