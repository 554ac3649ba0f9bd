// Jobs over verbs whose network goes away.
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/faults/forked_job.h"
#include "tests/rdma/machine.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

constexpr int kRanks = 3;

Options over_verbs() {
  Options options;
  options.size = kRanks;
  options.transport = "verbs";
  return options;
}

void expect_told_of_the_adapter(ForkedJob& job) {
  for (const Verdict& verdict : job.verdicts(-1, 5 * slowness())) {
    ASSERT_TRUE(verdict.told) << verdict.text;
    // Unavailable: it had not linked with all yet.
    EXPECT_TRUE(verdict.code == static_cast<int>(ErrorCode::peer_lost) ||
                verdict.code == static_cast<int>(ErrorCode::unavailable))
        << verdict.text;
    EXPECT_GE(verdict.peer, 0) << verdict.text;
    EXPECT_NE(verdict.text.find(kAdapter), std::string::npos) << verdict.text;
    EXPECT_LT(verdict.after_s, 1 * slowness()) << verdict.text;
  }
}

TEST(VerbsJobFaults, AnUnpluggedLinkIsNamedWhileDataFlows) {
  ForkedJob job(kRanks, over_verbs(), reduce_for_ever);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  job.mark();
  const Unplugged unplugged;
  expect_told_of_the_adapter(job);
}

// The adapter gives up long before the half second that a port may be down.
TEST(VerbsJobFaults, AnUnpluggedLinkIsNotThePeersFault) {
  setenv("ROPEWALK_IB_TIMEOUT", "12", 1);  // 17 ms
  ForkedJob job(kRanks, over_verbs(), reduce_for_ever);
  unsetenv("ROPEWALK_IB_TIMEOUT");
  std::this_thread::sleep_for(std::chrono::seconds(1));
  job.mark();
  const Unplugged unplugged;
  for (const Verdict& verdict : job.verdicts(-1, 5 * slowness())) {
    ASSERT_TRUE(verdict.told) << verdict.text;
    EXPECT_NE(verdict.text.find("port 1 is down"), std::string::npos) << verdict.text;
  }
}

TEST(VerbsJobFaults, AnUnpluggedLinkIsNamedWhileRanksWait) {
  ForkedJob job(kRanks, over_verbs(), [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(30));
    comm.barrier();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  job.mark();
  const Unplugged unplugged;
  const auto verdicts = job.verdicts(1, 5);
  for (const int rank : {0, 2}) {
    const Verdict& verdict = verdicts[static_cast<size_t>(rank)];
    ASSERT_TRUE(verdict.told) << verdict.text;
    EXPECT_NE(verdict.text.find(kAdapter), std::string::npos) << verdict.text;
  }
}

TEST(VerbsJobFaults, ARemovedNetworkDeviceIsNamed) {
  ForkedJob job(kRanks, over_verbs(), reduce_for_ever);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  job.mark();
  shell("ip link del link0");
  expect_told_of_the_adapter(job);
  make_adapter();
}

// The kernel's driver of Soft-RoCE lets those finish who use the adapter.
TEST(VerbsJobFaults, ARemovedAdapterServesTheJobToItsEnd) {
  {
    ForkedJob job(kRanks, over_verbs(), [](Communicator& comm) {
      auto buffer = comm.allocate<float>(1000);
      comm.barrier();
      std::this_thread::sleep_for(std::chrono::seconds(1));
      for (int i = 0; i < 20; ++i) comm.all_reduce(buffer.span());
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    shell("rdma link del rxe0 &");
    for (const Verdict& verdict : job.verdicts(-1, 20)) EXPECT_EQ(verdict.code, 0) << verdict.text;
  }
  const double deadline_s = now_s() + 20;
  while (output_of("rdma link").find(kAdapter) != std::string::npos) {
    ASSERT_LT(now_s(), deadline_s) << "the adapter is still in use";
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  make_adapter();
}

// Adapters must go on with the parent's pages, not with the child's.
TEST(VerbsJobFaults, AForkedChildDisturbsNobody) {
  ForkedJob job(kRanks, over_verbs(), [](Communicator& comm) {
    std::vector<int> plain(300'000, 1);
    auto registered = comm.allocate<int>(plain.size());
    const auto reduce = [&](std::span<int> values) {
      for (int round = 0; round < 3; ++round) {
        std::fill(values.begin(), values.end(), round + 1);
        comm.all_reduce(values);
        const auto right = std::count(values.begin(), values.end(), (round + 1) * kRanks);
        if (right != std::ssize(values))
          throw Error(ErrorCode::system, "test", "the sum is wrong after a fork");
      }
    };
    reduce(plain);
    reduce(registered.span());
    const pid_t child = ::fork();
    if (child == 0) {
      std::fill(plain.begin(), plain.end(), 77);
      for (;;) ::pause();
    }
    reduce(plain);
    reduce(registered.span());
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    reduce(plain);
  });
  for (const Verdict& verdict : job.verdicts(-1, 20)) {
    EXPECT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.code, 0) << verdict.text;
  }
}

TEST(VerbsJobFaults, KilledRanksLeaveNoRegistrationsBehind) {
  const std::string before = objects_in_use();
  {
    ForkedJob job(kRanks, over_verbs(), reduce_for_ever);
    const double deadline_s = now_s() + 20;
    while (objects_in_use() == before) ASSERT_LT(now_s(), deadline_s) << "nothing is registered";
    for (int rank = 0; rank < kRanks; ++rank) job.signal(rank, SIGKILL);
  }
  EXPECT_EQ(objects_in_use(), before);
}

/// Gives up root's right to lock as much memory as it likes.
void become_nobody(rlim_t memlock_bytes) {
  const rlimit limit{memlock_bytes, memlock_bytes};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
  ASSERT_EQ(::setgroups(0, nullptr), 0);
  ASSERT_EQ(::setresuid(65534, 65534, 65534), 0);
}

TEST(VerbsJobFaults, TooLittleMemlockIsNamedWithTheWayOut) {
  shell("chmod 666 /dev/infiniband/uverbs*");
  ForkedJob job(kRanks, over_verbs(), [](Communicator& comm) {
    comm.barrier();
    become_nobody(4 << 20);
    comm.allocate<float>(8 << 20);
  });
  job.mark();
  bool told_of_memlock = false;
  std::string texts;
  for (const Verdict& verdict : job.verdicts(-1, 5 * slowness())) {
    ASSERT_TRUE(verdict.told) << verdict.text;
    EXPECT_NE(verdict.code, 0) << verdict.text;
    texts += verdict.text + "\n";
    told_of_memlock |= verdict.text.find("memlock unlimited") != std::string::npos;
  }
  EXPECT_TRUE(told_of_memlock) << texts;
}

}  // namespace
}  // namespace ropewalk::testing
