// Ranks that share memory, and stop or die at any step; and as processes that are killed.
#include "bootstrap/host_agreements.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "bootstrap/agreement_testing.h"

namespace ropewalk::bootstrap {
namespace {

/// Memory that forked processes share.
class SharedBytes {
 public:
  explicit SharedBytes(size_t bytes) : bytes_(bytes) {
    at_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at_ == MAP_FAILED) throw std::bad_alloc();
  }
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;
  ~SharedBytes() { ::munmap(at_, bytes_); }
  std::byte* data() const { return static_cast<std::byte*>(at_); }

 private:
  const size_t bytes_;
  void* at_;
};

Agreement::Setup setup_of(int rank, std::vector<int> members, int64_t now_ns) {
  return {.rank = rank,
          .members = std::move(members),
          .contribution = {.bits = ~(uint64_t{1} << rank),
                           .call = 1,
                           .text = fmt::format("of {}", rank)},
          .suspects = {},
          .begun_ns = now_ns,
          .patient_until_ns = now_ns + kMillisecond_ns};
}

/// Of any number of ranks, each advanced when the test says.
class Host {
 public:
  explicit Host(int ranks) : memory_(HostAgreements::bytes(ranks)), lives_(ranks, true) {
    for (int rank = 0; rank < ranks; ++rank)
      ranks_.push_back(std::make_unique<HostAgreements>(
          memory_.data(), ranks, rank,
          [this](int other) { return bool{lives_[static_cast<size_t>(other)]}; }));
  }
  HostAgreements& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  void kill(int rank) { lives_[static_cast<size_t>(rank)] = false; }
  void begin(int rank, std::vector<int> members, int64_t deadline_ns = kMillisecond_ns * 10) {
    (*this)[rank].begin(setup_of(rank, std::move(members), 0), deadline_ns);
  }

 private:
  SharedBytes memory_;
  std::vector<bool> lives_;
  std::vector<std::unique_ptr<HostAgreements>> ranks_;
};

TEST(HostAgreements, AllHaveWhatTheLastSeesTogether) {
  Host host(3);
  for (int rank = 0; rank < 3; ++rank) {
    host.begin(rank, {0, 1, 2});
    if (rank < 2) {
      EXPECT_FALSE(host[rank].advance(0));
    }
  }
  const Decision wanted{
      .members = {0, 1, 2}, .ended = {}, .bits = ~uint64_t{7}, .call = 1, .text = "of 0"};
  for (const int rank : {2, 0, 1}) {
    const auto end = host[rank].advance(0);
    ASSERT_TRUE(end && end->decision);
    EXPECT_EQ(*end->decision, wanted);
  }
}

TEST(HostAgreements, WhoHasDiedIsNotWaitedForThoughItHasBroughtSomething) {
  Host host(4);
  for (int rank = 0; rank < 3; ++rank) host.begin(rank, {0, 1, 2, 3});
  EXPECT_FALSE(host[1].advance(0));
  host.kill(3);
  host.kill(0);
  EXPECT_FALSE(host[1].advance(0)->decision) << "half is no quorum";
  Host larger(4);
  for (int rank = 0; rank < 3; ++rank) larger.begin(rank, {0, 1, 2, 3});
  larger.kill(3);
  const auto end = larger[1].advance(0);
  ASSERT_TRUE(end && end->decision);
  EXPECT_EQ(end->decision->members, (std::vector{0, 1, 2}));
  EXPECT_EQ(end->decision->ended, std::vector{3});
}

TEST(HostAgreements, WhoIsLateIsLeftOutAndLearnsOfIt) {
  Host host(3);
  host.begin(0, {0, 1, 2});
  host.begin(1, {0, 1, 2});
  EXPECT_FALSE(host[0].advance(kMillisecond_ns - 1));
  EXPECT_EQ(host[0].wake_at_ns(), kMillisecond_ns);
  EXPECT_EQ(host[0].advance(kMillisecond_ns)->decision->members, (std::vector{0, 1}));
  host.begin(2, {0, 1, 2});
  EXPECT_EQ(host[2].advance(0)->decision->members, (std::vector{0, 1}));
}

TEST(HostAgreements, WhoComesAfterTwoMoreHasNoDecision) {
  Host host(3);
  for (int instance = 0; instance < 3; ++instance) {
    for (const int rank : {0, 1}) host.begin(rank, {0, 1, 2});
    for (const int rank : {0, 1}) EXPECT_TRUE(host[rank].advance(kMillisecond_ns)->decision);
  }
  host.begin(2, {0, 1, 2});
  const auto end = host[2].advance(0);
  ASSERT_TRUE(end);
  EXPECT_FALSE(end->decision);
}

TEST(HostAgreements, WhoTakesPartNoMoreIsNotWaitedFor) {
  Host host(3);
  for (const int rank : {0, 1}) host.begin(rank, {0, 1, 2});
  EXPECT_FALSE(host[0].advance(0));
  host[2].close();
  EXPECT_EQ(host[0].advance(0)->decision->ended, std::vector{2});
}

TEST(HostAgreements, AtItsDeadlineARankGivesUpForTheOthers) {
  Host host(3);
  host.begin(0, {0, 1, 2}, kMillisecond_ns / 2);
  const auto given_up = host[0].advance(kMillisecond_ns / 2);
  ASSERT_TRUE(given_up);
  EXPECT_FALSE(given_up->decision);
  EXPECT_EQ(given_up->seen, std::vector{0});
  for (const int rank : {1, 2}) host.begin(rank, {0, 1, 2});
  EXPECT_EQ(host[1].advance(0)->decision->ended, std::vector{0});
}

TEST(HostAgreements, LearnersHaveNoVote) {
  Host host(3);
  for (const int rank : {0, 1, 2}) {
    Agreement::Setup setup = setup_of(rank, {0, 1, 2}, 0);
    setup.learners = 1;
    host[rank].begin(setup, kMillisecond_ns * 10);
  }
  EXPECT_FALSE(host[2].advance(0)) << "it has made a decision";
  EXPECT_TRUE(host[0].advance(0)->decision);
  EXPECT_EQ(host[2].advance(0)->decision->members, (std::vector{0, 1, 2}));
}

// ---- Any order, and processes that die at any moment ----

/// In turns that a seed draws: ranks begin, look, stop for long, or die, for several instances.
TEST(HostAgreements, OfAllThatHearOfOneTheDecisionIsTheSame) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    std::mt19937_64 random(seed);
    const int ranks = 1 + static_cast<int>(random() % 9);
    Host host(ranks);
    std::vector<int> everybody(static_cast<size_t>(ranks));
    std::iota(everybody.begin(), everybody.end(), 0);
    struct Member {
      std::vector<int> members;
      uint32_t instance = 0;
      bool waits = false, is_over = false;
      int64_t begun_ns = 0;
    };
    std::vector<Member> all(everybody.size(), {everybody});
    std::map<uint32_t, Decision> decided;
    int64_t now_ns = 0;
    for (int turn = 0; turn < 400; ++turn) {
      now_ns += static_cast<int64_t>(random() % (kMillisecond_ns / 20));
      const auto rank = static_cast<int>(random() % everybody.size());
      Member& member = all[static_cast<size_t>(rank)];
      if (member.is_over) continue;
      if (random() % 150 == 0) {
        host.kill(rank);
        member.is_over = true;
      } else if (!member.waits) {
        host[rank].begin(setup_of(rank, member.members, now_ns), now_ns + 3 * kMillisecond_ns);
        ++member.instance;
        member.waits = true;
      } else if (const auto end = host[rank].advance(now_ns)) {
        member.waits = false;
        member.is_over = !end->decision || !std::ranges::count(end->decision->members, rank);
        if (!end->decision) continue;
        const auto [known, is_new] = decided.emplace(member.instance, *end->decision);
        ASSERT_EQ(known->second, *end->decision) << "seed " << seed;
        ASSERT_GT(2 * known->second.members.size(), member.members.size()) << "seed " << seed;
        member.members = known->second.members;
      }
    }
  }
}

