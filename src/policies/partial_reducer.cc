// Partial all_reduces: see round_decider.h for when a round is summed.
//
// Rank 0's thread decides. Ranks tell it by a message that they have a contribution, or have
// finished; it broadcasts who is in the next round, and all threads sum what those have given.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "policies/round_decider.h"
#include "reduce/reduce.h"
#include "ropewalk/fork.h"
#include "ropewalk/partial.h"

namespace ropewalk::internal {
namespace {

constexpr const char* kPartialName = "PartialAllReduce";
constexpr int kReadyChannel = 0;
constexpr int64_t kHasFinished = -1;  // in place of a patience
constexpr std::chrono::hours kPatienceMax(24 * 365);

/// The first byte of a decision; a byte for each rank follows, as RoundDecider gives them.
enum class DecisionKind : uint8_t { round = 1, end = 2 };

[[noreturn]] void refuse_partial(std::string reason, std::string advice) {
  throw Error(ErrorCode::invalid_argument, kPartialName, std::move(reason), std::move(advice));
}

}  // namespace

class PartialReducer::Impl {
 public:
  Impl(Communicator& comm, size_t count, DataType type)
      : count_(count),
        type_(type),
        comm_(comm.split(0)),
        given_(comm_->allocate<std::byte>(bytes())),
        zeros_(comm_->allocate<std::byte>(bytes())),
        sum_(comm_->allocate<std::byte>(bytes())),
        with_given_(comm_->plan(sum_of(given_.data()))),
        with_zeros_(comm_->plan(sum_of(zeros_.data()))),
        held_sum_(bytes()),
        held_(nothing()),
        decision_(1 + static_cast<size_t>(comm_->size())),
        decider_(comm_->size()) {
    if (comm_->size() > 1)
      thread_ = start_thread(kPartialName, "ropewalk-rounds", [this] { serve(); });
  }

  ~Impl() { leave(); }

  void leave() noexcept {
    if (is_forked()) return;
    try {
      if (!finished_ && std::uncaught_exceptions() > exceptions_)
        comm_->abort("an exception ended its PartialAllReduce");
      else if (!finished_)
        finish(nullptr, count_);
    } catch (const std::exception& error) {
      const LogLevel level = comm_->failure() ? LogLevel::debug : LogLevel::warn;
      log(level, comm_->rank(), "the end of a PartialAllReduce: {}", error.what());
      comm_->abort("its PartialAllReduce has ended");  // nobody adds zeros for it any more
    }
    finished_ = true;
    if (thread_.joinable()) thread_.join();
  }

  bool is_forked() const { return process_.is_forked(); }

  PartialSum all_reduce(void* data, size_t count, std::chrono::nanoseconds patience) {
    require_open(count);
    if (comm_->size() == 1) return {{1}, 1};
    auto* const elements = static_cast<std::byte*>(data);
    std::copy_n(elements, bytes(), given_.data());
    {
      std::lock_guard lock(mutex_);
      if (error_) std::rethrow_exception(error_);
      waiting_ = elements;
      waits_ = true;
    }
    try {
      tell(std::clamp<std::chrono::nanoseconds>(patience, {}, kPatienceMax).count());
    } catch (...) {
      std::lock_guard lock(mutex_);
      waits_ = false;  // nothing is written to `data` any more
      throw;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !waits_ || error_; });
    if (std::exchange(waits_, false)) std::rethrow_exception(error_);
    return std::move(result_);
  }

  PartialSum finish(void* rest, size_t count) {
    require_open(count);
    finished_ = true;
    if (comm_->size() > 1) {
      {
        std::lock_guard lock(mutex_);
        if (error_) std::rethrow_exception(error_);
      }
      tell(kHasFinished);
      thread_.join();
      if (error_) std::rethrow_exception(error_);
    }
    if (rest != nullptr) {
      auto* const elements = static_cast<std::byte*>(rest);
      if (held_.rounds > 0)
        std::ranges::copy(held_sum_, elements);
      else
        std::fill_n(elements, bytes(), std::byte{});
    }
    comm_->leave();
    return held_;
  }

  void abort(const std::string& reason) {
    if (!is_forked()) comm_->abort(reason);
  }

 private:
  size_t bytes() const { return count_ * size_of(type_); }
  PartialSum nothing() const {
    return {std::vector<uint32_t>(static_cast<size_t>(comm_->size())), 0};
  }
  Call sum_of(const std::byte* in) const {
    Call call;
    call.in = in;
    call.out = sum_.data();
    call.count = call.in_count = call.out_count = count_;
    call.type = type_;
    return call;
  }

  void require_open(size_t count) const {
    if (is_forked())
      refuse_partial("this process is a forked child; it is its parent's",
                     "make calls in the process that made it");
    if (finished_) refuse_partial("this rank has finished", "make every call before finish()");
    if (count != count_)
      refuse_partial(fmt::format("{} elements were given, not {}", count, count_),
                     "give as many as it was made for");
  }

  /// Rank 0's thread that this rank has a contribution, or none any more.
  void tell(int64_t patience_ns) {
    if (comm_->rank() != 0) {
      comm_->run(Call::send(std::span<const int64_t>(&patience_ns, 1), 0, kReadyChannel));
      return;
    }
    {
      std::lock_guard lock(mutex_);
      told_here_ = patience_ns;
    }
    comm_->interrupt_next_sender(kReadyChannel);
  }

