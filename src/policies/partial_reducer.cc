// Partial all_reduces: see round_decider.h for when a round is summed.
//
// Rank 0 decides. Ranks tell it by a message that they have a contribution, or have finished; it
// broadcasts who is in the next round, and all sum what those have given.
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
constexpr std::chrono::nanoseconds kPatienceMax = std::chrono::hours(24 * 365);
constexpr std::chrono::nanoseconds kLong = std::chrono::hours(1);

/// The first byte of a decision; what RoundDecider gives follows, a byte for each rank.
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
        zeros_(comm_->allocate<std::byte>(bytes())),
        sum_(comm_->allocate<std::byte>(bytes())),
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
    const int64_t patience_ns =
        std::clamp(patience, std::chrono::nanoseconds(), kPatienceMax).count();
    take_part(patience_ns, static_cast<std::byte*>(data), [this] { return !gives_; });
    return std::move(result_);
  }

  PartialSum finish(void* rest, size_t count) {
    require_open(count);
    finished_ = true;
    if (comm_->size() > 1) {
      take_part(kHasFinished, nullptr, [this] { return ended_; });
      thread_.join();
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
  /// What a thread waits for, without turn_.
  struct Wait {
    std::shared_ptr<Work> decision;    // not rank 0
    std::chrono::nanoseconds limit{};  // rank 0: for the next message, of which `sender` tells
    uint64_t messages_read = 0;        // when it began
    std::optional<int> sender = {};
  };

  size_t bytes() const { return count_ * size_of(type_); }
  PartialSum nothing() const {
    return {std::vector<uint32_t>(static_cast<size_t>(comm_->size())), 0};
  }
  bool decides() const { return comm_->rank() == 0; }

  void require_open(size_t count) const {
    if (is_forked())
      refuse_partial("this process is a forked child; it is its parent's",
                     "make calls in the process that made it");
    if (finished_) refuse_partial("this rank has finished", "make every call before finish()");
    if (count != count_)
      refuse_partial(fmt::format("{} elements were given, not {}", count, count_),
                     "give as many as it was made for");
  }

  // ---- The caller's thread ----

  /// Tells that this rank has `data` to give, or nothing any more, and takes part until `done()`,
  /// which is asked under turn_. What fails after that is the next call's error.
  template <class Done>
  void take_part(int64_t patience_ns, std::byte* data, const Done& done) {
    {
      std::lock_guard lock(turn_);
      if (error_) std::rethrow_exception(error_);
      caller_takes_part_ = true;
      given_ = data;
      gives_ = patience_ns != kHasFinished;
      if (decides()) note(0, patience_ns);
    }
    try {
      if (!decides())
        comm_->run(Call::send(std::span<const int64_t>(&patience_ns, 1), 0, kReadyChannel));
      Wait wait;
      const auto advances = [&] {
        std::lock_guard lock(turn_);
        advance(wait);
        return !ended_ && !done();
      };
      while (advances()) wait_for(wait, false);
    } catch (const std::exception& error) {
      fail(error.what());
      std::lock_guard lock(turn_);
      if (!done()) throw;
      return;
    }
    std::lock_guard lock(turn_);
    caller_takes_part_ = false;
    caller_has_gone_.notify_one();
    // The thread waits for messages, and has not heard of the last deadline, or of the end.
    if (decides() && (ended_ || decider_.deadline_ns() != RoundDecider::kNever_ns))
      comm_->interrupt_next_sender(kReadyChannel);
  }

  // ---- The library's thread ----

  void serve() {
    try {
      Wait wait;
      const auto advances = [&] {
        std::unique_lock lock(turn_);
        caller_has_gone_.wait(lock, [this] { return !caller_takes_part_; });
        advance(wait);
        return !ended_;
      };
      while (advances()) wait_for(wait, true);
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }

  // ---- Either thread, without turn_ ----

  /// As long as the ranks live. In the background: makes room for threads that compute.
  void wait_for(Wait& wait, bool in_background) {
    if (decides())
      wait.sender = comm_->next_sender(wait.limit, kReadyChannel);
    else if (in_background)
      wait.decision->wait_for(kLong);
    else
      wait.decision->wait(kPatienceMax);
  }

  /// What has gone wrong has for both threads, and on all ranks.
  void fail(const char* reason) {
    comm_->abort(reason);  // where it is not the communicator's failure: tells the others
    std::lock_guard lock(turn_);
    if (!error_) error_ = std::current_exception();
    caller_takes_part_ = false;
    caller_has_gone_.notify_one();
  }

  // ---- Either thread, under turn_ ----

  /// Does what can be done without waiting, after `wait`, which then tells what to wait for.
  void advance(Wait& wait) {
    if (error_) std::rethrow_exception(error_);
    if (ended_) return;
    if (decides() ? decide(wait) : has_decision(wait)) run_decision();
    if (ended_) return;
    if (!decides() && !pending_)
      pending_ = std::make_shared<Work>(comm_->start(Call::broadcast(decision_)));
    wait = {.decision = pending_, .messages_read = messages_read_};
    if (decides())
      wait.limit = std::chrono::nanoseconds(
          std::clamp<int64_t>(decider_.deadline_ns() - clock_.now_ns(), 0, kLong.count()));
  }

  /// Not rank 0: whether decision_ has come. The other thread may have acted on the one that this
  /// one has waited for.
  bool has_decision(const Wait& wait) {
    if (!pending_ || pending_ != wait.decision || !pending_->test()) return false;
    pending_.reset();
    return true;
  }

  /// Rank 0: whether it is time, and then for what, into decision_.
  bool decide(const Wait& wait) {
    if (wait.sender && wait.messages_read == messages_read_) {
      int64_t patience_ns = 0;
      comm_->run(Call::recv(std::span(&patience_ns, 1), *wait.sender, kReadyChannel));
      ++messages_read_;
      note(*wait.sender, patience_ns);
    }
    if (decider_.all_have_finished()) {
      decision_[0] = static_cast<uint8_t>(DecisionKind::end);
    } else {
      const auto contributors = decider_.decide(clock_.now_ns());
      if (!contributors) return false;
      decision_[0] = static_cast<uint8_t>(DecisionKind::round);
      std::ranges::copy(*contributors, decision_.begin() + 1);
    }
    comm_->run(Call::broadcast(decision_));
    return true;
  }

  void note(int rank, int64_t patience_ns) {
    if (patience_ns == kHasFinished)
      decider_.note_finished(rank);
    else
      decider_.note_ready(rank, clock_.now_ns() + patience_ns);
  }

  void run_decision() {
    if (decision_[0] != static_cast<uint8_t>(DecisionKind::round)) {
      ended_ = true;
      return;
    }
    const std::span contributors = std::span(decision_).subspan(1);
    const bool gives = contributors[static_cast<size_t>(comm_->rank())] != 0;
    assert(!gives || gives_);
    Call call;
    call.in = gives ? given_ : zeros_.data();
    call.out = sum_.data();
    call.count = call.in_count = call.out_count = count_;
    call.type = type_;
    comm_->run(call);
    take_sum(contributors, gives);
  }

  /// Adds the round to what this rank has not got yet, and gives it all where it was in the round.
  void take_sum(std::span<const uint8_t> contributors, bool gives) {
    for (size_t rank = 0; rank < contributors.size(); ++rank)
      held_.contributions[rank] += contributors[rank];
    ++held_.rounds;
    const std::array<std::byte*, 1> to{gives ? given_ : held_sum_.data()};
    const std::array<const std::byte*, 2> from{sum_.data(), held_sum_.data()};
    reduce(to, std::span(from).first(held_.rounds > 1 ? 2 : 1), count_, type_, kSum);
    if (!gives) return;
    result_ = std::exchange(held_, nothing());
    gives_ = false;
    given_ = nullptr;
  }

  const size_t count_;
  const DataType type_;
  const int exceptions_ = std::uncaught_exceptions();
  const ForkGuard process_;
  const MonotonicClock clock_;
  bool finished_ = false;  // the caller's thread has called finish
  const std::unique_ptr<Communicator> comm_;

  // Whoever has it runs rounds: the caller's thread as long as it is in a call, which spares waking
  // another; else the library's.
  std::mutex turn_;
  std::condition_variable caller_has_gone_;
  // Under it:
  bool caller_takes_part_ = false;
  bool gives_ = false;          // a call waits for its round
  std::byte* given_ = nullptr;  // its data
  PartialSum result_;           // of the last call
  const Buffer<std::byte> zeros_, sum_;
  std::vector<std::byte> held_sum_;  // of rounds since the last that gave this rank a sum
  PartialSum held_;                  // which
  std::vector<uint8_t> decision_;    // a DecisionKind, and what RoundDecider gives
  std::shared_ptr<Work> pending_;    // not rank 0: the next decision
  RoundDecider decider_;             // rank 0's, as the next
  uint64_t messages_read_ = 0;
  bool ended_ = false;        // all ranks have finished
  std::exception_ptr error_;  // what has ended it
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
