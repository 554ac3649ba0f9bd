// Many ranks that are threads: of one process, or of as few as the limit of open files allows. They
// join over loopback and sum 8 bytes. TEST_THREAD_RANKS=1024 tries more of them.
// Prints what it took.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <latch>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "tests/local_world.h"
#include "tests/support/descriptors.h"
#include "tests/support/sanitized.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

using namespace std::chrono_literals;

/// A rank that has summed among thousands has some 30.
constexpr int kDescriptorsPerRank = 36;

int thread_ranks_under_test() {
  const char* text = std::getenv("TEST_THREAD_RANKS");
  return text != nullptr ? std::max(std::atoi(text), 2) : kIsSanitized ? 32 : 64;
}

/// What a process tells of its ranks: the slowest, and all together.
struct Told {
  int summed = 0;  // ranks whose sum was right
  int descriptors = 0, threads = 0;
  double joined_s = 0, summed_s = 0, left_s = 0;
  double resident_mib = 0;
  std::array<char, 400> error = {};  // the first
};

double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  double all = 0, resident = 0;
  statm >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

int threads() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

/// Ranks from `first` on, each a thread. A failure of one fails all, so that none waits for ever.
class ThreadRanks {
 public:
  ThreadRanks(Options options, int first, int count)
      : options_(std::move(options)), first_(first), count_(count), have_summed_(count) {}

  Told run() {
    std::vector<std::thread> all;
    for (int i = 0; i < count_; ++i) all.emplace_back([this, i] { run_rank(first_ + i); });
    have_summed_.wait();
    told_.descriptors = open_descriptors();
    told_.threads = threads();
    told_.resident_mib = resident_mib();
    measured_.count_down();
    for (std::thread& thread : all) thread.join();
    told_.left_s = now_s();
    return told_;
  }

 private:
  static double now_s() { return static_cast<double>(MonotonicClock().now_ns()) * 1e-9; }

  void run_rank(int rank) {
    bool counted = false;
    try {
      Options options = options_;
      options.rank = rank;
      if (rank != 0) options.coordinator_fd.reset();
      const auto comm = Communicator::create(options);
      const double joined_s = now_s();
      std::array<double, 1> sum = {static_cast<double>(rank)};
      comm->all_reduce(sum);
      note(joined_s, sum[0] == 0.5 * comm->size() * (comm->size() - 1));
      counted = true;
      have_summed_.count_down();
      measured_.wait();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      if (told_.error[0] == 0) std::strncpy(told_.error.data(), error.what(), 399);
    }
    if (!counted) have_summed_.count_down();
  }

  void note(double joined_s, bool is_right) {
    const std::lock_guard lock(mutex_);
    told_.joined_s = std::max(told_.joined_s, joined_s);
    told_.summed_s = now_s();
    told_.summed += is_right;
  }

  const Options options_;
  const int first_, count_;
  std::latch have_summed_, measured_{1};
  std::mutex mutex_;
  Told told_;  // guarded by mutex_ until all have summed
};

/// Forks a process for each share of the ranks, and gathers what they tell.
std::vector<Told> run_processes(const Options& options, int per_process) {
  std::vector<std::pair<pid_t, int>> children;  // and the pipe to hear them by
  for (int first = 0; first < *options.size; first += per_process) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const int count = std::min(per_process, *options.size - first);
      const Told told = ThreadRanks(options, first, count).run();
      ::_exit(::write(ends[1], &told, sizeof told) == sizeof told ? 0 : 1);
    }
    ::close(ends[1]);
    children.emplace_back(child, ends[0]);
  }
  std::vector<Told> all;
  for (const auto& [child, pipe] : children) {
    Told told;
    if (::read(pipe, &told, sizeof told) != sizeof told)
      std::strncpy(told.error.data(), "a process died without a word", 399);
    ::close(pipe);
    ::waitpid(child, nullptr, 0);
    all.push_back(told);
  }
  return all;
}

class ThreadRanksOver : public ::testing::TestWithParam<std::string> {};

TEST_P(ThreadRanksOver, JoinAndSum) {
  raise_descriptor_limit();
  const int ranks = thread_ranks_under_test();
  const auto per_process =
      static_cast<int>((descriptor_limits().rlim_cur - 100) / kDescriptorsPerRank);
  ASSERT_GT(per_process, 0) << "ulimit -n " << 2 * kDescriptorsPerRank + 100;
  Options options;
  options.size = ranks;
  std::string coordinator;
  options.coordinator_fd = listen_on_loopback(coordinator);
  options.coordinator = coordinator;
  options.transport = GetParam();
  options.key = "test";
  options.timeout = ranks <= 64 ? 60s : 600s;  // the CPUs are shared by all
  const int64_t begin_ns = MonotonicClock().now_ns();
  const std::vector<Told> all = run_processes(options, per_process);
  ::close(*options.coordinator_fd);

  Told sum, most;
  for (const Told& told : all) {
    EXPECT_EQ(told.error[0], 0) << told.error.data();
    sum.summed += told.summed;
    sum.threads += told.threads;
    sum.resident_mib += told.resident_mib;
    sum.descriptors += told.descriptors;
    most.joined_s = std::max(most.joined_s, told.joined_s);
    most.summed_s = std::max(most.summed_s, told.summed_s);
    most.left_s = std::max(most.left_s, told.left_s);
  }
  EXPECT_EQ(sum.summed, ranks);
  const double begin_s = static_cast<double>(begin_ns) * 1e-9;
  std::printf(
      "%d ranks in %zu processes over %s: joined %.2f s, summed %.2f s, left %.2f s; %.1f MiB, "
      "%.1f "
      "descriptors and %.1f threads a rank\n",
      ranks, all.size(), GetParam().c_str(), most.joined_s - begin_s, most.summed_s - begin_s,
      most.left_s - begin_s, sum.resident_mib / ranks, 1.0 * sum.descriptors / ranks,
      1.0 * sum.threads / ranks);
}

INSTANTIATE_TEST_SUITE_P(Every, ThreadRanksOver, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing
