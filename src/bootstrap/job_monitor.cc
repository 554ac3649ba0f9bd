#include "bootstrap/job_monitor.h"

#include "base/log.h"

namespace ropewalk::bootstrap {

JobMonitor::JobMonitor(int rank, int size)
    : rank_(rank), size_(size), left_(new std::atomic<bool>[static_cast<size_t>(size)]) {
  for (int r = 0; r < size; ++r) left_[static_cast<size_t>(r)] = false;
}

void JobMonitor::report(const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (stored_) return;
    Failure kept = failure;
    if (kept.code == ErrorCode::ok) kept.code = ErrorCode::aborted;
    if (kept.rank < 0) kept.rank = rank_;
    stored_ = std::make_unique<const Failure>(std::move(kept));
    failure_.store(stored_.get(), std::memory_order_release);
  }
  log(LogLevel::info, rank_, "the job has failed: {}", stored_->text());
  event_.set();
  news_.set();
}

bool JobMonitor::has_left(int peer) const noexcept {
  return peer >= 0 && peer < size_ &&
         left_[static_cast<size_t>(peer)].load(std::memory_order_acquire);
}

bool JobMonitor::mark_left(int rank) {
  if (left_[static_cast<size_t>(rank)].exchange(true, std::memory_order_acq_rel)) return false;
  event_.set();
  return true;
}

}  // namespace ropewalk::bootstrap
