// Members of a job and how they change: an epoch is a fixed list of members. A death, or whoever
// calls `revoke`, ends it, and `shrink` makes the next of those who are left.
//
//   for (;;) try {
//       comm->all_reduce(gradients);
//       step();
//     } catch (const ropewalk::Error& error) {
//       if (!error.is_survivable()) throw;
//       comm = comm->shrink();                    // ranks are numbered anew
//       load_last_step(comm->epoch().departures);  // what is to be done again
//     }
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ropewalk {

/// A member of the epoch before that is not in this one.
struct Departure {
  int rank = -1;           // in the epoch before
  int64_t pid = 0;         // its process
  std::string host_name;   // where that is, or was
  bool has_ended = false;  // its process, or it left; else it did not answer in time
};

/// What `agree` gives: the same on all members that take part.
struct Agreed {
  uint64_t bits = 0;       // the AND of theirs
  std::vector<int> ranks;  // who they are, ascending
};

struct Epoch {
  int number = 0;  // the job starts with 0
  /// By rank: its number in the epoch before, -1 of a newcomer; of epoch 0: the same.
  std::vector<int> former_ranks;
  std::vector<Departure> departures;       // a newcomer hears of none
  std::string reason;                      // why the epoch before ended
  std::chrono::nanoseconds change_time{};  // from shrink's call to its return on this rank
  bool keeps_connections = false;          // the members go on over those of the epoch before
};

}  // namespace ropewalk
