// Elastic averaging without waiting, after arXiv 1412.6651: see center_shard.h for an exchange.
//
// Where ranks meet (synchronizing, reading the center, leaving) a rank's own exchanges have ended
// before it comes, so none is under way once all are there. Nobody's exchange can change the center
// before it has been copied for the others: a rank goes on only when it has all copies.
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "policies/center_shard.h"
#include "policies/tensor_list.h"
#include "ropewalk/fork.h"

namespace ropewalk {
namespace {

constexpr const char* kName = "AsyncEa";
constexpr size_t kPieceBytes = 1 << 20;

[[noreturn]] void refuse(std::string reason, std::string advice) {
  throw Error(ErrorCode::invalid_argument, kName, std::move(reason), std::move(advice));
}

// Where the ranks meet: what each was called for, and whether all agree.

enum class EaOperation : int64_t {
  synchronize_center,
  synchronize_parameters,
  center,
  leave,
  serve
};

/// What ranks tell each other: trivially copyable, without padding.
struct EaCall {
  EaOperation operation;
  uint64_t elements;
  int64_t servers;
  uint64_t alpha;  // its bits
};
static_assert(sizeof(EaCall) == 4 * sizeof(int64_t));

const char* name_of(EaOperation operation) {
  constexpr std::array kNames = {"synchronize_center", "synchronize_parameters", "center", "leave",
                                 "serve"};
  return kNames[static_cast<size_t>(operation)];
}

bool serves(const EaCall& call) {
  return call.operation == EaOperation::serve;
}

bool agree(const EaCall& a, const EaCall& b) {
  if (a.servers != b.servers || a.alpha != b.alpha) return false;
  if (serves(a) || serves(b)) return true;
  return a.operation == b.operation && a.elements == b.elements;
}

std::string describe(const EaCall& call, size_t rank) {
  return fmt::format("rank {} called {} ({} elements, alpha {}, {} servers)", rank,
                     name_of(call.operation), call.elements, std::bit_cast<double>(call.alpha),
                     call.servers);
}

/// Collective. Waits until every rank has come, as long as they live, and returns what they have
/// come for: those who serve learn from the others, of whom there must be one. Throws the same
/// Error(mismatch) on every rank where they do not agree.
EaCall meet_all(Communicator& comm, const EaCall& own) {
  constexpr std::chrono::hours kLong(1);
  std::vector<EaCall> calls(static_cast<size_t>(comm.size()));
  Work work = comm.start(Call::all_gather(
      std::span(reinterpret_cast<const uint8_t*>(&own), sizeof(own)),
      std::span(reinterpret_cast<uint8_t*>(calls.data()), calls.size() * sizeof(own))));
  while (!work.wait_for(kLong)) {
  }

  size_t first = 0;
  while (first + 1 < calls.size() && serves(calls[first])) ++first;
  for (size_t rank = 0; rank < calls.size(); ++rank)
    if (!agree(calls[first], calls[rank]))
      throw Error(
          ErrorCode::mismatch, "AsyncEa",
          fmt::format("{}, but {}", describe(calls[first], first), describe(calls[rank], rank)),
          "call the same on every rank, with equal tensors and options");
  return calls[first];
}

}  // namespace

/// The worker's end: an exchange with all owners at once. Plans are made once, before anything is
/// sent.
template <class T>
class Exchange {
 public:
  /// `vector`, in memory that `comm` allocated, is what is sent: all parameters, one behind the
  /// other. Both outlive this.
  Exchange(Communicator& comm, const Shards& shards, std::span<T> vector)
      : comm_(comm),
        shards_(shards),
        vector_(vector),
        delta_(comm.allocate<T>(vector.size())),
        trips_(static_cast<size_t>(shards.owners())) {
    for (int owner = 0; owner < shards.owners(); ++owner)
      for (size_t index = 0; owner != comm.rank() && index < shards.pieces(owner); ++index)
        trips_[static_cast<size_t>(owner)].push_back(plan(owner, shards.piece(owner, index)));
  }

  /// What came back.
  std::span<const T> delta() const { return delta_.span(); }

  /// Exchanges the vector and returns when `delta()` is complete. `own` is this rank's shard, or
  /// null where it has none. Where it throws some owners may have added their delta; then the
  /// communicator is broken, and the center with it.
  void run(CenterShard<T>* own) {
    try {
      const size_t pieces = shards_.pieces_max();
      for (size_t index = 0; index < pieces + kPiecesUnderWay; ++index)
        for (int owner = 0; owner < shards_.owners(); ++owner) {
          if (index < shards_.pieces(owner)) start(owner, index, own);
          if (index >= kPiecesUnderWay && index - kPiecesUnderWay < shards_.pieces(owner))
            finish(owner, index - kPiecesUnderWay);
        }
    } catch (const std::exception& error) {
      comm_.abort(error.what());
      throw;
    }
  }

