// Ranks that their launcher says have ended, and who waits for them meanwhile.
#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>

#include "ropewalk/status.h"

namespace ropewalk::bootstrap {

struct EndedRank {
  int rank = 0;
  std::string how;  // in the launcher's words: "EXIT_NONZERO_TERM, exit code 3"
};

/// Keeps the first: without it the ranks of a launcher do not meet any more, and who hears of it
/// may end, too. Thread-safe.
class EndedRanks {
 public:
  using Listener = std::function<void(const EndedRank&)>;

  /// Of a launcher's thread.
  void note(EndedRank ended);

  /// As long as it lives, `listener` is called once there is one, at once where there is one
  /// already: under the lock of `ranks`, in the thread that notes it or in this. It must not call
  /// `ranks`. Where it has ended, the listener does not run any more.
  class Listening {
   public:
    Listening(EndedRanks& ranks, Listener listener);
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;
    ~Listening();

   private:
    EndedRanks& ranks_;
    std::list<Listener>::iterator place_;
  };

 private:
  std::mutex mutex_;
  std::optional<EndedRank> first_;  // guarded by mutex_
  std::list<Listener> listeners_;   // guarded by mutex_
};

/// Of a join that waits for it. `rank`: who is told.
Failure ended_before_joining(const EndedRank& ended, int rank);

}  // namespace ropewalk::bootstrap
