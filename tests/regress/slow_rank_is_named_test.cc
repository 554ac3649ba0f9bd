// Where a rank is late, others wait for each other, each for the next one that waits. Once each
// named the one that it waited for itself: of four ranks of a ring, with rank 2 asleep, all named
// rank 3.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <vector>

#include "schedule/algorithm.h"
#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

using namespace std::chrono_literals;

constexpr size_t kCount = 50'000;

class SlowRank : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  /// All of `slow` come to a collective only when the others have given it up. Everybody learns the
  /// same.
  void expect_named(const std::vector<int>& slow, Algorithm algorithm) {
    const auto [transport, ranks] = GetParam();
    const std::string who = fmt::format("rank {} {} not called all_reduce #1 yet",
                                        fmt::join(slow, ", "), slow.size() == 1 ? "has" : "have");
    const std::ptrdiff_t waiters = ranks - std::ssize(slow);
    std::latch all_wait(waiters), given_up(waiters);
    run_ranks(ranks, transport, [&](Communicator& comm) {
      std::vector<float> data(kCount);
      comm.barrier();
      const bool is_slow = std::ranges::find(slow, comm.rank()) != slow.end();
      if (is_slow) given_up.wait();
      Call call = Call::all_reduce(std::span(data));
      call.algorithm = algorithm;
      try {
        Work work = comm.start(call);
        if (!is_slow) all_wait.arrive_and_wait();  // nobody else is late
        work.wait(std::chrono::duration_cast<std::chrono::nanoseconds>(slowness() * 300ms));
        ADD_FAILURE() << "rank " << comm.rank() << " did not fail";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
        EXPECT_EQ(error.failure().peer, slow.front()) << error.what();
        EXPECT_NE(std::string(error.what()).find(who), std::string::npos) << error.what();
      }
      if (!is_slow) given_up.count_down();
    });
  }
};

TEST_P(SlowRank, IsNamedWhateverTheAlgorithm) {
  const int ranks = std::get<1>(GetParam());
  for (const Algorithm algorithm : algorithms_for(Collective::all_reduce)) {
    if (!descriptor_of(algorithm).passed_over(hosts_of({}, ranks)).empty()) continue;
    SCOPED_TRACE(name_of(algorithm));
    expect_named({ranks / 2}, algorithm);
  }
}

TEST_P(SlowRank, IsNamedWithOthersThatAreSlow) {
  const int ranks = std::get<1>(GetParam());
  if (ranks > 2) expect_named({1, ranks - 1}, Algorithm::ring);
}

INSTANTIATE_TEST_SUITE_P(Transports, SlowRank,
                         ::testing::Combine(::testing::ValuesIn(transports_under_test()),
                                            ::testing::Values(2, 4, 7)));

}  // namespace
}  // namespace ropewalk::testing
