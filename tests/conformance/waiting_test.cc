// A rank that waits long for another leaves its CPU to others, with nothing configured, and may
// have other things to do meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <span>
#include <thread>

#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

double seconds_of(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

class Waiting : public ::testing::TestWithParam<std::string> {};

TEST_P(Waiting, UsesLittleOfTheCpu) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    auto buffer = comm.allocate<float>(1 << 16);
    Call call;
    call.in = call.out = buffer.data();
    call.count = buffer.size();
    Plan plan = comm.plan(call);
    plan.run();
    if (comm.rank() == 3) std::this_thread::sleep_for(std::chrono::seconds(1));
    const double wall_s = seconds_of(CLOCK_MONOTONIC);
    const double cpu_s = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    plan.run();
    const double waited_s = seconds_of(CLOCK_MONOTONIC) - wall_s;
    const double used_s = seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu_s;
    if (comm.rank() != 3) {
      EXPECT_LT(used_s, 0.1 * slowness() * waited_s) << "rank " << comm.rank();
    }
  });
}

// The other rank comes only when it has been called, and later than the deadline of the
// communicator's other calls.
TEST_P(Waiting, CallsWhatIsToGoOnBesideItAndHasNoDeadline) {
  constexpr std::chrono::milliseconds kTimeout{300};
  std::atomic<int> called{0};
  const auto adjust = [&](int, Options& options) { options.timeout = kTimeout; };
  const auto body = [&](Communicator& comm) {
    std::array<int32_t, 3> data{1, 2, 3};
    const Call call = Call::all_reduce(data);
    comm.run(call, std::chrono::seconds(30));
    if (comm.rank() == 1) {
      while (called < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(3 * kTimeout);
    }
    comm.run_beside(call, [&] { called += comm.rank() == 0 ? 1 : 0; });
    EXPECT_EQ(data[2], 12);
  };
  run_ranks(2, GetParam(), body, adjust);
}

TEST_P(Waiting, BesideOtherThingsHearsOfAFailure) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::array<int32_t, 1> data{1};
    comm.run(Call::all_reduce(data));
    comm.agree(0);  // goes on whoever revokes
    if (comm.rank() == 1) return comm.revoke("there is nothing to add");
    try {
      comm.run_beside(Call::all_reduce(data), [] {});
      FAIL() << "it has ended without rank 1";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::revoked) << error.what();
    }
  });
}

// What served the last call is kept for the next without a lock: other calls, other ways to make
// the same one and memory that has gone must not get it.
TEST_P(Waiting, BesideOtherThingsGivesTheResultOfItsOwnCall) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::array<int32_t, 2> first{}, second{};
    const auto run = [&](auto& data, bool beside) {
      std::ranges::fill(data, comm.rank() + 1);
      const Call call = Call::all_reduce(data);
      if (beside)
        comm.run_beside(call, [] {});
      else
        comm.run(call);
      EXPECT_EQ(data[1], 3);
    };
    for (const bool beside : {true, true, true, false, true, false, false, true}) {
      run(first, beside);
      run(first, beside);
      run(second, beside);
    }
    for (int round = 0; round < 3; ++round) {
      auto buffer = comm.allocate<int32_t>(1000);  // likely where the last was
      for (int i = 0; i < 3; ++i) run(buffer, true);
    }
  });
}

TEST_P(Waiting, BesideOtherThingsOnSeveralThreads) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    uint8_t nothing = 0;
    Call call = Call::all_reduce(std::span(&nothing, 1));
    call.collective = Collective::barrier;
    const auto run = [&] {
      for (int i = 0; i < 300; ++i) comm.run_beside(call, [] {});
    };
    std::thread other(run);
    run();
    other.join();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Waiting, ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing
