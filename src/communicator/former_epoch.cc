#include "communicator/former_epoch.h"

#include <chrono>
#include <utility>

#include "base/start_thread.h"
#include "ropewalk/status.h"

namespace ropewalk {
namespace {

/// The first calls link the ranks anew, which takes tens of milliseconds where many share a CPU.
constexpr std::chrono::milliseconds kFirstCalls{100};

}  // namespace

FormerEpoch::FormerEpoch(std::shared_ptr<void> former) : former_(std::move(former)) {
  try {
    thread_ = start_thread("shrink", "ropewalk-former", [this] {
      std::unique_lock lock(mutex_);
      ends_.wait_for(lock, kFirstCalls, [this] { return is_over_; });
      lock.unlock();
      former_.reset();
    });
  } catch (const Error&) {
    former_.reset();
  }
}

FormerEpoch::~FormerEpoch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace ropewalk
