// A rank that cannot get what a call needs fails with the limit to raise, and so do all others,
// which are in the call already.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptors.h"
#include "bootstrap/net.h"
#include "ropewalk/policies.h"
#include "tests/faults/forked_job.h"
#include "tests/faults/growing.h"
#include "tests/support/descriptors.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

Options options_over(const std::string& transport, int ranks) {
  Options options;
  options.size = ranks;
  options.transport = transport;
  options.timeout = std::chrono::seconds(30);
  return options;
}

class Limits : public ::testing::TestWithParam<std::string> {};

/// Lets one rank of a forked job go on once all have joined.
class AllJoined {
 public:
  AllJoined() { EXPECT_EQ(::pipe(ends_), 0); }
  ~AllJoined() {
    for (const int end : ends_) ::close(end);
  }
  void tell() const { EXPECT_EQ(::write(ends_[1], "x", 1), 1); }
  void await() const {
    char byte = 0;
    EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
  }

 private:
  int ends_[2];
};

class GrowingLimits : public Growing {};

// Each rank listened for the others in each `grow`, though nobody waited to join.
TEST_P(GrowingLimits, WhereNobodyWaitsGrowTakesNoDescriptor) {
  const rlimit before = descriptor_limits();
  run_members(3, [&](Communicator& comm) {
    EXPECT_EQ(comm.grow(), nullptr);  // with what an agreement needs from then on
    comm.barrier();
    if (comm.rank() == 0) use_up_descriptors();
    comm.barrier();
    EXPECT_EQ(comm.grow(), nullptr);
    comm.barrier();
    if (comm.rank() == 0) ::setrlimit(RLIMIT_NOFILE, &before);
    comm.barrier();
  });
}

TEST_P(Limits, ARankWithoutWhatACallNeedsFailsAllWithItsReason) {
  constexpr int kRanks = 3, kPoor = 1;
  const Options options = options_over(GetParam(), kRanks);
  const AllJoined all_joined;
  const auto body = [&](Communicator& comm) {
    std::vector<float> plain(300'000, 1);  // staged: the call needs memory of its own
    if (comm.rank() == kPoor) {
      all_joined.await();
      use_up_descriptors();
    }
    try {
      comm.all_reduce(std::span(plain));
    } catch (const Error&) {
      // News of the failure must not meet that of this process's end on the way.
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      throw;
    }
  };
  ForkedJob job(kRanks, options, body);
  all_joined.tell();
  job.mark();
  for (const Verdict& verdict : job.verdicts(-1, 10)) {
    ASSERT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.code, static_cast<int>(ErrorCode::exhausted)) << verdict.text;
    EXPECT_EQ(verdict.peer, kPoor) << verdict.text;
    EXPECT_NE(verdict.text.find("ulimit -n"), std::string::npos) << verdict.text;
  }
}

// The peer whose memory it was got the blame.
TEST(MapLimits, ARankThatCannotMapAPeersMemoryIsAtFault) {
  constexpr int kRanks = 2, kPoor = 1;
  const auto body = [&](Communicator& comm) {
    AsyncEa<float> ea(comm, 1, 0.5);
    std::vector<float> values(100'000, 1);
    const std::array all = {std::span<float>(values)};
    ea.synchronize_parameters(all);
    if (comm.rank() == kPoor) use_up_descriptors();
    for (int step = 0; step < 20; ++step) ea.average_parameters(all);
    ea.synchronize_parameters(all);
  };
  ForkedJob job(kRanks, options_over("shm", kRanks), body);
  job.mark();
  for (const Verdict& verdict : job.verdicts(-1, 10)) {
    ASSERT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.peer, kPoor) << verdict.text;
    EXPECT_NE(verdict.text.find("raise the limit of open files"), std::string::npos)
        << verdict.text;
  }
}

