// The end of an epoch that is followed by another.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace ropewalk {

/// Keeps what an epoch has used for a moment: to unmap its memory and to close its connections
/// takes milliseconds, in which the next epoch's first calls are made.
class FormerEpoch {
 public:
  /// `former` goes on a thread of its own after a pause, or at once where no thread is to be had.
  explicit FormerEpoch(std::shared_ptr<void> former);
  FormerEpoch(const FormerEpoch&) = delete;
  FormerEpoch& operator=(const FormerEpoch&) = delete;
  /// Returns once it has gone.
  ~FormerEpoch();

 private:
  std::shared_ptr<void> former_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_over_ = false;  // guarded by mutex_
  std::thread thread_;    // last: it uses the others
};

}  // namespace ropewalk
