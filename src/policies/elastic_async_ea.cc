// A member's thread waits for the epoch's end: a failure, or a member that revokes it for newcomers
// or because it leaves. Then all threads make the next epoch and restore the center, which is
// collective; the worker is kept out meanwhile. It is a `call_mutex_` that keeps it out: a call of
// the worker's that is under way has thrown by then, since the epoch has ended, and waits for the
// next.
//
// Who leaves first has a change of its own made, after which every member has the whole center
// with what it has brought, then departs.
#include "ropewalk/elastic_async_ea.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/start_thread.h"
#include "policies/tensor_list.h"
#include "ropewalk/fork.h"

namespace ropewalk {
namespace {

using Time = std::chrono::steady_clock;

constexpr const char* kElasticName = "ElasticAsyncEa";
/// Of newcomers a member hears without being woken.
constexpr std::chrono::milliseconds kLookForNewcomers(20);
/// A newcomer that is stopped and does not come costs the members no more than every fifth moment.
constexpr int kPauseAfterAdmission = 4;

}  // namespace

template <class T>
class ElasticAsyncEa<T>::Impl {
 public:
  Impl(std::shared_ptr<Communicator> comm, int tau, double alpha, TensorList<T> parameters,
       std::chrono::nanoseconds timeout, bool has_state)
      : tau_(static_cast<uint64_t>(tau)),
        alpha_(alpha),
        timeout_(timeout),
        has_state_(has_state || comm->epoch().number == 0),
        comm_(std::move(comm)) {
    check_elastic(kElasticName, tau, alpha);
    note_membership();
    try {
      change(/*has_ended=*/false, parameters);
      is_new_ = false;
      thread_ = start_thread(kElasticName, "ropewalk-member", [this] { watch(); });
    } catch (const std::exception& error) {
      break_epoch(error.what());
      close();
      throw;
    }
  }

  ~Impl() {
    if (std::uncaught_exceptions() > exceptions_) abort("an exception ended it");
    leave();
  }

  bool is_forked() const { return process_.is_forked(); }
  uint64_t steps() const { return steps_; }
  Membership membership() const {
    std::lock_guard lock(comm_mutex_);
    return membership_;
  }

  bool average(TensorList<T> parameters) {
    throw_if_forked();
    throw_if_ended();
    const bool exchanges = (steps_ + 1) % tau_ == 0;
    if (exchanges) {
      bool is_begun = false;
      call([&] {
        if (is_begun && applied_elements_ > 0) return;  // the center has it
        is_begun = has_exchanged_ = true;
        applied_elements_ = 0;
        cut_off_ = parameters;
        ea_->average_parameters(parameters);
      });
    }
    ++steps_;
    return exchanges;
  }

  void finish(TensorList<T> parameters) {
    throw_if_forked();
    call([&] {
      ea_->synchronize_parameters(parameters);
      uint8_t has_center = 1;
      comm_->all_reduce_committed(std::span(&has_center, 1), kMin, timeout_);
      set_end(std::make_exception_ptr(refusal("it has finished")));
      ask(Request::finish);
    });
    thread_.join();
    try {
      comm_->agree(0, timeout_);  // nobody has to ask this rank any more
      ea_->leave();
    } catch (const std::exception& error) {
      log(LogLevel::warn, membership().rank, "after the end of an {}: {}", kElasticName,
          error.what());
    }
    close();
  }

  void leave() {
    throw_if_forked();
    if (!thread_.joinable()) return;
    ask(Request::leave);
    thread_.join();
  }

  void abort(std::string_view reason) {
    throw_if_forked();
    std::lock_guard lock(comm_mutex_);
    if (request_ != Request::none) return;
    abort_reason_ = reason;
    request_ = Request::abort;
    break_epoch(abort_reason_);
  }

 private:
  enum class Request { none, leave, finish, abort };

  static Error refusal(const char* reason) {
    return {ErrorCode::invalid_argument, kElasticName, reason,
            "make every call before finish() and leave()"};
  }
  void throw_if_forked() const {
    if (is_forked())
      throw Error(ErrorCode::invalid_argument, kElasticName,
                  "this process is a forked child; the policy is its parent's",
                  "make calls in the process that made the policy");
  }
  void throw_if_ended() const {
    if (has_end_.load(std::memory_order_acquire)) std::rethrow_exception(end_);
  }
  /// With call_mutex_. Calls throw the first from now on.
  void set_end(std::exception_ptr end) {
    if (has_end_) return;
    end_ = std::move(end);
    has_end_.store(true, std::memory_order_release);
    changed_.notify_all();
  }

