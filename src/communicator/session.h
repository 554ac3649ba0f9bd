// What the communicators of a process share that are of one job: its transports and connections,
// the control tree, the memory that is registered, and the threads that drive all of it.
#pragma once

#include <atomic>
#include <cassert>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "bootstrap/monitor.h"
#include "bootstrap/newcomers.h"
#include "bootstrap/part.h"
#include "communicator/former_epoch.h"
#include "engine/driver.h"
#include "job/job.h"

namespace ropewalk {

/// Who is in a communicator, by the numbers that ranks have in it.
struct Members {
  int rank = 0;             // this one
  std::vector<int> in_job;  // by rank: its number in the job
  Placement placement;
  int local_rank = 0, local_size = 1;

  int size() const { return static_cast<int>(in_job.size()); }
  /// Of members, as the job numbers them.
  std::vector<int> job_ranks(std::vector<int> ranks) const {
    for (int& member : ranks) member = in_job[static_cast<size_t>(member)];
    return ranks;
  }
  /// The other way. Those who are no members are left out.
  std::vector<int> ranks_of(std::vector<int> job_ranks) const {
    for (int& member : job_ranks) member = rank_among(in_job, member);
    std::erase(job_ranks, -1);
    return job_ranks;
  }
};
Members members_of(const Job& job);
/// Those of `whole` that are in `ranks`, in that order; this rank is among them.
Members part_of(const Job& job, const Members& whole, const std::vector<int>& ranks);

/// Ends an engine under the lock of those that drive it.
struct EndEngine {
  Progress* progress = nullptr;
  void operator()(Engine* engine) const {
    progress->locked([engine] { delete engine; });
  }
};
using OwnedEngine = std::unique_ptr<Engine, EndEngine>;

/// What the communicators of an epoch share. Epochs that follow each other over the same
/// connections have one session.
struct EpochState {
  EpochState(std::shared_ptr<Monitor> monitor_, int rank_)
      : monitor(std::move(monitor_)), rank(rank_) {}

  /// Counts communicators that have not been left. Thread-safe.
  void open() { ++open_; }
  /// True for the last.
  bool close() { return --open_ == 0; }

  const std::shared_ptr<Monitor> monitor;  // by the epoch's numbers
  const int rank;                          // this one's in the epoch
  Epoch description;                       // as callers are told
  /// What else the epoch before has used.
  std::unique_ptr<FormerEpoch> former;
  /// Why nobody may agree here any more: set where this rank went on to the next epoch, or could
  /// not. Of two that followed one epoch there would be two jobs.
  std::optional<Error> end;
  bool is_followed = false;  // by the next epoch, on this rank
  /// The number of the last committed call whose sum this rank has (committed.h).
  std::atomic<uint32_t> sums_to_commit{0};
  CallsMade calls;  // once the communicator of all has been left

 private:
  std::atomic<int> open_{0};
};

/// Lives as long as one of its communicators.
class Session : public std::enable_shared_from_this<Session> {
 public:
  /// Joins the job. Throws Error.
  explicit Session(const Options& options,
                   std::shared_ptr<bootstrap::Predecessor> predecessor = nullptr);

  /// Of the communicator of a part, as engines number it.
  static uint16_t communicator_of(uint32_t part) {
    assert(part > 0);
    return static_cast<uint16_t>(1 + (part - 1) % kPartsMax);
  }
  /// Of the communicator of that number. Thread-safe.
  OwnedEngine make_engine(uint16_t communicator, const Members& members, Monitor& monitor);

  /// Goes on over the connections that there are, without the ranks `departed` of the job, whose
  /// world has begun the next epoch. What had failed is given up.
  void restart(const std::vector<int>& departed) { progress->restart(departed); }
  /// Whether it could, and this rank has given up what had failed. Thread-safe.
  bool can_restart() const;
  /// Then, of the ranks of the job, bit by bit, with which of them; over networks there are no
  /// more than kNetworkedMax.
  static constexpr int kNetworkedMax = 48;
  uint64_t can_restart_with() const {
    return progress->locked([this] { return worker.connections().settled(kNetworkedMax); });
  }

  // Parts. Thread-safe. A rank never uses a number again.
  /// The least number that this rank may use, from `least` on.
  uint32_t propose_number(uint32_t least) const;
  /// The part of `members`, numbers in the job. Null where the number may not be used: another part
  /// has, or its communicator is that of a part that lives. Throws Error.
  std::shared_ptr<bootstrap::Part> add_part(uint32_t number, const std::vector<int>& members);

  const MonotonicClock clock;
  const Options options;  // without the key, which is in job.config(), and stop
  /// Of the job's first epoch: whoever joins later has that.
  Secret first_key;
  /// Where newcomers come: host:port, or several with commas between.
  std::string coordinator;
  /// Goes from epoch to epoch; null where the job is not elastic.
  std::shared_ptr<bootstrap::NewcomerListener> newcomers;
  /// Tells late members of the epoch before how that was agreed upon.
  std::shared_ptr<World> former_world;
  MemoryRegistry memories;
  Job job;
  Worker worker;
  // Ends before the worker.
  const std::shared_ptr<Progress> progress;

 private:
  bool take_number(uint32_t number);
  void give_back_number(uint32_t number);
  bool is_free(uint32_t number) const {
    return number >= next_ && !living_.contains(communicator_of(number));
  }

  mutable std::mutex mutex_;
  uint32_t next_ = 1;
  std::set<uint16_t> living_;  // communicators of parts
  static constexpr uint32_t kPartsMax = kCommunicatorsMax - 1 - kFollowersMax;
};

}  // namespace ropewalk