/// Each rank is a process that agrees for ever, with pauses of any length. Some are killed.
TEST(HostAgreements, ProcessesThatAreKilledLeaveTheOthersInStep) {
  constexpr int kRanks = 7, kInstances = 3000;
  struct Progress {
    std::array<std::atomic<bool>, kRanks> is_dead{};
    std::array<std::atomic<int>, kRanks> instances{};
    std::array<std::atomic<uint64_t>, kRanks> digest{};
  };
  SharedBytes memory(HostAgreements::bytes(kRanks)), progress_memory(sizeof(Progress));
  auto* progress = new (progress_memory.data()) Progress;
  std::array<pid_t, kRanks> processes{};
  std::vector<int> everybody(kRanks);
  std::iota(everybody.begin(), everybody.end(), 0);
  for (int rank = 0; rank < kRanks; ++rank) {
    processes[static_cast<size_t>(rank)] = fork();
    if (processes[static_cast<size_t>(rank)] != 0) continue;
    const MonotonicClock clock;
    HostAgreements own(memory.data(), kRanks, rank,
                       [&](int other) { return !progress->is_dead[static_cast<size_t>(other)]; });
    std::vector<int> members = everybody;
    uint64_t digest = 0;
    for (int instance = 0; instance < kInstances; ++instance) {
      if (instance % 64 == rank) usleep(200);
      Agreement::Setup setup = setup_of(rank, members, clock.now_ns());
      setup.contribution.bits = static_cast<uint64_t>(instance);
      setup.patient_until_ns = setup.begun_ns + 10'000 * kMillisecond_ns;
      const auto end = own.agree(setup, setup.begun_ns + 20'000 * kMillisecond_ns, clock);
      if (!end.decision || end.decision->bits != static_cast<uint64_t>(instance)) _exit(1);
      members = end.decision->members;
      digest = digest * 31 + members.size();
      progress->instances[static_cast<size_t>(rank)] = instance + 1;
      progress->digest[static_cast<size_t>(rank)] = digest;
    }
    _exit(0);
  }
  for (const int victim : {0, 5, 3}) {
    while (progress->instances[6] < 500 * (1 + (victim == 5) + 2 * (victim == 3))) usleep(50);
    kill(processes[static_cast<size_t>(victim)], SIGKILL);
    waitpid(processes[static_cast<size_t>(victim)], nullptr, 0);
    progress->is_dead[static_cast<size_t>(victim)] = true;  // nobody wakes those who wait
  }
  for (const int rank : {1, 2, 4, 6}) {
    int status = 0;
    waitpid(processes[static_cast<size_t>(rank)], &status, 0);
    EXPECT_EQ(status, 0) << rank;
  }
  for (const int rank : {1, 2, 4})  // all have ended
    EXPECT_EQ(progress->digest[static_cast<size_t>(rank)], progress->digest[6]) << rank;
}

}  // namespace
}  // namespace ropewalk::bootstrap
