#include "bootstrap/job_monitor.h"

#include <fmt/format.h>

#include <cassert>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace ropewalk::bootstrap {
namespace {

constexpr size_t kQuestionsKept = 16;
/// Who is still behind says so again: questions are repeated.
constexpr int64_t kAnswerHolds_ns = 400 * kMillisecond_ns;

std::string describe(const CallsMade& calls, int rank) {
  if (calls.count == 0) return fmt::format("rank {} left without a collective call", rank);
  return fmt::format("rank {} left after {} collective calls, the last of them {}", rank,
                     calls.count, calls.last);
}

/// Whether two ranks that left had called the same.
std::optional<Failure> compare(const CallsMade& a, int rank_a, const CallsMade& b, int rank_b) {
  if (rank_a == rank_b || (a.count == b.count && a.digest == b.digest)) return {};
  std::string reason = describe(a, rank_a) + "; " + describe(b, rank_b);
  if (a.count == b.count && a.last == b.last) reason += "; a call before it differs";
  return Failure{ErrorCode::mismatch, "leave", std::move(reason), kMismatchAdvice, -1, rank_b};
}

}  // namespace

JobMonitor::JobMonitor(int rank, int size)
    : rank_(rank),
      size_(size),
      left_(static_cast<size_t>(size)),
      calls_(static_cast<size_t>(size)) {}

void JobMonitor::report(const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (stored_) return;
    Failure kept = Error(failure).failure();  // its texts as they may be shown: callbacks get them
    if (kept.code == ErrorCode::ok) kept.code = ErrorCode::aborted;
    if (kept.rank < 0) kept.rank = rank_;
    stored_ = std::make_unique<const Failure>(std::move(kept));
    failure_.store(stored_.get(), std::memory_order_release);
  }
  log(LogLevel::info, rank_, "the job has failed: {}", stored_->text());
  event_.set();
  news_.set();
}

void JobMonitor::report_silent(const Failure& failure) {
  assert(failure.peer >= 0);
  {
    const std::lock_guard lock(mutex_);
    if (stored_ || silence_) return;
    silence_ = failure;
  }
  news_.set();
}

std::optional<Failure> JobMonitor::silence() const {
  const std::lock_guard lock(mutex_);
  return stored_ ? std::nullopt : silence_;
}

bool JobMonitor::has_left(int peer) const noexcept {
  return peer >= 0 && peer < size_ &&
         left_[static_cast<size_t>(peer)].load(std::memory_order_acquire);
}

std::optional<CallsMade> JobMonitor::calls_of(int peer) const {
  if (!has_left(peer)) return {};
  const std::lock_guard lock(mutex_);
  return calls_[static_cast<size_t>(peer)];
}

void JobMonitor::ask_who_is_behind(uint32_t sequence) {
  {
    const std::lock_guard lock(mutex_);
    question_ = sequence;
  }
  news_.set();
}

std::optional<uint32_t> JobMonitor::take_question() {
  const std::lock_guard lock(mutex_);
  return std::exchange(question_, std::nullopt);
}

std::optional<uint32_t> JobMonitor::calls_if_behind(uint32_t sequence) const {
  const uint32_t calls = started_.load(std::memory_order_relaxed);
  if (static_cast<int32_t>(calls - sequence) > 0) return {};
  return calls;
}

void JobMonitor::note_behind(uint32_t sequence, const RankBehind& answer) {
  const std::lock_guard lock(mutex_);
  behind_[sequence][answer.rank] = {answer, MonotonicClock().now_ns()};
  // A question is about one of the few collectives under way.
  if (behind_.size() > kQuestionsKept) behind_.erase(behind_.begin());
}

std::vector<RankBehind> JobMonitor::behind(uint32_t sequence) const {
  const std::lock_guard lock(mutex_);
  const int64_t since_ns = MonotonicClock().now_ns() - kAnswerHolds_ns;
  std::vector<RankBehind> ranks;
  if (const auto found = behind_.find(sequence); found != behind_.end())
    for (const auto& [rank, told] : found->second)
      if (told.at_ns >= since_ns) ranks.push_back(told.answer);
  return ranks;
}

bool JobMonitor::mark_left(int rank, CallsMade calls) {
  std::optional<Failure> mismatch;
  {
    const std::lock_guard lock(mutex_);
    if (left_[static_cast<size_t>(rank)].load(std::memory_order_relaxed)) return false;
    if (first_left_ < 0) first_left_ = rank;
    mismatch = compare(calls_[static_cast<size_t>(first_left_)], first_left_, calls, rank);
    calls_[static_cast<size_t>(rank)] = std::move(calls);
    left_[static_cast<size_t>(rank)].store(true, std::memory_order_release);
  }
  if (mismatch) report(*mismatch);
  event_.set();
  return true;
}

}  // namespace ropewalk::bootstrap
