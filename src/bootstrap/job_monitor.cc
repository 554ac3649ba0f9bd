#include "bootstrap/job_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/log.h"

namespace ropewalk::bootstrap {
namespace {

const MonotonicClock kMonotonic;

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

JobMonitor::JobMonitor(int rank, int size) : JobMonitor(rank, size, kMonotonic) {}

JobMonitor::JobMonitor(int rank, int size, const Clock& clock)
    : JobMonitor(rank, size, clock, nullptr, 0, {}) {}

JobMonitor::JobMonitor(JobMonitor& whole, uint32_t part, std::vector<int> members)
    : JobMonitor(rank_among(members, whole.rank_), static_cast<int>(members.size()), whole.clock_,
                 &whole, part, members) {}

JobMonitor::JobMonitor(int rank, int size, const Clock& clock, JobMonitor* whole, uint32_t part,
                       std::vector<int> members)
    : rank_(rank),
      size_(size),
      clock_(clock),
      whole_(whole),
      part_(part),
      members_(std::move(members)),
      left_(static_cast<size_t>(size)),
      calls_(static_cast<size_t>(size)),
      answers_(static_cast<size_t>(size)),
      own_events_(whole == nullptr ? std::make_unique<Events>() : nullptr),
      events_(whole == nullptr ? *own_events_ : whole->events_) {
  assert(rank >= 0 && rank < size && (whole == nullptr) == (part == 0));
  own_waits_.reserve(whole == nullptr ? kWaitsMax : kPartWaitsMax);
}

void JobMonitor::tell_control_thread() {
  if (whole_ != nullptr) {
    const std::lock_guard lock(whole_->mutex_);
    whole_->news_of_parts_.insert(part_);
  }
  events_.news.set();
}

std::set<uint32_t> JobMonitor::take_news_of_parts() {
  const std::lock_guard lock(mutex_);
  return std::exchange(news_of_parts_, {});
}

void JobMonitor::report_lost(const Failure& failure) {
  if (whole_ != nullptr)
    whole_->report(numbered_as_in_whole(failure, members_));
  else
    report(failure);
}

bool JobMonitor::keep(const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (stored_) return false;
    Failure kept = Error(failure).failure();  // its texts as they may be shown: callbacks get them
    if (kept.code == ErrorCode::ok) kept.code = ErrorCode::aborted;
    if (kept.rank < 0) kept.rank = rank_;
    stored_ = std::make_unique<const Failure>(std::move(kept));
    failure_.store(stored_.get(), std::memory_order_release);
  }
  log(LogLevel::info, rank_, "the {} has failed: {}", whole_ == nullptr ? "job" : "part",
      stored_->text());
  events_.event.set();
  tell_control_thread();
  return true;
}

void JobMonitor::report_silent(const Failure& failure) {
  assert(failure.peer >= 0);
  if (whole_ != nullptr) return whole_->report_silent(numbered_as_in_whole(failure, members_));
  {
    const std::lock_guard lock(mutex_);
    if (stored_ || silence_) return;
    silence_ = failure;
  }
  tell_control_thread();
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

void JobMonitor::note_waits(std::span<const Wait> waits) {
  assert(waits.size() <= kWaitsMax);
  const std::lock_guard lock(mutex_);
  own_waits_.assign(waits.begin(), waits.end());
}

void JobMonitor::ask_who_waits() {
  {
    const std::lock_guard lock(mutex_);
    asks_ = true;
  }
  tell_control_thread();
}

bool JobMonitor::take_question() {
  const std::lock_guard lock(mutex_);
  return std::exchange(asks_, false);
}

RankWaits JobMonitor::answer() const {
  const std::lock_guard lock(mutex_);
  RankWaits own{0, started_.load(std::memory_order_relaxed), own_waits_};
  const int64_t now_ns = clock_.now_ns();
  std::erase_if(own.waits,
                [&](const Wait& wait) { return wait.until_ns != 0 && wait.until_ns < now_ns; });
  for (Wait& wait : own.waits) wait.since_ns = std::max<int64_t>(0, now_ns - wait.since_ns);
  return own;
}

void JobMonitor::note_answer(int rank, RankWaits answer) {
  answer.heard_ns = clock_.now_ns();
  for (Wait& wait : answer.waits) wait.since_ns = answer.heard_ns - wait.since_ns;
  const std::lock_guard lock(mutex_);
  answers_[static_cast<size_t>(rank)] = std::move(answer);
}

std::vector<RankWaits> JobMonitor::waits() const {
  const std::lock_guard lock(mutex_);
  return answers_;
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
  events_.event.set();
  return true;
}

bool JobMonitor::agrees_with_first_leave(const CallsMade& calls) const {
  const std::lock_guard lock(mutex_);
  return first_left_ >= 0 && calls_[static_cast<size_t>(first_left_)] == calls;
}

Failure seen_from_part(Failure failure, const std::vector<int>& members) {
  const auto in_part = [&](int rank) { return rank_among(members, rank); };
  failure.rank = in_part(failure.rank);
  failure.peer = in_part(failure.peer);
  std::ranges::transform(failure.peers, failure.peers.begin(), in_part);
  std::erase(failure.peers, -1);
  std::ranges::sort(failure.peers);
  return failure;
}

Failure numbered_as_in_whole(Failure failure, const std::vector<int>& members) {
  const auto in_whole = [&](int rank) {
    assert(rank < static_cast<int>(members.size()));
    return rank < 0 ? rank : members[static_cast<size_t>(rank)];
  };
  failure.rank = in_whole(failure.rank);
  failure.peer = in_whole(failure.peer);
  std::ranges::transform(failure.peers, failure.peers.begin(), in_whole);
  std::ranges::sort(failure.peers);
  return failure;
}

}  // namespace ropewalk::bootstrap
