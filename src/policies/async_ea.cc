// Elastic averaging without waiting, after arXiv 1412.6651: see center_shard.h for an exchange.
//
// Where ranks meet (synchronizing, reading the center, leaving) a rank's own exchanges have ended
// before it comes, so none is under way once all are there. Nobody's exchange can change the center
// before it has been copied for the others: a rank goes on only when it has all copies.
//
// After a failure a rank keeps what it has of the center until `resume` has ended here: that may
// fail, too, and on some ranks only. Then the others have the next generation already, and what
// they have is what all go on with.
#include <fmt/format.h>

#include <atomic>
#include <bit>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "policies/center_pieces.h"
#include "policies/center_shard.h"
#include "policies/exchange.h"
#include "policies/meeting.h"
#include "policies/past_center.h"
#include "policies/state_holder.h"
#include "policies/tensor_list.h"
#include "ropewalk/fork.h"

namespace ropewalk {
namespace {

constexpr const char* kName = "AsyncEa";
constexpr size_t kPieceBytes = 1 << 20;

[[noreturn]] void refuse(std::string reason, std::string advice) {
  throw Error(ErrorCode::invalid_argument, kName, std::move(reason), std::move(advice));
}

}  // namespace

template <class T>
class AsyncEa<T>::Impl {
 public:
  Impl(Communicator& comm, int tau, double alpha, const AsyncEaOptions& options)
      : tau_(tau),
        alpha_(alpha),
        options_(options),
        servers_(options.servers),
        has_state_(comm.epoch().number == 0) {
    check_elastic(kName, tau, alpha);
    if (servers_ < 0 || servers_ >= comm.size())
      refuse(fmt::format("{} servers of {} ranks", servers_, comm.size()),
             "leave at least one rank to work");
    is_server_ = comm.rank() < servers_;
    comm_ = comm.split(0, key_in(comm));
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
    close_center();  // answers the others until here
    past_.reset();
    try {
      comm_->leave();
    } catch (const Error& error) {
      log(LogLevel::error, comm_->rank(), "the end of an AsyncEa: {}", error.what());
    }
  }

  void abort(std::string_view reason) {
    throw_if_forked();
    std::lock_guard lock(comm_mutex_);
    aborted_ = true;
    abort_reason_ = reason;
    comm_->abort(abort_reason_);
  }

  bool average(TensorList<T> parameters) {
    require_role(true);
    check_length(parameters);
    throw_if_failed();
    const bool exchanges = (step_ + 1) % tau_ == 0;
    if (exchanges) exchange(parameters);
    ++step_;  // not where it throws: the next one exchanges then
    return exchanges;
  }

  void synchronize(EaOperation operation, TensorList<T> parameters) {
    require_role(true);
    if (layout_) check_length(parameters);
    const Meeting meeting = meet(operation, elements_of(parameters));
    if (!layout_) make_center(meeting, parameters, servers_);
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
      const Meeting meeting = meet(EaOperation::serve, EaCall::kAnyElements);
      workers_left_ = meeting.operation == EaOperation::leave;
      if (workers_left_) break;
      if (!layout_) make_center(meeting, {}, servers_);
      if (meeting.operation != EaOperation::synchronize_center) gather();
    }
    shard_.reset();  // nobody is left to answer
  }

  size_t resume(Communicator& next, TensorList<T> parameters) {
    throw_if_forked();
    if (ended_ || workers_left_) refuse("it has ended", "make every call before leave()");
    const std::optional<size_t> known = known_elements();
    if (known && !parameters.empty()) check_elements(kName, parameters, *known);
    end_epoch();
    move_to(next);
    const size_t own = is_server_ ? EaCall::kAnyElements : elements_of(parameters);
    const Meeting meeting = meet(EaOperation::resume, known.value_or(own));
    servers_ = meeting.servers;
    const bool is_there = meeting.center.generation >= 0;
    if (!is_there && meeting.state_holder < 0) throw_nobody_has_state(*comm_, kName);
    if (is_there)
      restore_center(meeting);
    else
      make_center(meeting, parameters, meeting.state_holder);
    if (!known && !is_server_) unpack<T>(vector_.data(), parameters);
    if (!parameters.empty()) move_by(std::exchange(moves_, {}), parameters);
    return std::exchange(failed_elements_, 0);
  }

  void declare_state() {
    throw_if_forked();
    has_state_ = true;
  }

 private:
  bool owns() const { return servers_ == 0 || is_server_; }
  /// Owners are the first ranks of comm_, whatever their ranks in `comm`.
  int key_in(const Communicator& comm) const {
    return is_server_ ? comm.rank() - comm.size() : comm.rank();
  }
  std::optional<size_t> known_elements() const {
    if (layout_) return layout_->shards().total();
    if (past_) return past_->layout.shards().total();
    return {};
  }

  /// A child has no thread that answers, and its locks are as they were.
  void throw_if_forked() const {
    if (process_.is_forked())
      refuse("this process is a forked child; the policy is its parent's",
             "make calls in the process that made the policy");
  }

  /// Also where this call would send nothing: whoever is to go on should soon know.
  void throw_if_failed() const {
    if (shard_) shard_->throw_if_failed();
    if (const std::optional<Failure> failure = comm_->failure()) throw Error(*failure);
  }

  void require_role(bool worker) const {
    throw_if_forked();
    if (ended_) refuse("this rank has left it", "make every call before leave()");
    if (is_server_ != worker) return;
    if (worker)
      refuse(fmt::format("rank {} is a server", comm_->rank()), "call nothing but serve on it");
    refuse(fmt::format("rank {} is a worker", comm_->rank()),
           "call serve on the first AsyncEaOptions::servers ranks only");
  }

  void check_length(TensorList<T> list) const {
    if (!layout_ && past_)
      refuse("the center has not been restored", "call shrink and resume, or synchronize_center");
    if (!layout_) refuse("there is no center yet", "call synchronize_parameters first");
    check_elements(kName, list, layout_->shards().total());
  }

  Meeting meet(EaOperation operation, size_t elements) {
    if (shard_) shard_->throw_if_failed();
    is_fresh_ = false;
    const CenterId known = layout_ ? id_ : past_ ? past_->id : CenterId();
    return meet_all(*comm_, {operation, elements, options_.servers, std::bit_cast<uint64_t>(alpha_),
                             is_server_ ? 1 : 0, has_state_ ? 1 : 0, known});
  }

  void exchange(TensorList<T> parameters) {
    pack(parameters, vector_.data());
    ++exchanges_;
    exchange_failed_ = true;
    exchange_->run(shard_.get());
    exchange_->apply(parameters, static_cast<Wide<T>>(alpha_), copy_);
    exchange_failed_ = false;
  }

  /// Where this rank cannot do `body`, the others must not wait for it: they are at it, too.
  template <class Body>
  void run_or_abort(Body body) {
    try {
      body();
    } catch (const std::exception& error) {
      comm_->abort(error.what());
      throw;
    }
  }

  /// The `parameters` of that worker.
  void make_center(const Meeting& meeting, TensorList<T> parameters, int worker) {
    run_or_abort([&] {
      vector_ = comm_->allocate<T>(meeting.elements);
      pack(parameters, vector_.data());
      if (meeting.elements > 0) comm_->broadcast(vector_.span(), worker);
      open_center(meeting);
    });
    failed_elements_ = 0;
  }

  /// The latest that those who are left have.
  void restore_center(const Meeting& meeting) {
    const CopyLayout<T> layout(shards_of(meeting.elements, meeting.center.owners),
                               static_cast<int>(meeting.center.ranks));
    const bool has_it = past_ && past_->id.generation == meeting.center.generation;
    size_t lost = 0;
    run_or_abort([&] {
      Restoration<T> restoration(*comm_, layout, has_it ? &*past_ : nullptr);
      lost = restoration.lost_elements();
      if (lost > 0) return;
      const size_t failed = restoration.failed_elements();
      vector_ = comm_->allocate<T>(meeting.elements);
      restoration.collect(vector_);
      const bool completed = complete(has_it ? restoration.missing() : std::vector<Part>());
      if (has_it) failed_elements_ = completed ? meeting.elements : failed;
      // A rank that has failed from here on learns the rest from those who have not.
      comm_->barrier();
      open_center(meeting);
    });
    if (lost > 0)
      throw Error(ErrorCode::unavailable, kName,
                  fmt::format("{} of {} elements of the center have died with their owners", lost,
                              meeting.elements),
                  "set AsyncEaOptions::replicated; synchronize_center makes a new center");
  }

  /// Adds to the center, in vector_, what it lacks of the exchanges that have failed on any rank
  /// and are to be completed; of this rank's `missing`. Collective. True where this rank's is.
  bool complete(const std::vector<Part>& missing) {
    const bool completes = past_ && !past_->sent.empty();
    if (completes) moves_.clear();
    uint8_t lacks = completes && !missing.empty() ? 1 : 0;
    comm_->all_reduce(std::span(&lacks, 1), kMax);
    if (lacks == 0) return completes;
    Buffer<T> deltas = comm_->allocate<T>(vector_.size());  // zeros
    for (const Part& part : completes ? missing : std::vector<Part>())
      for (size_t i = part.begin; i < part.begin + part.size; ++i)
        deltas[i] = elastic_difference(past_->sent[i], vector_[i], static_cast<Wide<T>>(alpha_));
    // Where this rank fails now the others may have all of it in the next center.
    if (completes) moves_.assign(deltas.begin(), deltas.end());
    comm_->all_reduce(deltas.span());
    for (size_t i = 0; i < vector_.size(); ++i) vector_[i] = add(vector_[i], deltas[i]);
    return completes;
  }

  static void move_by(const std::vector<T>& moves, TensorList<T> parameters) {
    if (moves.empty()) return;
    const T* move = moves.data();
    for (const std::span<T>& tensor : parameters)
      for (T& value : tensor) value = subtract(value, *move++);
  }

