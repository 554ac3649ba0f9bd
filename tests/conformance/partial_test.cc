// Partial all_reduces over every transport: nothing lost, nothing twice, nobody waits for long.
#include "ropewalk/partial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "reduce/element.h"
#include "tests/local_world.h"
#include "tests/support/sanitized.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatient = 20s;

class PartialOver : public ::testing::TestWithParam<std::string> {};

/// What a rank has brought, or has got. Of each vector element r tells how often rank r brought
/// one, the rest is drawn.
struct Ledger {
  std::vector<uint64_t> elements;
  std::vector<uint64_t> contributions;

  Ledger(int ranks, size_t count) : elements(count), contributions(static_cast<size_t>(ranks)) {}
  void add(const std::vector<uint64_t>& data) {
    for (size_t i = 0; i < data.size(); ++i) elements[i] += data[i];
  }
  void add(const std::vector<uint64_t>& data, const PartialSum& sum) {
    add(data);
    for (size_t rank = 0; rank < contributions.size(); ++rank) {
      contributions[rank] += sum.contributions[rank];
      EXPECT_EQ(data[rank], sum.contributions[rank]);  // the sum is of whom it names
    }
  }
};

/// Some calls of each rank, with naps, in random number; then all must have got what all have
/// brought. Numbers wrap around: sums are exact.
void check_totals(Communicator& comm, size_t count, int calls_max, unsigned seed) {
  std::mt19937_64 random(seed * 31 + static_cast<unsigned>(comm.rank()));
  const auto me = static_cast<size_t>(comm.rank());
  count += static_cast<size_t>(comm.size());
  PartialAllReduce<uint64_t> reducer(comm, count);
  Ledger brought(comm.size(), count), got(comm.size(), count);
  std::vector<uint64_t> data(count);
  const auto calls = static_cast<int>(random() % static_cast<unsigned>(calls_max + 1));
  for (int call = 0; call < calls; ++call) {
    if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    for (uint64_t& element : data) element = random();
    std::fill_n(data.begin(), comm.size(), 0);
    data[me] = 1;
    brought.add(data);
    const std::chrono::microseconds patience(random() % 2 == 0 ? 0 : random() % 1000);
    const PartialSum sum = reducer.all_reduce(data, patience);
    EXPECT_GE(sum.rounds, 1u);
    EXPECT_EQ(sum.contributions[me], 1u);
    got.add(data, sum);
  }
  got.add(data, reducer.finish(data));
  comm.all_reduce(brought.elements);
  EXPECT_EQ(got.elements, brought.elements);
  std::vector<uint64_t> made(static_cast<size_t>(comm.size()));
  const std::vector<uint64_t> own{static_cast<uint64_t>(calls)};
  comm.all_gather(own, made);
  EXPECT_EQ(got.contributions, made);
}

TEST_P(PartialOver, EveryContributionIsInTheSumsOfEachRankOnce) {
  unsigned seed = 0;
  for (const int ranks : {1, 2, 3, 5, 8}) {
    if (ranks > rank_counts_under_test().back()) break;
    run_ranks(ranks, GetParam(), [&](Communicator& comm) {
      check_totals(comm, 1, 30, seed);
      check_totals(comm, 5000, kIsSanitized ? 5 : 15, seed + 1);
      check_totals(comm, kIsSanitized ? 50'000 : 200'000, 6, seed + 2);
    });
    seed += 3;
  }
}

TEST_P(PartialOver, WhoAreInTimeMakeOneRound) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    PartialAllReduce<double> reducer(comm, 3);
    for (int call = 0; call < 20; ++call) {
      std::vector<double> data{1, static_cast<double>(comm.rank()), static_cast<double>(call)};
      const PartialSum sum = reducer.all_reduce(data, kPatient);
      EXPECT_EQ(sum.contributions, std::vector<uint32_t>(4, 1));
      EXPECT_EQ(sum.rounds, 1u);
      EXPECT_EQ(sum.total(), 4u);
      EXPECT_EQ(data, (std::vector<double>{4, 6, 4.0 * call}));
    }
    std::vector<double> rest(3, 7);
    EXPECT_EQ(reducer.finish(rest).rounds, 0u);
    EXPECT_EQ(rest, std::vector<double>(3));
  });
}

/// A rank that is away adds nothing, holds nobody up, and gets what it has missed.
TEST_P(PartialOver, WhoIsAwayGetsWhatItHasMissed) {
  std::atomic<int> others_made{0};
  run_ranks(3, GetParam(), [&](Communicator& comm) {
    constexpr int kMissed = 10;
    PartialAllReduce<int32_t> reducer(comm, 1);
    std::vector<int32_t> data{1 << 16};
    if (comm.rank() == 1) {
      while (others_made < 2 * kMissed) std::this_thread::sleep_for(1ms);
      const PartialSum sum = reducer.all_reduce(data, 0s);
      EXPECT_GE(sum.rounds, static_cast<uint32_t>(kMissed + 1));
      EXPECT_EQ(sum.contributions, (std::vector<uint32_t>{kMissed, 1, kMissed}));
      EXPECT_EQ(data[0], (1 << 16) + 2 * kMissed);
    } else {
      for (int call = 0; call < kMissed; ++call) {
        data[0] = 1;
        const PartialSum sum = reducer.all_reduce(data, 1ms);
        EXPECT_EQ(sum.contributions[1], 0u);
        EXPECT_EQ(data[0], static_cast<int32_t>(sum.total()));
        ++others_made;
      }
    }
    const PartialSum rest = reducer.finish(data);
    EXPECT_EQ(data[0], static_cast<int32_t>(rest.contributions[0] + rest.contributions[2] +
                                            (rest.contributions[1] << 16)));
  });
}