  // ---- The worker ----

  /// Calls `body`, which throws where the epoch ends; then again in the next.
  template <class Body>
  void call(Body body) {
    std::unique_lock lock(call_mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !has_ended_ || has_end_; });  // a change has its deadline
      cut_off_ = {};
      throw_if_ended();
      try {
        body();
        cut_off_ = {};
        return;
      } catch (const std::exception& exception) {
        const auto* error = dynamic_cast<const Error*>(&exception);
        if (error == nullptr || !error->is_survivable()) {
          cut_off_ = {};
          throw;
        }
        has_ended_ = true;
        comm_->revoke(error->what());  // where only the policy's part of it has failed
      }
    }
  }

  void ask(Request request) {
    std::lock_guard lock(comm_mutex_);
    if (request_ == Request::none) request_ = request;
    try {
      comm_->interrupt_next_sender();
    } catch (const Error&) {  // it has left: the thread is at its end
    }
  }

  // ---- The member ----

  void watch() {
    try {
      for (;;) {
        wait_for_end();
        std::lock_guard lock(call_mutex_);
        if (request_ == Request::finish) return;
        if (request_ == Request::abort) throw_aborted();
        if (request_ == Request::leave) return depart();
        has_ended_ = true;
        change(true, cut_off_);
        has_ended_ = false;
        changed_.notify_all();
      }
    } catch (const std::exception& error) {
      std::lock_guard lock(call_mutex_);
      if (request_ == Request::leave)
        log(LogLevel::warn, membership().rank, "{} leaves: {}", kElasticName, error.what());
      set_end(std::current_exception());
      break_epoch(error.what());
      close();
    }
  }

  [[noreturn]] void throw_aborted() const {
    throw Error(Failure{
        ErrorCode::aborted, kElasticName, abort_reason_, {}, membership_.rank, membership_.rank});
  }

  /// Of the epoch, or there is something to be done.
  void wait_for_end() {
    try {
      while (request_ == Request::none) {
        if (comm_->pending() > 0 && Time::now() >= admits_at_)
          return comm_->revoke("others wait to join");
        comm_->next_sender(kLookForNewcomers);
      }
    } catch (const Error&) {  // a change finds out whether it is a death
    }
  }

  /// To an epoch with a restored center, however many die meanwhile. `has_ended`: this one has.
  /// `parameters`: in the constructor; or of the exchange that was cut off, if any.
  void change(bool has_ended, TensorList<T> parameters) {
    const Time::time_point begun = Time::now(), deadline = begun + timeout_;
    bool admits = false;
    for (;; has_ended = true) try {
        if (has_ended) admits = go_to_next_epoch(deadline - Time::now());
        meet((deadline - Time::now()) / 2);
        if (!ea_) {
          ea_.emplace(*comm_, 1, alpha_, AsyncEaOptions{.completes = true});
          if (has_state_) ea_->declare_state();  // a founder may come to this in a later epoch
        }
        applied_elements_ += ea_->resume(*comm_, parameters);
        // Else one that leaves now could be the only one that has restored the center.
        comm_->barrier();
        has_exchanged_ = false;
        break;
      } catch (const Error& error) {
        if (!error.is_survivable()) throw;
        if (request_ == Request::abort) throw_aborted();
        if (Time::now() >= deadline)
          throw Error(ErrorCode::timeout, kElasticName,
                      fmt::format("the members could not change in {} ms: {}",
                                  timeout_ / std::chrono::milliseconds(1), error.what()),
                      "set a longer timeout");
      }
    if (admits) admits_at_ = Time::now() + kPauseAfterAdmission * (Time::now() - begun);
  }

  /// Newcomers are taken in where a member has ended the epoch, not after a death: then nobody
  /// waits for them. Returns whether.
  bool go_to_next_epoch(std::chrono::nanoseconds limit) {
    const std::optional<Failure> failure = comm_->failure();
    const bool admits = failure && failure->code == ErrorCode::revoked;
    std::shared_ptr<Communicator> next = admits ? comm_->grow(limit) : comm_->shrink(limit);
    {
      std::lock_guard lock(comm_mutex_);
      comm_.swap(next);
      if (request_ == Request::abort) comm_->abort(abort_reason_);
    }
    note_membership();
    return admits;
  }

  void note_membership() {
    std::lock_guard lock(comm_mutex_);
    membership_ = {comm_->epoch().number, comm_->rank(), comm_->size()};
  }

  /// Whoever comes here goes on at once: what follows needs no deadline. A newcomer might not come.
  void meet(std::chrono::nanoseconds limit) {
    uint64_t most = steps_;
    comm_->run(Call::all_reduce(std::span(&most, 1), kMax), limit);
    if (is_new_) steps_ = most;
  }

  void depart() {
    if (has_exchanged_ && comm_->size() > 1) {
      comm_->revoke("a member leaves");
      change(true, {});
    }
    comm_->depart(timeout_);
    set_end(std::make_exception_ptr(refusal("it has left")));
    close();
  }

  void break_epoch(const std::string& reason) {
    if (comm_->failure()) return;
    try {
      comm_->abort(reason);
    } catch (const Error&) {  // it has left
    }
  }

  /// With the epoch ended, or everybody at it. So the others wait for this rank no more.
  void close() {
    try {
      if (comm_->failure() && ea_) ea_->abort("it has ended");
      ea_.reset();
      comm_->leave();
    } catch (const std::exception& error) {
      log(LogLevel::warn, membership().rank, "the end of an {}: {}", kElasticName, error.what());
    }
  }

  const uint64_t tau_;
  const double alpha_;
  const std::chrono::nanoseconds timeout_;
  const bool has_state_;  // as it was made
  const int exceptions_ = std::uncaught_exceptions();
  const ForkGuard process_;
  std::atomic<uint64_t> steps_{0};
  std::atomic<Request> request_{Request::none};  // set once, with comm_mutex_
  Time::time_point admits_at_{};                 // the thread's
  bool is_new_ = true;                           // of the constructor

  std::mutex call_mutex_;  // held in calls of ea_ and in changes; guards up to the next
  std::condition_variable changed_;
  bool has_ended_ = false;  // the epoch
  std::exception_ptr end_;  // of the policy; written before has_end_ is set, then only read
  std::atomic<bool> has_end_{false};
  bool has_exchanged_ = false;   // in this epoch
  TensorList<T> cut_off_;        // the worker's, of an exchange
  size_t applied_elements_ = 0;  // of that
  std::optional<AsyncEa<T>> ea_;

  mutable std::mutex comm_mutex_;       // taken last; guards what follows
  std::shared_ptr<Communicator> comm_;  // another one only with both; used with either
  Membership membership_;
  std::string abort_reason_;
  std::thread thread_;
};

template <class T>
ElasticAsyncEa<T>::ElasticAsyncEa(std::shared_ptr<Communicator> comm, int tau, double alpha,
                                  TensorList<T> parameters, std::chrono::nanoseconds timeout,
                                  bool has_state)
    : impl_(std::make_unique<Impl>(std::move(comm), tau, alpha, parameters, timeout, has_state)) {}

template <class T>
ElasticAsyncEa<T>::~ElasticAsyncEa() {
  if (impl_->is_forked()) abandon(std::shared_ptr<Impl>(std::move(impl_)));
}

template <class T>
bool ElasticAsyncEa<T>::average_parameters(TensorList<T> parameters) {
  return impl_->average(parameters);
}

template <class T>
uint64_t ElasticAsyncEa<T>::steps() const {
  return impl_->steps();
}

template <class T>
Membership ElasticAsyncEa<T>::membership() const {
  return impl_->membership();
}

template <class T>
void ElasticAsyncEa<T>::finish(TensorList<T> parameters) {
  impl_->finish(parameters);
}

template <class T>
void ElasticAsyncEa<T>::leave() {
  impl_->leave();
}

template <class T>
void ElasticAsyncEa<T>::abort(std::string_view reason) {
  impl_->abort(reason);
}

#define ROPEWALK_INSTANTIATE(name, type) template class ElasticAsyncEa<type>;
ROPEWALK_DATA_TYPES(ROPEWALK_INSTANTIATE, ROPEWALK_NOTHING)
#undef ROPEWALK_INSTANTIATE

}  // namespace ropewalk
