// Where the members of a group that is made anew meet: each gives a handle, and the first of them
// listens at what its handle names.
#pragma once

#include <ropewalk/rendezvous.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "meeting.h"

namespace ropewalk::pytorch {

/// This process's. Threads: any, one meeting at a time.
class ReconfigureRendezvous {
 public:
  /// `number`: handles sort by it.
  explicit ReconfigureRendezvous(int number) : number_(number) {}

  /// One line of printable characters. Good until a meeting has succeeded. Whoever has it can join
  /// (Rendezvous::unique_id).
  std::string handle();
  /// Meets those who gave `handles`, whose places in the list are the ranks; this one among them.
  /// All pass the same list and `uuid`, which must be fresh. Members of other meetings are turned
  /// away, and come again until `limit`. `timeout`: of the communicator. Throws Error, or
  /// c10::Error where an argument is wrong.
  Joined meet(int64_t uuid, const std::vector<std::string>& handles,
              std::chrono::milliseconds limit, std::chrono::milliseconds timeout);

 private:
  std::string own_handle();
  Joined try_once(const std::string& common, const std::vector<std::string>& handles, int rank,
                  std::chrono::milliseconds limit, std::chrono::milliseconds timeout);

  const int number_;
  std::mutex mutex_;                      // guards what follows
  std::optional<Rendezvous> rendezvous_;  // listens from the first `handle` on
  std::set<int64_t> used_;
};

}  // namespace ropewalk::pytorch
