// A run of a plan over shared memory allocates nothing and makes no system call, as long as no rank
// has to wait for another.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/data_path/allocation_watch.h"
#include "tests/data_path/one_thread_job.h"
#include "tests/data_path/system_call_watch.h"
#include "tests/local_world.h"

namespace ropewalk::testing {
namespace {

constexpr int kWarmUps = 20;  // more than slots in a stream, on every context
constexpr int kRuns = 200;

struct Sized {
  Collective collective;
  size_t bytes;
};
constexpr Sized kCalls[] = {
    {Collective::all_reduce, 8},
    {Collective::all_reduce, 1 << 10},
    {Collective::all_reduce, 64 << 10},
    {Collective::all_reduce, 1 << 20},
    {Collective::reduce_scatter, 64 << 10},
    {Collective::all_gather, 64 << 10},
    {Collective::broadcast, 64 << 10},
    {Collective::all_to_all, 64 << 10},
    {Collective::barrier, 4},
};

class DataPath : public ::testing::TestWithParam<std::tuple<int, CallerMemory>> {
 protected:
  void SetUp() override {
    if (!kWatchable) GTEST_SKIP() << kWhyNotWatchable;
  }
  static int ranks() { return std::get<0>(GetParam()); }
  static CallerMemory memory() { return std::get<1>(GetParam()); }
};

std::string text_of(const Sized& sized) {
  return fmt::format("{} of {} bytes", name_of(sized.collective), sized.bytes);
}

TEST_P(DataPath, AllocatesNothing) {
  auto job = join_in_one_thread(ranks());
  for (const Sized& sized : kCalls) {
    PlannedCall call(job, sized.collective, sized.bytes, memory());
    for (int i = 0; i < kWarmUps; ++i) call.run();
    const std::string found = allocations_during([&] {
      for (int i = 0; i < kRuns; ++i) call.run();
    });
    EXPECT_TRUE(found.empty()) << text_of(sized) << ": " << found;
    EXPECT_TRUE(sized.collective == Collective::barrier || call.is_right()) << text_of(sized);
  }
  leave_in_one_thread(job);
}

TEST_P(DataPath, MakesNoSystemCall) {
  for (const Sized& sized : kCalls) {
    const WatchedCalls calls = system_calls_of([&] {
      static std::vector<std::unique_ptr<Communicator>> job = join_in_one_thread(ranks());
      static PlannedCall call(job, sized.collective, sized.bytes, memory());
      for (int i = 0; i < kWarmUps; ++i) call.run();
      return [] {
        for (int i = 0; i < kRuns; ++i) call.run();
      };
    });
    if (!calls.skipped.empty()) GTEST_SKIP() << calls.skipped;
    EXPECT_TRUE(calls.found.empty()) << text_of(sized) << ": " << calls.found;
  }
}

INSTANTIATE_TEST_SUITE_P(Shm, DataPath,
                         ::testing::Combine(::testing::Values(2, 3),
                                            ::testing::Values(CallerMemory::registered,
                                                              CallerMemory::plain,
                                                              CallerMemory::mixed)));

/// `runs` times Plan::run on each of two threads; rank 0 is late each time where `pause_ms` > 0.
void expect_no_allocation_while_waiting(size_t count, int runs, int pause_ms) {
  run_ranks(2, "shm", [=](Communicator& comm) {
    std::vector<float> data(count);
    Call call;
    call.in = call.out = data.data();
    call.count = count;
    Plan plan = comm.plan(call);
    for (int i = 0; i < kWarmUps; ++i) plan.run();
    const std::string found = allocations_during([&] {
      for (int i = 0; i < runs; ++i) {
        if (comm.rank() == 0 && pause_ms > 0)
          std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
        plan.run();
      }
    });
    EXPECT_TRUE(found.empty()) << found;
    comm.barrier();
  });
}

TEST(WaitingForAnotherThread, AllocatesNothing) {
  if (!kWatchable) GTEST_SKIP() << kWhyNotWatchable;
  for (size_t count : {size_t{2}, size_t{16} << 10, size_t{256} << 10})
    expect_no_allocation_while_waiting(count, kRuns, 0);
}

/// Long enough that the waiting rank sleeps, and asks the other what it is doing.
TEST(WaitingForAnotherThread, AllocatesNothingWhenItIsLate) {
  if (!kWatchable) GTEST_SKIP() << kWhyNotWatchable;
  for (size_t count : {size_t{2}, size_t{16} << 10})
    expect_no_allocation_while_waiting(count, 3, 150);
}

TEST(CommittedCalls, AllocateNothingFromTheSecondOn) {
  if (!kWatchable) GTEST_SKIP() << kWhyNotWatchable;
  run_ranks(2, "shm", [](Communicator& comm) {
    std::vector<float> large(256 << 10), small(2);
    const auto calls = [&](int runs) {
      for (int i = 0; i < runs; ++i) {
        comm.all_reduce_committed(large);
        comm.all_reduce_committed(small);
      }
    };
    calls(kWarmUps);
    const std::string found = allocations_during([&] { calls(kRuns); });
    EXPECT_TRUE(found.empty()) << found;
    comm.barrier();
  });
}

// --- that the watches see what they are to see ---

TEST(Watches, SeeAllocations) {
  if (!kWatchable) GTEST_SKIP() << kWhyNotWatchable;
  static int* volatile kept;
  const std::string found = allocations_during([] {
    kept = new int[77];
    delete[] kept;
  });
  EXPECT_EQ(found.substr(0, found.find(" from")),
            "2 allocations or releases; the first: malloc(308)");
}

TEST(Watches, SeeSystemCalls) {
  if (!kWatchable) GTEST_SKIP() << kWhyNotWatchable;
  const auto yield = [] { return [] { std::this_thread::yield(); }; };
  const auto nothing = [] { return [] {}; };
  const WatchedCalls calls = system_calls_of(yield);
  if (!calls.skipped.empty()) GTEST_SKIP() << calls.skipped;
  EXPECT_EQ(calls.found.substr(0, calls.found.find(" from")), "sched_yield");
  EXPECT_EQ(system_calls_of(nothing).found, "");
}

}  // namespace
}  // namespace ropewalk::testing
