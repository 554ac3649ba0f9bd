// The ranks of a job as its launcher sees them, and what it means that some are lost.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/launcher/launcher.h"

namespace ropewalk::tools {

struct RankState {
  std::string label;  // "3"; "3.1" is the process that was started in its place, "3.2" the next
  int place = 0;      // the rank that it was at first, or in whose place it is
  int host = -1;      // its number among the launcher's; -1: of another node, where it runs
  int slot = 0;       // of those of the host's agent
  pid_t pid = -1;
  bool running = false;
  bool is_member = true;  // false: it was started again, and has not joined yet
};

class Ranks {
 public:
  explicit Ranks(std::optional<Elastic> elastic);

  /// Numbered from 0, as they are added.
  void add(int host, int slot);
  /// Of a process in place of `lost`, which takes one of the restarts. Its number.
  int add_in_place_of(int lost, int host, int slot);
  int count() const { return static_cast<int>(ranks_.size()); }
  RankState& operator[](int number) { return ranks_[static_cast<size_t>(number)]; }
  const RankState& operator[](int number) const { return ranks_[static_cast<size_t>(number)]; }
  int restarts_left() const { return restarts_left_; }
  int restarts() const { return count() - first_count_; }
  bool is_restart(int number) const { return number >= first_count_; }

  /// Those of this launcher run now.
  void note_started();
  /// It has ended with status 0.
  void note_success(int number);
  /// A member has: the job is at its end.
  bool has_success() const { return has_success_; }

  /// By number; of one host, where `host` >= 0.
  std::vector<int> running(int host = -1) const;
  /// How many of them have joined.
  int members(int host = -1) const;
  /// "1, 2, 3.1".
  std::string labels_of(const std::vector<int>& numbers) const;
  /// The same of "1, 2, 4", which is a frame's payload.
  std::string labels_in(std::string_view numbers) const;
  /// The job has ended; what still runs was started again and has not joined before.
  bool has_only_latecomers() const;

  struct LossDecision {
    enum Meaning { ends_job, goes_on, does_not_count };
    Meaning meaning;
    std::string why = {};
    int restarts = 0;  // so many of the lost ranks are to be started again
  };
  /// Where lost ranks may be started again.
  struct Room {
    bool is_any = false;  // now or later
    int slots = 0;        // that are free, or are expected to be had
    int waiting = 0;      // ranks that were lost before and want them, too
  };
  /// What it means for an elastic job that these ranks, which ran until now, have ended otherwise
  /// than with status 0. `had_left`: the job had ended without them before.
  LossDecision decide_loss(const std::vector<int>& lost, const Room& room, bool had_left) const;
  /// Why the job cannot go on with those that run and so many more; empty: it can.
  std::string too_few_with(int more) const;

 private:
  std::optional<Elastic> elastic_;
  std::vector<RankState> ranks_;
  std::vector<int> times_restarted_;  // by place
  int restarts_left_;
  int first_count_ = 0;  // of those that were started first
  bool has_success_ = false;
};

}  // namespace ropewalk::tools