// All named rank 0 after the whole timeout, with a question about a firewall.
TEST(LinkLimits, ARankWithoutADescriptorForALinkFailsAllWithItsReason) {
  constexpr int kRanks = 4, kPoor = 3;
  const auto body = [&](Communicator& comm) {
    std::array<float, 4> first{}, second{};
    // A link with one takes what links with others need, too, except for their sockets.
    const auto exchange = [&](int peer) {
      Work works[] = {comm.start(Call::send(first, peer)), comm.start(Call::recv(second, peer))};
      for (Work& work : works) work.wait();
    };
    if (comm.rank() == kPoor) use_up_descriptors();
    exchange(kRanks - 1 - comm.rank());
  };
  ForkedJob job(kRanks, options_over("tcp", kRanks), body);
  job.mark();
  const std::vector<Verdict> verdicts = job.verdicts(-1, 10);
  for (int rank = 0; rank < kRanks; ++rank) {
    const Verdict& verdict = verdicts[static_cast<size_t>(rank)];
    ASSERT_TRUE(verdict.told) << verdict.text;
    if ((rank == 1 || rank == 2) && verdict.code == 0) continue;  // they need nobody else
    EXPECT_EQ(verdict.code, static_cast<int>(ErrorCode::exhausted)) << verdict.text;
    EXPECT_EQ(verdict.peer, kPoor) << verdict.text;
    EXPECT_NE(verdict.text.find("ulimit"), std::string::npos) << verdict.text;
  }
}

// It named the rank that it could not be linked with, and so did all others.
TEST(LinkLimits, ARankWithoutADescriptorForADoorbellIsAtFault) {
  constexpr int kRanks = 3, kPoor = 2;
  const AllJoined all_joined;
  const auto body = [&](Communicator& comm) {
    if (comm.rank() == kPoor) {
      all_joined.await();
      use_up_descriptors();
    }
    comm.barrier();
  };
  ForkedJob job(kRanks, options_over("shm", kRanks), body);
  all_joined.tell();
  job.mark();
  for (const Verdict& verdict : job.verdicts(-1, 10)) {
    ASSERT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.code, static_cast<int>(ErrorCode::exhausted)) << verdict.text;
    EXPECT_EQ(verdict.peer, kPoor) << verdict.text;
    EXPECT_NE(verdict.text.find("ulimit"), std::string::npos) << verdict.text;
  }
}

// The advice was to start rank 0 on another host.
TEST(ListeningLimits, AreToldWithTheCommandThatRaisesThem) {
  const rlimit before = descriptor_limits();
  use_up_descriptors();
  Failure failure;
  try {
    bootstrap::listen_everywhere(0);
  } catch (const Error& error) {
    failure = error.failure();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(failure.advice.find("ulimit -n"), std::string::npos) << failure.text();
}

// Each part had sockets, an event and a control tree of its own.
TEST(PartLimits, ARankWithoutDescriptorsCanSplit) {
  constexpr int kRanks = 4, kPoor = 3;
  const auto body = [&](Communicator& comm) {
    std::array<float, 2> data{};
    for (int i = 0; i < 50; ++i) {
      if (i == 1 && comm.rank() == kPoor) use_up_descriptors();  // it has what messages need
      const auto part = comm.split(comm.rank() % 2);
      part->send(data, 1 - part->rank());
      part->recv(data, 1 - part->rank());
    }
  };
  ForkedJob job(kRanks, options_over("tcp", kRanks), body);
  job.mark();
  for (const Verdict& verdict : job.verdicts(-1, 20)) {
    ASSERT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.code, 0) << verdict.text;
  }
}

TEST(IdleOperations, GiveUpWhatTheyHold) {
  constexpr int kRanks = 2;
  const Options options = options_over("tcp", kRanks);
  const auto body = [](Communicator& comm) {
    std::vector<float> plain(300'000, 1);
    comm.all_reduce(std::span(plain));
    use_up_descriptors();
    for (size_t less = 1; less <= 3; ++less)  // other calls, so that others are prepared
      comm.all_reduce(std::span(plain).subspan(less));
    if (plain.back() != 16) throw Error(ErrorCode::system, "test", "a wrong sum");
  };
  ForkedJob job(kRanks, options, body);
  job.mark();
  for (const Verdict& verdict : job.verdicts(-1, 10)) {
    ASSERT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.code, 0) << verdict.text;
  }
}

/// The others have room for the center, and would wait for what the poor rank is to say next.
TEST_P(Limits, ARankWithoutRoomForACenterFailsAllWithItsReason) {
  constexpr int kRanks = 3, kPoor = 1;
  const Options options = options_over(GetParam(), kRanks);
  const auto body = [&](Communicator& comm) {
    AsyncEa<float> ea(comm, 1, 0.5);
    std::vector<float> values(100'000, 1);
    const std::array several = {std::span<float>(values)};
    const std::array one = {std::span<float>(values).first(comm.rank() == kPoor ? 1 : 2)};
    try {
      ea.synchronize_parameters(one);  // they do not agree, but have met: links stand
    } catch (const Error& error) {
      if (error.code() != ErrorCode::mismatch) throw;
    }
    comm.barrier();
    if (comm.rank() == kPoor) use_up_descriptors();
    try {
      ea.synchronize_parameters(several);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::exhausted) throw;
      ea.synchronize_parameters(several);
    }
  };
  ForkedJob job(kRanks, options, body);
  job.mark();
  for (const Verdict& verdict : job.verdicts(-1, 10)) {
    ASSERT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.code, static_cast<int>(ErrorCode::aborted)) << verdict.text;
    EXPECT_EQ(verdict.peer, kPoor) << verdict.text;
    EXPECT_NE(verdict.text.find("cannot"), std::string::npos) << verdict.text;
  }
}

/// Lines of this process's memory map.
int mappings_of(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(name) != std::string::npos;
  return count;
}

// Each had mapped the memory of every other as it joined, and held a descriptor for each.
TEST(ManyRanksLimits, WhatARankHoldsForOthersGrowsWithItsPartners) {
  static constexpr int kRanks = 100;
  const auto body = [](Communicator& comm) {
    const int joined = open_descriptors();
    std::vector<float> few(1, 1), many(1 << 14, 1);
    comm.all_reduce(std::span(few));
    comm.all_reduce(std::span(many));
    EXPECT_EQ(many, std::vector<float>(many.size(), kRanks));
    EXPECT_LE(open_descriptors() - joined, 50);
    EXPECT_LE(mappings_of("ropewalk-mailbox"), 50);
    comm.barrier();  // the next call makes more of all, some ranks before others
    std::vector<int32_t> to_all(kRanks), from_all(kRanks);
    for (int peer = 0; peer < kRanks; ++peer)
      to_all[static_cast<size_t>(peer)] = 1000 * comm.rank() + peer;
    for (int times = 0; times < 3; ++times) {
      comm.all_to_all(to_all, from_all);
      for (int peer = 0; peer < kRanks; ++peer)
        EXPECT_EQ(from_all[static_cast<size_t>(peer)], 1000 * peer + comm.rank());
    }
    EXPECT_LE(open_descriptors() - joined, kRanks + 15);
    if (::testing::Test::HasFailure())
      throw Error(ErrorCode::system, "test", "an expectation above did not hold");
  };
  ForkedJob job(kRanks, options_over("shm", kRanks), body);
  job.mark();
  for (const Verdict& verdict : job.verdicts(-1, 30)) {
    ASSERT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.code, 0) << verdict.text;
  }
}

// Calls in which everybody has something for everybody linked each rank with all others.
TEST(ManyRanksLimits, PartsThatAreHandedOnNeedFewLinks) {
  static constexpr int kRanks = 60, kBruckPartners = 2 * 2 * 7;  // two digits of radix 8
  const auto body = [](Communicator& comm) {
    const int joined = open_descriptors();
    const auto value = [](int from, int to) { return 1000 * from + to; };
    std::vector<int32_t> to_all(kRanks), from_all(kRanks), gathered(kRanks), own(1);
    for (int peer = 0; peer < kRanks; ++peer) to_all[peer] = value(comm.rank(), peer);
    Call call = Call::all_to_all(to_all, from_all, kRanks);
    call.algorithm = Algorithm::bruck;
    for (int times = 0; times < 3; ++times) {
      std::ranges::fill(from_all, -1);
      comm.run(call);
      for (int peer = 0; peer < kRanks; ++peer) EXPECT_EQ(from_all[peer], value(peer, comm.rank()));
    }
    Call scatter = Call::scatter(to_all, own, 0), gather = Call::gather(own, gathered, 0);
    scatter.algorithm = gather.algorithm = Algorithm::binomial;
    comm.run(scatter);
    EXPECT_EQ(own[0], value(0, comm.rank()));
    comm.run(gather);
    if (comm.rank() == 0) {
      EXPECT_EQ(gathered, to_all);
    }
    EXPECT_LE(open_descriptors() - joined, kBruckPartners + 15);
    if (::testing::Test::HasFailure())
      throw Error(ErrorCode::system, "test", "an expectation above did not hold");
  };
  ForkedJob job(kRanks, options_over("tcp", kRanks), body);
  job.mark();
  for (const Verdict& verdict : job.verdicts(-1, 30)) {
    ASSERT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.code, 0) << verdict.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, GrowingLimits, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Transports, Limits, ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing
