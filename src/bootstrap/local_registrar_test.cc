// Many ranks of a host, which join through one of them for each group.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>

#include "base/descriptors.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/auth.h"
#include "bootstrap/counting_proxy_testing.h"
#include "bootstrap/frame_stream.h"
#include "bootstrap/registrar.h"
#include "bootstrap/world_testing.h"
#include "tests/support/sanitized.h"

namespace ropewalk::bootstrap {
namespace {

using namespace std::chrono_literals;

constexpr int kThreeGroups = 3 * kJoinGroupMin;

void expect_all_join(const TestJob& job, const std::string& coordinator = {}) {
  expect_no_errors(run_world_ranks(job.size, [&](int rank) {
    JobIdentity identity = job.identity(rank);
    if (!coordinator.empty()) identity.coordinator = coordinator;
    const auto world = World::join(identity, job.config, {});
    for (int r = 0; r < job.size; ++r) EXPECT_EQ(world->record(r).rank, r);
    world->leave();
  }));
}

SocketAddress local_registrar(const TestJob& job, const std::string& coordinator, int group) {
  start_cryptography();
  return SocketAddress::abstract(
      local_registrar_name(job_key(job.config.job_key.text()), coordinator, job.size, group));
}

TEST(LocalRegistrar, RankZeroHasOneConnectionForEachGroup) {
  const TestJob job(kThreeGroups);
  const CountingProxy proxy(job.coordinator());
  expect_all_join(job, proxy.address());
  EXPECT_EQ(proxy.connections(), 3);
}

TEST(LocalRegistrar, AThousandRanksOfOneProgramJoin) {
  TestJob job(kIsSanitized ? 256 : 1024);
  job.config.timeout = 300s;  // on a few CPUs, and under sanitizers
  const CountingProxy proxy(job.coordinator());
  expect_all_join(job, proxy.address());
  EXPECT_EQ(proxy.connections(), job.size / join_group_ranks(job.size));
}

TEST(LocalRegistrar, ServesOneJobAfterTheOther) {
  const TestJob job(kThreeGroups);
  const CountingProxy proxy(job.coordinator());
  for (int round = 1; round <= 3; ++round) {
    expect_all_join(job, proxy.address());
    EXPECT_EQ(proxy.connections(), 3 * round);
  }
}

TEST(LocalRegistrar, WhereItSaysNothingItIsDoneWithout) {
  TestJob job(kThreeGroups);
  job.config.timeout = 8s;  // of which it gets a quarter
  const CountingProxy proxy(job.coordinator());
  const UniqueFd silent = listen_if_free(local_registrar(job, proxy.address(), 1));
  expect_all_join(job, proxy.address());
  EXPECT_EQ(proxy.connections(), 2 + kJoinGroupMin);
}

TEST(LocalRegistrar, WhereItGoesAwayAnotherFollows) {
  const TestJob job(kThreeGroups);
  const CountingProxy proxy(job.coordinator());
  UniqueFd going = listen_if_free(local_registrar(job, proxy.address(), 1));
  std::thread goes([&] {
    std::this_thread::sleep_for(200ms);
    going.reset();
  });
  expect_all_join(job, proxy.address());
  goes.join();
  EXPECT_EQ(proxy.connections(), 3);
}

/// Joins at `address` as `rank`, and is gone again; returns when that was noticed there.
void join_and_go(const TestJob& job, const SocketAddress& address, int rank) {
  ConnectedSocket socket = dial_to_join(job, address, rank);
  const UniqueFd end(::dup(socket.fd.get()));
  FrameStream stream(std::move(socket));
  stream.send(join_of_unreachable(job, rank));
  stream.flush();
  std::this_thread::sleep_for(50ms);
  ::shutdown(end.get(), SHUT_WR);
  pollfd closed = {end.get(), POLLRDHUP, 0};
  EXPECT_EQ(::poll(&closed, 1, 10'000), 1) << "nobody saw it go";
}

// It took the whole group with it.
TEST(LocalRegistrar, OneThatGoesBeforeRankZeroKnowsOfItIsNotMissed) {
  constexpr int kGoing = 17;
  const TestJob job(kThreeGroups);
  std::atomic<bool> gone{false};
  std::thread going([&] {
    join_and_go(job, local_registrar(job, job.coordinator(), join_group(kGoing, job.size)), kGoing);
    gone = true;
  });
  expect_no_errors(run_world_ranks(job.size, [&](int rank) {
    while ((rank == 0 || rank == kGoing) && !gone) std::this_thread::sleep_for(1ms);
    job.join(rank)->leave();
  }));
  going.join();
}

/// A process that listens at `address` as another user, and answers nothing; ends with the test.
class Squatter {
 public:
  explicit Squatter(const SocketAddress& address) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    child_ = ::fork();
    if (child_ == 0) {
      UniqueFd listener;
      const bool listens = ::setuid(65534) == 0 && try_listen(address, listener) == 0;
      [[maybe_unused]] const ssize_t n = ::write(ends[1], listens ? "y" : "n", 1);
      for (;;) ::pause();
    }
    char answer = 0;
    EXPECT_EQ(::read(ends[0], &answer, 1), 1);
    listens_ = answer == 'y';
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~Squatter() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  bool listens() const { return listens_; }

 private:
  pid_t child_ = -1;
  bool listens_ = false;
};

// Whoever saw the name in /proc/net/unix could end a job, or keep it waiting.
TEST(LocalRegistrar, AnotherUsersProcessIsNotAskedToBeOne) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user, too";
  TestJob job(kThreeGroups);
  const CountingProxy proxy(job.coordinator());
  const Squatter squatter(local_registrar(job, proxy.address(), 1));
  ASSERT_TRUE(squatter.listens());
  const auto begin = std::chrono::steady_clock::now();
  expect_all_join(job, proxy.address());
  EXPECT_EQ(proxy.connections(), 2 + kJoinGroupMin);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, job.config.timeout / 4)
      << "it was waited for";
}

// It was asked in vain, and then the job had another key.
TEST(LocalRegistrar, OneThatHasNotTheKeyIsDoneWithout) {
  const TestJob job(kThreeGroups);
  const CountingProxy proxy(job.coordinator());
  std::vector<UniqueFd> listeners;
  listeners.push_back(listen_if_free(local_registrar(job, proxy.address(), 1)));
  Acceptor stranger({}, std::move(listeners), 0, job_key("another"));
  std::atomic<bool> over{false};
  std::thread thread([&] {
    const MonotonicClock clock;
    PollSet set;
    while (!over) {
      set.clear();
      stranger.prepare(set, clock.now_ns());
      set.wake_at(clock.now_ns() + 10 * kMillisecond_ns);
      set.wait(clock.now_ns());
      stranger.advance(set, clock.now_ns());
    }
  });
  expect_all_join(job, proxy.address());
  over = true;
  thread.join();
  EXPECT_EQ(proxy.connections(), 2 + kJoinGroupMin);
}

TEST(LocalRegistrar, MissingRanksAreNamedToEverybody) {
  TestJob job(kThreeGroups);
  job.config.timeout = 2s;
  const auto errors = run_world_ranks(kThreeGroups - 2, [&](int rank) { job.join(rank); });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::timeout) << error->what();
    EXPECT_NE(std::string(error->what()).find("rank 46, 47 never came"), std::string::npos)
        << error->what();
  }
}

TEST(LocalRegistrar, TwoProcessesWithOneRankAreToldToAll) {
  const TestJob job(kThreeGroups);
  const auto errors =
      run_world_ranks(kThreeGroups, [&](int rank) { job.join(rank == 40 ? 41 : rank); });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
    EXPECT_NE(std::string(error->what()).find("two processes are rank 41"), std::string::npos)
        << error->what();
  }
}

TEST(Tree, ChildrenHaveTheirParent) {
  for (const int size : {1, 2, 9, 10, 64, 65, 147, 148, 1024, 5000}) {
    int children = 0, depth = 0;
    for (int rank = 0; rank < size; ++rank) {
      const auto [begin, end] = tree_children(rank, size);
      for (int child = begin; child < end; ++child) EXPECT_EQ(tree_parent(child, size), rank);
      children += end - begin;
    }
    EXPECT_EQ(children, size - 1);
    for (int rank = size - 1; rank > 0; rank = tree_parent(rank, size)) ++depth;
    EXPECT_LE(depth, size <= 9 ? 1 : size <= 64 ? 2 : size <= 147 ? 3 : size <= 1171 ? 4 : 5);
  }
}

/// In so large a job leaves wait for others before they are passed on. Rank 3 is in the middle of
/// the tree.
TEST(ManyRanks, AllHearThatOneHasLeftWhileTheyWork) {
  raise_descriptor_limit();
  const TestJob job(70);
  expect_no_errors(run_world_ranks(job.size, [&](int rank) {
    const auto world = job.join(rank);
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (rank != 3 && !world->monitor().has_left(3) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(rank == 3 || world->monitor().has_left(3)) << rank;
    world->leave();
    EXPECT_EQ(world->monitor().failure(), nullptr) << rank;
  }));
}

}  // namespace
}  // namespace ropewalk::bootstrap
