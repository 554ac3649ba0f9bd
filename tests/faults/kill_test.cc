// Ranks that are killed, stopped or cut off in the middle of collectives: every survivor names the
// culprit, in time, and nothing is left behind.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "tests/faults/forked_job.h"
#include "tests/support/under_test.h"
#include "transports/ucx/wires.h"

namespace ropewalk::testing {
namespace {

constexpr int kRanks = 4;

Options options_for(const std::string& transport, double timeout_s) {
  Options options;
  options.size = kRanks;
  options.transport = transport;
  options.timeout = std::chrono::milliseconds(static_cast<int>(timeout_s * 1000));
  return options;
}

/// Shared memory may outlast its users where it is UCX's; Ropewalk's own has no names.
bool is_through_ucx(const std::string& transport) {
  const char* wires = std::getenv("UCX_TLS");
  return transport == "ucx" && ucx::allows_shared_memory(wires != nullptr ? wires : "all");
}

/// System V segments that nobody maps, and who has created each.
std::map<int, pid_t> unmapped_segments() {
  std::map<int, pid_t> segments;
  std::ifstream table("/proc/sysvipc/shm");
  std::string line;
  std::getline(table, line);  // of titles
  while (std::getline(table, line)) {
    std::istringstream words(line);
    long key = 0, id = 0, mode = 0, bytes = 0, creator = 0, last = 0, maps = 0;
    if (words >> key >> id >> mode >> bytes >> creator >> last >> maps && maps == 0)
      segments.emplace(static_cast<int>(id), static_cast<pid_t>(creator));
  }
  return segments;
}

/// Files in /dev/shm as UCX, or Ropewalk, would name them.
std::set<std::string> named_files(bool of_ucx) {
  std::set<std::string> names;
  DIR* dir = ::opendir("/dev/shm");
  while (const dirent* entry = dir != nullptr ? ::readdir(dir) : nullptr) {
    const std::string name = entry->d_name;
    if (name.starts_with(of_ucx ? "ucx" : "ropewalk")) names.insert(name);
  }
  if (dir != nullptr) ::closedir(dir);
  return names;
}

/// Counts, and removes, what the ranks of a test have left behind. What UCX allocates has a name
/// for a moment: a rank that is killed just then leaves that one piece. What other tests have left
/// does not count, even where the kernel has given the number of its creator once more.
class Leftovers {
 public:
  explicit Leftovers(bool of_ucx) : of_ucx_(of_ucx) {}
  void expect_of(pid_t rank) { ranks_.insert(rank); }
  size_t remove() {
    size_t count = 0;
    for (const auto& [segment, creator] : unmapped_segments())
      if (ranks_.contains(creator) && !segments_before_.contains(segment))
        count += ::shmctl(segment, IPC_RMID, nullptr) == 0;
    for (const std::string& name : named_files(of_ucx_))
      if (!files_before_.contains(name)) count += ::unlink(("/dev/shm/" + name).c_str()) == 0;
    return count;
  }

 private:
  const bool of_ucx_;
  const std::map<int, pid_t> segments_before_ = unmapped_segments();
  const std::set<std::string> files_before_ = named_files(of_ucx_);
  std::set<pid_t> ranks_;
};

class Faults : public ::testing::TestWithParam<std::string> {};

// Over UCX also the test of past bugs: of 30 ranks that were killed while links were made one took
// others with it, in whom UCX asserted; later, by another way, one of 300.
TEST_P(Faults, EveryKillIsNamedWithinASecond) {
  const int kills = kills_under_test(100);
  const bool of_ucx = is_through_ucx(GetParam());
  Leftovers leftovers(of_ucx);
  std::mt19937 random(20240501);
  for (int i = 0; i < kills; ++i) {
    ForkedJob job(kRanks, options_for(GetParam(), 30), reduce_for_ever);
    for (int rank = 0; rank < kRanks; ++rank) leftovers.expect_of(job.pid(rank));
    const int victim = static_cast<int>(random() % kRanks);
    const unsigned within_us = i % 2 == 0 ? 40'000 : 5'000;  // the first call, and its links
    sleep_s(static_cast<double>(random() % within_us) / 1e6);
    job.mark();
    job.signal(victim, SIGKILL);
    expect_named(job.verdicts(victim, 5), victim, 1.0);
    if (HasFailure()) FAIL() << "kill " << i << " of rank " << victim;
  }
  EXPECT_LE(leftovers.remove(), of_ucx ? static_cast<size_t>(kills) / 4 : 0);
}

class FaultsOfAHost : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Faults, FaultsOfAHost, ::testing::ValuesIn(transports_under_test()));

// The kernel takes a rank's memory down before it closes its sockets: who hears first hears before.
TEST_P(FaultsOfAHost, AKillIsNamedWhileTheRanksMemoryIsTakenDown) {
  for (const int victim : {0, 2}) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const auto body = [&](Communicator& comm) {
      if (comm.rank() == victim) {
        map_much();
        require(::write(ready[1], "r", 1) == 1, "cannot tell");
      }
      reduce_for_ever(comm);
    };
    ForkedJob job(kRanks, options_for(GetParam(), 30), body);
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    job.mark();
    job.signal(victim, SIGKILL);
    const double closed_after_s = job.closed_after_s(victim);
    const auto verdicts = job.verdicts(victim, 20);
    expect_named(verdicts, victim, 20);
    double first_s = closed_after_s;
    for (int rank = 0; rank < kRanks; ++rank)
      if (rank != victim) first_s = std::min(first_s, verdicts[static_cast<size_t>(rank)].after_s);
    EXPECT_LT(first_s, closed_after_s);
    for (const int fd : ready) ::close(fd);
  }
}

TEST_P(Faults, AStopIsNamedWithinTheTimeout) {
  constexpr double kTimeout_s = 2;
  for (int victim : {0, 3}) {
    ForkedJob job(kRanks, options_for(GetParam(), kTimeout_s), reduce_for_ever);
    sleep_s(0.05);
    job.mark();
    job.signal(victim, SIGSTOP);
    expect_named(job.verdicts(victim, 10), victim, kTimeout_s + 0.5);
  }
}

TEST_P(Faults, ACutConnectionIsNamedWithinASecond) {
  // The victim shuts all its sockets down, as a firewall or a pulled cable would.
  const auto body = [](Communicator& comm) {
    if (comm.rank() != 2) return reduce_for_ever(comm);
    std::thread cutter([] {
      sleep_s(0.1);
      // By a child, which has the same sockets (by other numbers, since children do not get a
      // communicator's), while this process stands still until the others
      // have seen it: else it may tell them first, over a new connection or one not shut yet, that
      // it has lost them.
      for (int fd = 3; fd < 256; ++fd) ::fcntl(fd, F_DUPFD_CLOEXEC, 256);
      const pid_t child = ::fork();
      if (child == 0) {
        ::kill(::getppid(), SIGSTOP);
        ::usleep(2000);
        for (int fd = 256; fd < 512; ++fd) ::shutdown(fd, SHUT_RDWR);
        ::usleep(static_cast<unsigned>(100'000 * std::min(slowness(), 4.0)));
        ::kill(::getppid(), SIGCONT);
        ::_exit(0);
      }
      ::waitpid(child, nullptr, 0);
    });
    cutter.detach();
    reduce_for_ever(comm);
  };
  ForkedJob job(kRanks, options_for(GetParam(), 30), body);
  job.mark();
  expect_named(job.verdicts(2, 5), 2, 1.1 + 0.1);
}

TEST_P(Faults, AnExceptionOnOneRankEndsAll) {
  const auto body = [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) comm.abort("the disk is full");
    reduce_for_ever(comm);
  };
  ForkedJob job(kRanks, options_for(GetParam(), 30), body);
  job.mark();
  for (const Verdict& verdict : job.verdicts(-1, 5)) {
    ASSERT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.code, static_cast<int>(ErrorCode::aborted));
    EXPECT_NE(verdict.text.find("the disk is full"), std::string::npos) << verdict.text;
  }
}

TEST_P(Faults, ARankThatLeavesEarlyIsNamed) {
  const auto body = [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 3) return;
    reduce_for_ever(comm);
  };
  ForkedJob job(kRanks, options_for(GetParam(), 30), body);
  job.mark();
  expect_named(job.verdicts(3, 5), 3, 2.0);
}

// Most of those that wait for it have no link with it yet; they make it with one that has left.
TEST_P(Faults, ARankThatLeavesBeforeItsFirstCallIsNamed) {
  const auto body = [](Communicator& comm) {
    if (comm.rank() != 3) reduce_for_ever(comm);
  };
  ForkedJob job(kRanks, options_for(GetParam(), 30), body);
  job.mark();
  expect_named(job.verdicts(3, 5), 3, 2.0);
}

INSTANTIATE_TEST_SUITE_P(Transports, Faults, ::testing::ValuesIn(transports_of_jobs()));

}  // namespace
}  // namespace ropewalk::testing