 private:
  static constexpr size_t kPiecesUnderWay = 8;  // with each owner

  struct Trip {
    Plan answer, request;
  };

  Trip plan(int owner, Part part) {
    return {comm_.plan(Call::recv(part_of(delta_.span(), part), owner, kAnswers)),
            comm_.plan(Call::send(part_of(vector_, part), owner, kRequests))};
  }

  void start(int owner, size_t index, CenterShard<T>* own) {
    if (owner == comm_.rank()) {
      const Part part = shards_.piece(owner, index);
      return own->exchange(index, part_of(vector_, part), part_of(delta_.span(), part));
    }
    Trip& trip = trips_[static_cast<size_t>(owner)][index];
    trip.answer.start();  // first: the owner never waits to be rid of it
    trip.request.start();
  }

  void finish(int owner, size_t index) {
    if (owner == comm_.rank()) return;
    Trip& trip = trips_[static_cast<size_t>(owner)][index];
    trip.request.wait();
    trip.answer.wait();
  }

  static std::span<T> part_of(std::span<T> whole, Part part) {
    return whole.subspan(part.begin, part.size);
  }

  Communicator& comm_;
  const Shards shards_;
  const std::span<T> vector_;
  Buffer<T> delta_;
  std::vector<std::vector<Trip>> trips_;  // by owner and piece; they use the buffers: die first
};

template <class T>
class AsyncEa<T>::Impl {
 public:
  Impl(Communicator& comm, int tau, double alpha, const AsyncEaOptions& options)
      : tau_(tau), alpha_(alpha), servers_(options.servers) {
    check_elastic(kName, tau, alpha);
    if (servers_ < 0 || servers_ >= comm.size())
      refuse(fmt::format("{} servers of {} ranks", servers_, comm.size()),
             "leave at least one rank to work");
    comm_ = comm.split(0, comm.rank());
  }

  ~Impl() { leave(); }

  bool is_forked() const { return process_.is_forked(); }

  void leave() {
    throw_if_forked();
    if (std::exchange(ended_, true)) return;
    try {
      if (std::uncaught_exceptions() > exceptions_)
        comm_->abort("an exception ended its AsyncEa");
      else if (!workers_left_ && !aborted_)
        meet(EaOperation::leave, 0);
    } catch (const std::exception& error) {
      log(LogLevel::warn, comm_->rank(), "the end of an AsyncEa: {}", error.what());
      comm_->abort("its AsyncEa has ended");  // nobody answers the others any more
    }
    shard_.reset();  // answers the others until here
    exchange_.reset();
    vector_ = {};
    try {
      comm_->leave();
    } catch (const Error& error) {
      log(LogLevel::error, comm_->rank(), "the end of an AsyncEa: {}", error.what());
    }
  }

  void abort(std::string_view reason) {
    throw_if_forked();
    aborted_ = true;
    comm_->abort(std::string(reason));
  }

  bool average(TensorList<T> parameters) {
    require_role(true);
    check_length(parameters);
    if (shard_) shard_->throw_if_failed();
    ++step_;
    if (step_ % tau_ != 0) return false;
    pack(parameters, vector_.data());
    exchange_->run(shard_.get());
    const T* delta = exchange_->delta().data();
    for (const std::span<T>& tensor : parameters)
      for (T& parameter : tensor) parameter = narrow<T>(widen(parameter) - widen(*delta++));
    return true;
  }

  void synchronize(EaOperation operation, TensorList<T> parameters) {
    require_role(true);
    if (shards_) check_length(parameters);
    meet(operation, elements_of(parameters));
    if (!shards_) make_center(elements_of(parameters), parameters);
    step_ = 0;
    if (operation == EaOperation::synchronize_parameters) read_center(parameters);
  }

  void center(TensorList<T> center) {
    require_role(true);
    check_length(center);
    meet(EaOperation::center, elements_of(center));
    read_center(center);
  }

  void serve() {
    require_role(false);
    while (!workers_left_) {
      const EaCall call = meet(EaOperation::serve, 0);
      workers_left_ = call.operation == EaOperation::leave;
      if (workers_left_) break;
      if (!shards_) make_center(call.elements, {});
      if (call.operation != EaOperation::synchronize_center) gather();
    }
    shard_.reset();  // nobody is left to answer
  }

 private:
  bool works() const { return comm_->rank() >= servers_; }
  bool owns() const { return servers_ == 0 || !works(); }

  /// A child has no thread that answers, and its locks are as they were.
  void throw_if_forked() const {
    if (process_.is_forked())
      refuse("this process is a forked child; the policy is its parent's",
             "make calls in the process that made the policy");
  }

  void require_role(bool worker) const {
    throw_if_forked();
    if (ended_) refuse("this rank has left it", "make every call before leave()");
    if (works() == worker) return;
    if (worker)
      refuse(fmt::format("rank {} is a server", comm_->rank()), "call nothing but serve on it");
    refuse(fmt::format("rank {} is a worker", comm_->rank()),
           "call serve on the first AsyncEaOptions::servers ranks only");
  }

  void check_length(TensorList<T> list) const {
    if (!shards_) refuse("there is no center yet", "call synchronize_parameters first");
    check_elements(kName, list, shards_->total());
  }

  EaCall meet(EaOperation operation, size_t elements) {
    if (shard_) shard_->throw_if_failed();
    return meet_all(*comm_, {operation, elements, servers_, std::bit_cast<uint64_t>(alpha_)});
  }

  /// Of `total` elements: the first worker's `parameters`. Where this rank cannot, the others must
  /// not wait for it: they are at it, too.
  void make_center(size_t total, TensorList<T> parameters) {
    try {
      vector_ = comm_->allocate<T>(total);
      pack(parameters, vector_.data());
      const int owners = servers_ > 0 ? servers_ : comm_->size();
      const Shards shards(total, owners, kPieceBytes / sizeof(T));
      if (total > 0) comm_->broadcast(vector_.span(), servers_);
      // Requests that come before this rank has its shard wait until it answers.
      if (works()) exchange_.emplace(*comm_, shards, vector_.span());
      if (owns()) shard_ = std::make_unique<CenterShard<T>>(*comm_, shards, alpha_, part(shards));
      shards_ = shards;
    } catch (const std::exception& error) {
      comm_->abort(error.what());
      throw;
    }
  }

  /// The center into vector_, on every rank.
  void gather() {
    if (shards_->total() == 0) return;
    std::vector<size_t> counts(static_cast<size_t>(comm_->size()));
    for (int owner = 0; owner < shards_->owners(); ++owner)
      counts[static_cast<size_t>(owner)] = shards_->shard(owner).size;
    std::span<T> own;
    if (shard_) {
      own = part(*shards_);
      shard_->copy_to(own);
    }
    comm_->run(Call::all_gather_v(own, vector_, std::move(counts)));
  }

  /// This rank's shard of vector_.
  std::span<T> part(const Shards& shards) const {
    const Part own = shards.shard(comm_->rank());
    return vector_.span().subspan(own.begin, own.size);
  }

  void read_center(TensorList<T> into) {
    gather();
    unpack<T>(vector_.data(), into);
  }

  const int tau_;
  const double alpha_;
  const int servers_;
  const int exceptions_ = std::uncaught_exceptions();
  const ForkGuard process_;
  int64_t step_ = 0;           // of this rank, since the last synchronization
  bool workers_left_ = false;  // on servers
  bool ended_ = false;
  std::atomic<bool> aborted_{false};
  std::unique_ptr<Communicator> comm_;
  // From the first synchronization on; shards_ is set last:
  std::optional<Shards> shards_;
  Buffer<T> vector_;                       // of an exchange, or the center for `gather`
  std::optional<Exchange<T>> exchange_;    // workers
  std::unique_ptr<CenterShard<T>> shard_;  // owners; answers the others, so it goes first
};

template <class T>
AsyncEa<T>::AsyncEa(Communicator& comm, int tau, double alpha, const AsyncEaOptions& options)
    : impl_(std::make_unique<Impl>(comm, tau, alpha, options)) {}

template <class T>
AsyncEa<T>::~AsyncEa() {
  if (impl_->is_forked()) abandon(std::shared_ptr<Impl>(std::move(impl_)));
}

template <class T>
bool AsyncEa<T>::average_parameters(TensorList<T> parameters) {
  return impl_->average(parameters);
}

template <class T>
void AsyncEa<T>::synchronize_center(TensorList<T> parameters) {
  impl_->synchronize(EaOperation::synchronize_center, parameters);
}

template <class T>
void AsyncEa<T>::synchronize_parameters(TensorList<T> parameters) {
  impl_->synchronize(EaOperation::synchronize_parameters, parameters);
}

template <class T>
void AsyncEa<T>::center(TensorList<T> center) {
  impl_->center(center);
}

template <class T>
void AsyncEa<T>::serve() {
  impl_->serve();
}

template <class T>
void AsyncEa<T>::leave() {
  impl_->leave();
}

template <class T>
void AsyncEa<T>::abort(std::string_view reason) {
  impl_->abort(reason);
}

#define ROPEWALK_INSTANTIATE(name, type) template class AsyncEa<type>;
ROPEWALK_DATA_TYPES(ROPEWALK_INSTANTIATE, ROPEWALK_NOTHING)
#undef ROPEWALK_INSTANTIATE

}  // namespace ropewalk
