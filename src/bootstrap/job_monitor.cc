#include "bootstrap/job_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <numeric>
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

/// Two ranks that left have not called the same.
Failure mismatch_of(const CallsMade& a, int rank_a, const CallsMade& b, int rank_b) {
  std::string reason = describe(a, rank_a) + "; " + describe(b, rank_b);
  if (a.count == b.count && a.last == b.last) reason += "; a call before it differs";
  return Failure{ErrorCode::mismatch, "leave", std::move(reason), kMismatchAdvice, -1, rank_b};
}

/// Null: of a part, which numbers its ranks itself.
int rank_in(const std::shared_ptr<EpochMonitor>& epoch, int rank) {
  const int number = epoch ? rank_among(epoch->members(), rank) : rank;
  return number < 0 ? rank : number;
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
      whole_epoch_(whole == nullptr ? 0 : whole->epoch()),
      left_(static_cast<size_t>(size)),
      calls_(static_cast<size_t>(size)),
      answers_(static_cast<size_t>(size)),
      own_events_(whole == nullptr ? std::make_unique<Events>() : nullptr),
      events_(whole == nullptr ? *own_events_ : whole->events_) {
  assert(rank >= 0 && rank < size && (whole == nullptr) == (part == 0));
  own_waits_.reserve(whole == nullptr ? kWaitsMax : kPartWaitsMax);
  if (whole != nullptr) return;
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  of_epoch_ = std::make_shared<EpochMonitor>(*this, 0, std::move(all));
}

void JobMonitor::set_before_failure(std::function<void(const Failure&, uint32_t)> before_failure) {
  const std::lock_guard lock(mutex_);
  assert(whole_ == nullptr);
  before_failure_ = std::move(before_failure);
}

void JobMonitor::tell_control_thread() {
  if (whole_ != nullptr) {
    const std::lock_guard lock(whole_->mutex_);
    whole_->news_of_parts_.insert(part_);
  }
  events_.news.set();
}

std::set<uint32_t> JobMonitor::take_changed_parts() {
  const std::lock_guard lock(mutex_);
  return std::exchange(news_of_parts_, {});
}

void JobMonitor::report_lost(const Failure& failure) {
  if (whole_ != nullptr)
    whole_->report_in(whole_epoch_, numbered_as_in_whole(failure, members_));
  else
    report(failure);
}

std::shared_ptr<EpochMonitor> JobMonitor::of_epoch() const {
  const std::lock_guard lock(mutex_);
  return of_epoch_;
}

std::shared_ptr<EpochMonitor> JobMonitor::renew(std::vector<int> members) {
  const std::lock_guard lock(mutex_);
  assert(whole_ == nullptr && stored_);
  for (int rank = 0; rank < size_; ++rank)
    if (rank_among(members, rank) < 0) left_[static_cast<size_t>(rank)] = true;
  former_.push_back(std::move(stored_));
  failure_.store(nullptr, std::memory_order_release);
  silence_.reset();
  first_left_ = -1;
  asks_ = false;
  own_waits_.clear();
  for (RankWaits& answer : answers_) answer = {};
  const uint32_t next = epoch() + 1;
  epoch_.store(next, std::memory_order_release);
  return of_epoch_ = std::make_shared<EpochMonitor>(*this, next, std::move(members));
}

int JobMonitor::rank_in_epoch(int rank) const {
  return whole_ != nullptr ? whole_->rank_in_epoch(rank) : rank_in(of_epoch(), rank);
}

bool JobMonitor::keep_in(std::optional<uint32_t> epoch, const Failure& failure) {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    if (stored_ || (epoch && *epoch != this->epoch())) return false;
    Failure kept = Error(failure).failure();  // its texts as they may be shown: callbacks get them
    if (kept.code == ErrorCode::ok) kept.code = ErrorCode::aborted;
    if (kept.rank < 0) kept.rank = rank_;
    stored_ = std::make_unique<const Failure>(std::move(kept));
    if (before_failure_) before_failure_(*stored_, this->epoch());
    // The epoch's first: who sees that the job has failed asks the epoch why.
    if (of_epoch_) of_epoch_->set(*stored_);
    failure_.store(stored_.get(), std::memory_order_release);
    text = stored_->text();
  }
  log(LogLevel::info, rank_, "the {} has failed: {}", whole_ == nullptr ? "job" : "part", text);
  wake();
  tell_control_thread();
  return true;
}

void JobMonitor::report_silent(const Failure& failure) {
  assert(failure.peer >= 0);
  if (whole_ != nullptr)
    return whole_->report_silent_in(whole_epoch_, numbered_as_in_whole(failure, members_));
  report_silent_in(epoch(), failure);
}

void JobMonitor::report_silent_in(uint32_t epoch, const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (stored_ || silence_ || epoch != this->epoch()) return;
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

bool JobMonitor::note_left(int rank, CallsMade calls) {
  std::optional<Failure> mismatch;
  {
    const std::lock_guard lock(mutex_);
    if (left_[static_cast<size_t>(rank)].load(std::memory_order_relaxed)) return false;
    if (first_left_ < 0) first_left_ = rank;
    const CallsMade& first = calls_[static_cast<size_t>(first_left_)];
    if (rank != first_left_ && (first.count != calls.count || first.digest != calls.digest)) {
      mismatch =
          mismatch_of(first, rank_in(of_epoch_, first_left_), calls, rank_in(of_epoch_, rank));
      mismatch->peer = rank;
    }
    calls_[static_cast<size_t>(rank)] = std::move(calls);
    left_[static_cast<size_t>(rank)].store(true, std::memory_order_release);
  }
  if (mismatch) report(*mismatch);
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
