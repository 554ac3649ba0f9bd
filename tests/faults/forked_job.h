// Jobs of real processes, for tests that kill, stop and cut them off.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "ropewalk/communicator.h"

namespace ropewalk::testing {

/// What a rank's process told the test at its end.
struct Verdict {
  bool told = false;   // false: `text` says how it died without a word, or that it hangs
  int peer = -1;       // Error::peer()
  int code = 0;        // Error::code(), as a number; 0: no error
  double after_s = 0;  // from `ForkedJob::mark` to the verdict
  std::string text;
};

/// For `Options::transport` of a ForkedJob: two hosts, so that "auto" uses shm within and tcp
/// between them. Ranks with odd numbers are in a user namespace of their own, which makes a host.
inline constexpr const char* kMixed = "mixed";
/// `transports_under_test`, and both at once. Not with ThreadSanitizer, which has a thread of its
/// own in every process: only one with a single thread can enter a user namespace.
std::vector<std::string> transports_of_jobs();

class ForkedJob {
 public:
  /// Forks `ranks` processes that join and run `body`. Returns when all have joined.
  ForkedJob(int ranks, const Options& options, const std::function<void(Communicator&)>& body);
  ForkedJob(const ForkedJob&) = delete;
  ForkedJob& operator=(const ForkedJob&) = delete;
  /// One more process, which joins while the job runs: `options.elastic`. Returns its number, after
  /// those of the ranks; does not wait.
  int add_newcomer(const Options& options, const std::function<void(Communicator&)>& body);
  /// Kills what still lives.
  ~ForkedJob();

  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }
  void signal(int rank, int number) const;
  /// When the kernel closed the descriptors of a rank that was killed: seconds from `mark`, as in
  /// verdicts. Waits for it.
  double closed_after_s(int rank) const;
  /// The instant from which verdicts are timed: the fault.
  void mark();
  /// Waits at most `limit_s` for the verdicts of all ranks but `except` (-1: of all).
  std::vector<Verdict> verdicts(int except, double limit_s);

 private:
  struct Message;  // what a rank writes to its pipe
  std::string end_of(size_t rank) const;
  void start(const std::function<void(int pipe_fd)>& run);
  /// The calling process: on the second host, with the others that have an odd number.
  void enter_host(Options& options, int number) const;
  void run_rank(const Options& options, const std::function<void(Communicator&)>& body,
                int pipe_fd);

  std::string coordinator_;
  int listener_ = -1;     // there; in an elastic job newcomers get it, too
  int second_host_ = -1;  // its user namespace, where there is one
  std::vector<pid_t> pids_;
  std::vector<int> pipes_;  // read ends
  double marked_s_ = 0;
};

/// Every rank but those has told that its body returned.
void expect_success(const std::vector<Verdict>& verdicts, const std::vector<int>& except = {});

/// Every verdict but the victim's names it as lost, within `limit_s` times `slowness()`.
void expect_named(const std::vector<Verdict>& verdicts, int victim, double limit_s);

/// All-reduces of several sizes until something fails: a body.
void reduce_for_ever(Communicator& comm);

/// Gives this process so much to unmap that its end takes long, and little memory: the same pages
/// many times.
void map_much();

/// Seconds on the monotonic clock, the same in all processes.
double now_s();
void sleep_s(double seconds);
/// Throws std::runtime_error where it does not hold: of what a rank finds out.
void require(bool holds, const char* what);

}  // namespace ropewalk::testing