  /// Of vector_, which has it on every rank. The rest of what there is of the last one goes.
  void open_center(const Meeting& meeting) {
    const int owners = servers_ > 0 ? servers_ : comm_->size();
    try {
      layout_.emplace(shards_of(meeting.elements, owners), comm_->size());
      if (options_.replicated && !is_server_) copy_ = new_copy();
      if (!is_server_) exchange_.emplace(*comm_, *layout_, vector_.span());
      // Requests that come before this rank has its shard wait until it answers. Nothing may fail
      // after this.
      if (owns()) shard_ = std::make_unique<CenterShard<T>>(*comm_, *layout_, alpha_, own_part());
    } catch (...) {
      close_center();
      throw;
    }
    id_ = {meeting.center.generation + 1, owners, comm_->size()};
    exchanges_ = 0;
    exchange_failed_ = false;
    has_state_ = true;
    past_.reset();
  }

  void close_center() {
    shard_.reset();
    exchange_.reset();
    copy_ = {};
    vector_ = {};
    layout_.reset();
  }

  std::vector<T> new_copy() const {
    std::vector<T> copy(layout_->size());
    for (size_t number = 0; number < layout_->pieces(); ++number) {
      const Part part = layout_->part(number);
      std::copy_n(vector_.data() + part.begin, part.size, layout_->slot(copy, number).begin());
      layout_->write_record(layout_->slot(copy, number), PieceRecord(comm_->size()));
    }
    return copy;
  }

  /// Nothing of the center changes here from now on; what this rank has of it is kept.
  void end_epoch() {
    {
      std::lock_guard lock(comm_mutex_);
      aborted_ = false;
    }
    if (!layout_) return;
    if (!comm_->failure()) comm_->abort("it goes on with another communicator");
    copy_.resize(layout_->size());
    if (shard_) {
      shard_->stop();
      shard_->write_to(copy_);
    }
    past_.emplace(PastCenter<T>{id_, *layout_, std::move(copy_), comm_->rank(), {}, {}});
    if (exchange_failed_) {
      past_->failed_is_odd = exchanges_ % 2 != 0;
      if (options_.completes) past_->sent.assign(vector_.begin(), vector_.end());
    }
    close_center();
  }

  /// A policy that has been made of `next` and not been used is there already.
  void move_to(Communicator& next) {
    if (is_fresh_ && !comm_->failure() && comm_->epoch().number == next.epoch().number) return;
    std::unique_ptr<Communicator> comm = next.split(0, key_in(next));
    std::lock_guard lock(comm_mutex_);
    comm_.swap(comm);
    if (aborted_) comm_->abort(abort_reason_);
  }

  static Shards shards_of(size_t total, int64_t owners) {
    return Shards(total, static_cast<int>(owners), kPieceBytes / sizeof(T));
  }

  /// The center into vector_, on every rank.
  void gather() {
    const Shards& shards = layout_->shards();
    if (shards.total() == 0) return;
    std::vector<size_t> counts(static_cast<size_t>(comm_->size()));
    for (int owner = 0; owner < shards.owners(); ++owner)
      counts[static_cast<size_t>(owner)] = shards.shard(owner).size;
    std::span<T> own;
    if (shard_) {
      own = own_part();
      shard_->copy_to(own);
    }
    comm_->run(Call::all_gather_v(own, vector_, std::move(counts)));
  }

  /// This rank's shard of vector_.
  std::span<T> own_part() const {
    const Part own = layout_->shards().shard(comm_->rank());
    return vector_.span().subspan(own.begin, own.size);
  }

  void read_center(TensorList<T> into) {
    gather();
    unpack<T>(vector_.data(), into);
  }

  const int tau_;
  const double alpha_;
  const AsyncEaOptions options_;
  int servers_;     // that are left; with none every rank owns a part
  bool has_state_;  // the parameters that the caller gives
  bool is_server_ = false;
  const int exceptions_ = std::uncaught_exceptions();
  const ForkGuard process_;
  int64_t step_ = 0;           // of this rank, since the last synchronization
  bool workers_left_ = false;  // on servers
  bool ended_ = false;
  bool is_fresh_ = true;   // the ranks have not met
  std::mutex comm_mutex_;  // guards what follows from `abort`
  std::atomic<bool> aborted_{false};
  std::string abort_reason_;
  std::unique_ptr<Communicator> comm_;
  // What is left of the last center, until there is one:
  std::optional<PastCenter<T>> past_;
  size_t failed_elements_ = 0;  // that the next `resume` which ends is to tell
  std::vector<T> moves_;        // of the parameters, then
  // The center; layout_ tells whether there is one:
  std::optional<CopyLayout<T>> layout_;
  CenterId id_;
  Buffer<T> vector_;                       // of an exchange, or the center for `gather`
  std::vector<T> copy_;                    // as this rank's last exchange has left it; or empty
  std::optional<Exchange<T>> exchange_;    // workers
  std::unique_ptr<CenterShard<T>> shard_;  // owners; answers the others, so it goes first
  uint64_t exchanges_ = 0;                 // that this rank has begun
  bool exchange_failed_ = false;           // the last of them
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
size_t AsyncEa<T>::resume(Communicator& next, TensorList<T> parameters) {
  return impl_->resume(next, parameters);
}

template <class T>
void AsyncEa<T>::declare_state() {
  impl_->declare_state();
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