  // ---- The thread ----

  void serve() {
    try {
      for (;;) {
        if (comm_->rank() == 0) decide();
        share_decision();
        if (decision_[0] != static_cast<uint8_t>(DecisionKind::round)) return;
        const std::span contributors = std::span(decision_).subspan(1);
        const bool gives = contributors[static_cast<size_t>(comm_->rank())] != 0;
        (gives ? with_given_ : with_zeros_).run();
        take_sum(contributors, gives);
      }
    } catch (const std::exception& error) {
      comm_->abort(error.what());  // where it is not the communicator's failure: tells the others
      std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
    changed_.notify_all();
  }

  /// Waits as long as the ranks live.
  void share_decision() {
    constexpr std::chrono::hours kLong(1);
    const Call call = Call::broadcast(decision_);
    if (comm_->rank() == 0) return comm_->run(call);
    Work work = comm_->start(call);
    while (!work.wait_for(kLong)) {
    }
  }

  /// Adds the round to what this rank has not got yet, and gives it that where it waits for this
  /// round.
  void take_sum(std::span<const uint8_t> contributors, bool gives) {
    std::lock_guard lock(mutex_);
    for (size_t rank = 0; rank < contributors.size(); ++rank)
      held_.contributions[rank] += contributors[rank];
    ++held_.rounds;
    std::byte* const to = gives && waits_ ? waiting_ : held_sum_.data();
    const std::array<std::byte*, 1> out{to};
    const std::array<const std::byte*, 2> in{sum_.data(), held_sum_.data()};
    reduce(out, std::span(in).first(held_.rounds > 1 ? 2 : 1), count_, type_, kSum);
    if (!gives || !waits_) return;
    result_ = std::exchange(held_, nothing());
    waits_ = false;
    changed_.notify_all();
  }

  /// Rank 0: what is next, into decision_.
  void decide() {
    constexpr std::chrono::nanoseconds kLong = std::chrono::hours(1);
    for (;;) {
      take_told_here();
      const int64_t now_ns = clock_.now_ns();
      if (decider_.all_have_finished()) {
        decision_[0] = static_cast<uint8_t>(DecisionKind::end);
        return;
      }
      if (const auto contributors = decider_.decide(now_ns)) {
        decision_[0] = static_cast<uint8_t>(DecisionKind::round);
        std::ranges::copy(*contributors, decision_.begin() + 1);
        return;
      }
      const std::chrono::nanoseconds left(decider_.deadline_ns() - now_ns);
      if (const auto rank = comm_->next_sender(std::min(left, kLong), kReadyChannel)) {
        int64_t patience_ns = 0;
        comm_->run(Call::recv(std::span(&patience_ns, 1), *rank, kReadyChannel));
        note(*rank, patience_ns);
      }
    }
  }

  void take_told_here() {
    std::optional<int64_t> told;
    {
      std::lock_guard lock(mutex_);
      told = std::exchange(told_here_, {});
    }
    if (told) note(0, *told);
  }

  void note(int rank, int64_t patience_ns) {
    if (patience_ns == kHasFinished)
      decider_.note_finished(rank);
    else
      decider_.note_ready(rank, clock_.now_ns() + patience_ns);
  }

  const size_t count_;
  const DataType type_;
  const int exceptions_ = std::uncaught_exceptions();
  const ForkGuard process_;
  const MonotonicClock clock_;
  bool finished_ = false;
  const std::unique_ptr<Communicator> comm_;
  // What this rank brings next, while it waits; what it brings else; the sum of a round.
  const Buffer<std::byte> given_, zeros_, sum_;
  Plan with_given_, with_zeros_;  // they use the buffers: die first

  std::mutex mutex_;  // guards what follows, as long as the thread lives
  std::condition_variable changed_;
  bool waits_ = false;                // a call has told rank 0, and waits for its round
  std::byte* waiting_ = nullptr;      // its data
  PartialSum result_;                 // of the last call
  std::vector<std::byte> held_sum_;   // of rounds since the last that gave this rank a sum
  PartialSum held_;                   // which
  std::optional<int64_t> told_here_;  // on rank 0, as a message from itself
  std::exception_ptr error_;          // what has ended the thread

  // The thread's own:
  std::vector<uint8_t> decision_;
  RoundDecider decider_;
  std::thread thread_;
};

PartialReducer::PartialReducer(Communicator& comm, size_t count, DataType type)
    : impl_(std::make_unique<Impl>(comm, count, type)) {}

PartialReducer::~PartialReducer() {
  if (impl_->is_forked()) abandon(std::shared_ptr<Impl>(std::move(impl_)));
}

PartialSum PartialReducer::all_reduce(void* data, size_t count, std::chrono::nanoseconds patience) {
  return impl_->all_reduce(data, count, patience);
}

PartialSum PartialReducer::finish(void* rest, size_t count) {
  return impl_->finish(rest, count);
}

void PartialReducer::leave() noexcept {
  impl_->leave();
}

void PartialReducer::abort(const std::string& reason) {
  impl_->abort(reason);
}

}  // namespace ropewalk::internal