/// No wait for callers has a deadline but their patience: in a call, in `finish`, and of the
/// library's threads.
TEST_P(PartialOver, WaitsLongerThanTheCommunicatorsTimeout) {
  const std::chrono::milliseconds timeout(static_cast<int>(2000 * slowness()));
  run_ranks(
      3, GetParam(),
      [&](Communicator& comm) {
        PartialAllReduce<float> reducer(comm, 1);
        std::vector<float> data{1};
        if (comm.rank() == 1) std::this_thread::sleep_for(timeout + 500ms);
        if (comm.rank() < 2) {
          EXPECT_EQ(reducer.all_reduce(data, kPatient).total(), 2u);
        }
        const PartialSum rest = reducer.finish(data);
        EXPECT_EQ(rest.total(), comm.rank() < 2 ? 0u : 2u);
        EXPECT_EQ(data[0], static_cast<float>(rest.total()));
      },
      [&](int, Options& options) {
        options.join_timeout = kPatient;
        options.timeout = timeout;
      });
}

template <class T>
void check_type(Communicator& comm) {
  PartialAllReduce<T> reducer(comm, 100);
  for (int call = 0; call < 3; ++call) {
    std::vector<T> data(100, narrow<T>(static_cast<Wide<T>>(comm.rank() + 1)));
    reducer.all_reduce(data, kPatient);
    for (const T& value : data) EXPECT_EQ(widen(value), static_cast<Wide<T>>(6));
  }
}

TEST_P(PartialOver, SumsAnyElements) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    check_type<float16>(comm);
    check_type<bfloat16>(comm);
    check_type<float>(comm);
    check_type<int8_t>(comm);
    check_type<uint64_t>(comm);
    PartialAllReduce<float> of_nothing(comm, 0);
    EXPECT_EQ(of_nothing.all_reduce({}, kPatient).total(), 3u);
  });
}

TEST_P(PartialOver, RefusesWrongCalls) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    PartialAllReduce<float> reducer(comm, 2);
    std::vector<float> data(3, 1);
    EXPECT_THROW(reducer.all_reduce(data, 0s), Error);
    EXPECT_THROW(reducer.finish(data), Error);
    data.resize(2);
    reducer.all_reduce(data, kPatient);
    reducer.finish(data);
    EXPECT_THROW(reducer.all_reduce(data, 0s), Error);
    EXPECT_THROW(reducer.finish(data), Error);
  });
}

TEST_P(PartialOver, CountsThatDifferAreAMismatch) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    PartialAllReduce<float> reducer(comm, comm.rank() == 0 ? 2 : 3);
    std::vector<float> data(comm.rank() == 0 ? 2 : 3, 5);
    try {
      reducer.all_reduce(data, kPatient);
      ADD_FAILURE() << "nobody noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    }
    EXPECT_EQ(std::ranges::count(data, 5), std::ssize(data));
  });
}

TEST_P(PartialOver, AnExceptionOnOneRankEndsTheOthersCalls) {
  const auto body = [](Communicator& comm) {
    PartialAllReduce<float> reducer(comm, 1);
    std::vector<float> data(1);
    reducer.all_reduce(data, kPatient);
    if (comm.rank() == 1) throw std::runtime_error("goes");
    data[0] = 5;
    try {
      for (;;) reducer.all_reduce(data, kPatient);
    } catch (const Error& error) {
      EXPECT_EQ(error.peer(), 1) << error.what();
      EXPECT_EQ(data[0], 5);
    }
  };
  EXPECT_THROW(run_ranks(3, GetParam(), body), std::runtime_error);
}

TEST_P(PartialOver, AbortEndsACallUnderWay) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    PartialAllReduce<float> reducer(comm, 1);
    std::vector<float> data(1);
    comm.barrier();  // all have made it
    if (comm.rank() == 1) return reducer.abort("enough");
    try {
      reducer.all_reduce(data, kPatient);
      ADD_FAILURE() << "it waited for nobody";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
    }
  });
}

// A failure may be seen between a sum's coming and the call's return.
TEST_P(PartialOver, ACallThatThrowsHasNotChangedItsData) {
  for (int round = 0; round < 20; ++round)
    run_ranks(4, GetParam(), [](Communicator& comm) {
      constexpr size_t kCount = 100'000;  // takes a while to copy
      PartialAllReduce<float> reducer(comm, kCount);
      std::vector<float> data(kCount, 7);
      try {
        reducer.all_reduce(data, kPatient);
        EXPECT_EQ(data[0], 28);
      } catch (const Error& error) {
        EXPECT_EQ(data[0], 7) << error.what();
      }
      reducer.abort("enough");
    });
}

INSTANTIATE_TEST_SUITE_P(Transports, PartialOver, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing
