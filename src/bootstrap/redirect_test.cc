// Ranks of many hosts, which rank 0 sends to others of their group to join there.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "bootstrap/counting_proxy_testing.h"
#include "bootstrap/frame_stream.h"
#include "bootstrap/registrar.h"
#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {
namespace {

using namespace std::chrono_literals;

constexpr int kManyRanks = 128, kManyGroups = kManyRanks / kJoinGroupMin;
static_assert(join_group_ranks(kManyRanks) == kJoinGroupMin);
/// Of each group on each host: one or two ranks, of which one joins for the other.
constexpr int kManyHosts = 12;
static_assert(kManyGroups * kManyHosts > kDirectJoinsMax + kManyGroups);

/// Ranks that know the coordinator by another address have another local registrar, as if they
/// were on another host.
class Hosts {
 public:
  explicit Hosts(const TestJob& job) : job_(job) {
    for (int host = 0; host < kManyHosts; ++host) proxies_.emplace_back(job.coordinator());
  }
  JobIdentity identity(int rank) const {
    JobIdentity identity = job_.identity(rank);
    if (rank > 0) identity.coordinator = proxies_[static_cast<size_t>(rank % kManyHosts)].address();
    return identity;
  }
  int connections() const { return count(&CountingProxy::connections); }
  int open() const { return count(&CountingProxy::open); }

 private:
  int count(int (CountingProxy::*what)() const) const {
    int sum = 0;
    for (const CountingProxy& proxy : proxies_) sum += (proxy.*what)();
    return sum;
  }
  const TestJob& job_;
  std::deque<CountingProxy> proxies_;
};

TEST(Redirect, RoundTrips) {
  PeerRecord record;
  record.rank = 3;
  record.host_name = "b";
  record.addresses = {"10.0.0.2:5", "127.0.0.1:5"};
  const Bytes whole = frame(Redirect{record});
  const auto decoded = decode<Redirect>(ByteSpan(whole).subspan(kFrameHeaderBytes));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->to.rank, record.rank);
  EXPECT_EQ(decoded->to.addresses, record.addresses);
  EXPECT_FALSE(decode<Redirect>(ByteSpan(whole).subspan(kFrameHeaderBytes + 1)));
}

bool wait_until(const std::function<bool()>& is_so) {
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (!is_so())
    if (std::this_thread::sleep_for(2ms); std::chrono::steady_clock::now() > limit) return false;
  return true;
}

TEST(Redirect, RankZeroHasConnectionsForGroupsNotForHosts) {
  TestJob job(kManyRanks);
  job.config.timeout = 120s;  // on a few CPUs, and under sanitizers
  const Hosts hosts(job);
  std::atomic<bool> others_have_come{false};
  std::thread watch([&] {
    const int direct = static_cast<int>(kDirectJoinsMax) + kManyGroups;
    EXPECT_TRUE(wait_until([&] {
      return hosts.connections() >= kManyGroups * kManyHosts - 1 && hosts.open() <= direct;
    })) << hosts.connections()
        << " connections, " << hosts.open() << " of them open";
    others_have_come = true;
  });
  expect_no_errors(run_world_ranks(kManyRanks, [&](int rank) {
    while (rank == kManyRanks - 1 && !others_have_come) std::this_thread::sleep_for(1ms);
    const auto world = World::join(hosts.identity(rank), job.config, {});
    for (int r = 0; r < kManyRanks; ++r) EXPECT_EQ(world->record(r).rank, r);
    world->leave();
  }));
  watch.join();
}

/// Joins at rank 0 itself, as a rank that nobody can reach; `behind` is sent at once with that.
FrameStream join_unreachable(const TestJob& job, int rank, const Bytes& behind = {}) {
  FrameStream stream(dial_to_join(job, *numeric_address(job.coordinator()), rank));
  stream.send(join_of_unreachable(job, rank));
  if (!behind.empty()) stream.send(behind);
  stream.flush();
  return stream;
}

/// As many connections as rank 0 takes before it redirects, of ranks that do not say that they
/// join.
std::vector<ConnectedSocket> connections_enough(const TestJob& job) {
  std::vector<ConnectedSocket> connections;
  for (int rank = 1; rank <= static_cast<int>(kDirectJoinsMax); ++rank)
    connections.push_back(dial_to_join(job, *numeric_address(job.coordinator()), rank));
  return connections;
}

// Rank 0 passed over all that came after the join.
TEST(Redirect, AFailureBehindARedirectedJoinIsHeard) {
  constexpr int kFailing = kManyRanks - 1;
  TestJob job(kManyRanks);
  job.config.timeout = 120s;
  const Hosts hosts(job);
  std::thread failing([&] {
    const auto connections = connections_enough(job);
    EXPECT_TRUE(wait_until([&] { return hosts.connections() >= kManyGroups * kManyHosts - 1; }));
    std::this_thread::sleep_for(200ms);  // its group has joined
    JobFailure failure{{ErrorCode::exhausted, "test", "it has no memory", "", kFailing}, 0};
    const FrameStream stream =
        join_unreachable(job, kFailing, frame(Signed<JobFailure>{failure, {}}));
    std::this_thread::sleep_for(500ms);
  });
  const auto errors = run_world_ranks(kManyRanks, [&](int rank) {
    if (rank != kFailing) World::join(hosts.identity(rank), job.config, {})->leave();
  });
  failing.join();
  for (int rank = 0; rank < kFailing; ++rank) {
    ASSERT_TRUE(errors[static_cast<size_t>(rank)]) << rank;
    EXPECT_EQ(errors[static_cast<size_t>(rank)]->code(), ErrorCode::exhausted) << rank;
  }
}

// Nothing listens where it says that it does: others of its group join at rank 0, after all.
TEST(Redirect, ARankThatCannotBeReachedIsDoneWithout) {
  constexpr int kUnreachable = kManyRanks - kJoinGroupMin + 1;
  TestJob job(kManyRanks);
  job.config.timeout = 120s;
  const Hosts hosts(job);
  std::atomic<bool> has_joined{false};
  std::thread unreachable([&] {
    const auto connections = connections_enough(job);
    const FrameStream stream = join_unreachable(job, kUnreachable);
    has_joined = true;
    EXPECT_TRUE(wait_until([&] { return hosts.connections() > kManyGroups * kManyHosts; }))
        << "no rank has come again";
  });
  const auto errors = run_world_ranks(kManyRanks, [&](int rank) {
    if (rank == kUnreachable) return;
    while (rank != 0 && !has_joined) std::this_thread::sleep_for(1ms);
    World::join(hosts.identity(rank), job.config, {})->leave();
  });
  unreachable.join();
  for (int rank = 0; rank < kManyRanks; ++rank) {
    if (rank == kUnreachable) continue;
    ASSERT_TRUE(errors[static_cast<size_t>(rank)]) << rank;
    EXPECT_EQ(errors[static_cast<size_t>(rank)]->peer(), kUnreachable) << rank;
  }
}

}  // namespace
}  // namespace ropewalk::bootstrap
