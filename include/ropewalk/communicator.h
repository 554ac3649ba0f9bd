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
// order; else every rank gets Error(mismatch) that says who called what. Point-to-point send and
// recv are ordered between each pair of ranks only.
//
// Threads: any thread may call; calls from several threads at once are serialized, and their order
// must then be made equal on all ranks by the caller.
// Errors: every call may throw Error. After peer_lost, timeout, mismatch or aborted the
// communicator is broken: buffers of unfinished operations have unspecified content and every later
// call throws the same error.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/buffer.h"
#include "ropewalk/status.h"
#include "ropewalk/types.h"

namespace ropewalk {

/// How to join. What is unset comes from ROPEWALK_* variables, then from the launcher (Open MPI,
/// PMI, Slurm, torchrun), then from defaults (`ropewalk env` prints all).
struct Options {
  std::optional<int> rank;
  std::optional<int> size;
  /// "host:port" at which rank 0 listens; several, with commas between, are tried in turn.
  std::optional<std::string> coordinator;
  std::optional<int> coordinator_fd;     // rank 0 only: a socket that listens there already
  std::optional<std::string> key;        // the job's secret, the same on every rank
  std::optional<std::string> transport;  // "auto", "shm", "tcp", "verbs", "ucx"
  std::optional<std::chrono::nanoseconds> timeout;  // of every wait; default 30 s
  std::optional<bool> progress_thread;  // drive started operations in the background; default on
  std::optional<int> progress_cpu;      // bind the progress thread to this CPU
};

/// Sequences of messages between a pair of ranks, per direction: see Call::channel.
inline constexpr int kChannels = 2;

/// One collective call, spelled out. `count` is in elements and means, per collective:
/// all_reduce, broadcast, reduce, send, recv: the whole buffer; reduce_scatter, scatter: each
/// rank's part of `out`; all_gather, gather: each rank's part of `in`; all_to_all: the part for
/// each rank. `counts` (size() entries), where not empty, replaces `count` with a part per rank
/// (all_gather_v, reduce_scatter_v, gather_v, scatter_v); for all_to_all_v it is the parts sent
/// and `recv_counts` the parts received. Parts lie one behind the other in rank order.
/// In place: in == out (all_reduce, broadcast, reduce); for reduce_scatter and scatter `out` may be
/// this rank's part of `in`; for all_gather and gather `in` may be this rank's part of `out`.
struct Call {
  Collective collective = Collective::all_reduce;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  std::vector<size_t> counts, recv_counts;
  DataType type = DataType::float32;
  ReduceOp op = {};
  int root = 0;  // broadcast, reduce, gather, scatter; the peer of send and recv
  /// send and recv: which of the kChannels sequences of messages between the pair. Messages of one
  /// channel arrive in order; those of another neither wait for them nor hold them up.
  int channel = 0;
  uint32_t tag = 0;  // send and recv: must be equal on both sides, else the call is a mismatch
  Algorithm algorithm = Algorithm::automatic;
};

class Operation;  // src/engine/operation.h

/// A started operation. Destroying it unfinished waits for it (with the communicator's deadline).
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  Work(Work&&) noexcept = default;
  Work& operator=(Work&&) noexcept;
  ~Work();

  /// True when finished; throws Error when failed. Makes progress.
  bool test();
  /// Waits until finished, at most for `timeout` (default: the communicator's); throws Error.
  void wait(std::optional<std::chrono::nanoseconds> timeout = {});
  /// The same for at most `limit`, without failing then: true when finished. Throws Error when it
  /// has failed. Leaves its CPU to threads that compute there: for one that merely follows a call.
  bool wait_for(std::chrono::nanoseconds limit);

 private:
  std::shared_ptr<Operation> operation_;
};

/// A call fixed once and run many times: buffers, schedule and staging are resolved, so that a run
/// allocates nothing. Buffers must outlive it, and it must die before its Communicator, as must
/// every Work. At most one run of a plan is under way at a time.
class Plan {
 public:
  Plan() = default;
  explicit Plan(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  Plan(Plan&&) noexcept = default;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();     // waits for a run that is under way
  void run();  // start, then wait
  void start();
  bool test();
  void wait(std::optional<std::chrono::nanoseconds> timeout = {});
  Algorithm algorithm() const;  // what the planner chose

 private:
  std::shared_ptr<Operation> operation_;
};

class Communicator {
 public:
  /// Joins the job; returns when all ranks have. Throws Error within the timeout.
  static std::unique_ptr<Communicator> create(const Options& options = {});
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Leaves the job, as `leave`.
  ~Communicator();

  /// Leaves the job; waits until all ranks leave, unless the communicator is broken or an exception
  /// is being thrown, in which case the other ranks learn that this rank has gone. For those who
  /// cannot destroy the communicator yet because its memory is in use: afterwards calls throw
  /// Error(invalid_argument), and Works, Plans and Buffers may still go. Not while another thread
  /// is in a call. The second call does nothing.
  void leave();

  int rank() const;
  int size() const;
  int local_rank() const;  // among the ranks of this host
  int local_size() const;
  /// How the ranks are reached: "shm", "tcp", "verbs", "ucx", "ucx/shm", "shm+tcp", ..., or "self"
  /// for a job of one.
  std::string transport() const;

  /// Registered memory (see buffer.h). Not collective.
  template <class T>
  Buffer<T> allocate(size_t size) {
    auto memory = allocate_bytes(size * sizeof(T));
    T* data = static_cast<T*>(address_of(*memory));
    return Buffer<T>(std::move(memory), data, size);
  }

  // Any call, three ways.
  /// `timeout`: default the communicator's.
  void run(const Call& call, std::optional<std::chrono::nanoseconds> timeout = {});
  Work start(const Call& call);
  Plan plan(const Call& call);
  /// Many calls as one operation: all are started, then the handle waits for all. Small
  /// all_reduces of equal type and op are fused into one.
  Work start_group(std::span<const Call> calls);

  // The common calls, typed. In place where only one span is given.
  template <class T>
  void all_reduce(std::span<T> inout, ReduceOp op = kSum) {
    run(reduction(Collective::all_reduce, inout.data(), inout.data(), inout.size(),
                  data_type_of<T>(), op));
  }
  template <class T>
  void all_reduce(std::span<const T> in, std::span<T> out, ReduceOp op = kSum) {
    require_size("all_reduce", in.size(), out.size());
    run(reduction(Collective::all_reduce, in.data(), out.data(), in.size(), data_type_of<T>(), op));
  }
  /// `in` is size() parts of out.size() elements.
  template <class T>
  void reduce_scatter(std::span<const T> in, std::span<T> out, ReduceOp op = kSum) {
    require_size("reduce_scatter", in.size(), out.size() * static_cast<size_t>(size()));
    run(reduction(Collective::reduce_scatter, in.data(), out.data(), out.size(), data_type_of<T>(),
                  op));
  }
  template <class T>
  void all_gather(std::span<const T> in, std::span<T> out) {
    require_size("all_gather", in.size() * static_cast<size_t>(size()), out.size());
    run(movement(Collective::all_gather, in.data(), out.data(), in.size(), data_type_of<T>(), 0));
  }
  template <class T>
  void broadcast(std::span<T> inout, int root = 0) {
    run(movement(Collective::broadcast, inout.data(), inout.data(), inout.size(), data_type_of<T>(),
                 root));
  }
  /// `out` is written on `root` only and may be empty elsewhere.
  template <class T>
  void reduce(std::span<const T> in, std::span<T> out, int root = 0, ReduceOp op = kSum) {
    Call call =
        reduction(Collective::reduce, in.data(), out.data(), in.size(), data_type_of<T>(), op);
    call.root = root;
    run(call);
  }
  template <class T>
  void gather(std::span<const T> in, std::span<T> out, int root = 0) {
    run(movement(Collective::gather, in.data(), out.data(), in.size(), data_type_of<T>(), root));
  }
  template <class T>
  void scatter(std::span<const T> in, std::span<T> out, int root = 0) {
    run(movement(Collective::scatter, in.data(), out.data(), out.size(), data_type_of<T>(), root));
  }
  template <class T>
  void all_to_all(std::span<const T> in, std::span<T> out) {
    require_size("all_to_all", in.size(), out.size());
    require_size("all_to_all", in.size() % static_cast<size_t>(size()), 0);
    run(movement(Collective::all_to_all, in.data(), out.data(),
                 in.size() / static_cast<size_t>(size()), data_type_of<T>(), 0));
  }
  template <class T>
  void send(std::span<const T> in, int to) {
    run(movement(Collective::send, in.data(), nullptr, in.size(), data_type_of<T>(), to));
  }
  template <class T>
  void recv(std::span<T> out, int from) {
    run(movement(Collective::recv, nullptr, out.data(), out.size(), data_type_of<T>(), from));
  }
  void barrier();

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

  /// Collective: a communicator for each `color`, of the ranks that gave it, in the order of (key,
  /// rank); null where color is negative. It has its own connections, deadlines and failures, the
  /// transport and timeout of this one, and may outlive it.
  std::unique_ptr<Communicator> split(int color, int key = 0);

  class Impl;  // src/communicator_impl.h
  explicit Communicator(std::unique_ptr<Impl> impl);

 private:
  static Call reduction(Collective collective, const void* in, void* out, size_t count,
                        DataType type, ReduceOp op);
  static Call movement(Collective collective, const void* in, void* out, size_t count,
                       DataType type, int root);
  static void require_size(const char* operation, size_t got, size_t want);
  std::shared_ptr<RegisteredMemory> allocate_bytes(size_t bytes);
  static void* address_of(RegisteredMemory& memory);

  std::unique_ptr<Impl> impl_;
};

}  // namespace ropewalk
