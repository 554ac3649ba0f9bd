// Where a rank is late with a message, others may wait for each other, each for a message of the
// next one. Once each named the one that it waited for itself: of four ranks in a chain, with rank
// 3 asleep, rank 1 might be named.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

constexpr size_t kLong = 200'000;  // elements: a send of these waits for its receiver

class LateRank : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  int ranks() const { return std::get<1>(GetParam()); }
  int last() const { return ranks() - 1; }
  /// Ranks share the CPUs, also while they join.
  nanoseconds timeout() const {
    return std::chrono::duration_cast<nanoseconds>(slowness() * (2s + ranks() * 250ms));
  }

  /// Ranks that are not in `late` do what `wait` says, which never ends, and must all name `peer`
  /// and say `text`. The late ones do nothing, or what `come_late` says, which fails likewise.
  void expect_named(const std::vector<int>& late, int peer, const std::string& text,
                    const std::function<void(Communicator&)>& wait,
                    const std::function<void(Communicator&)>& come_late = {}) {
    std::latch given_up(ranks() - std::ssize(late));
    const auto expect_failure = [&](Communicator& comm, const auto& call) {
      try {
        call(comm);
        ADD_FAILURE() << "rank " << comm.rank() << " did not fail";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
        EXPECT_EQ(error.failure().peer, peer) << error.what();
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      }
    };
    run_ranks(
        ranks(), std::get<0>(GetParam()),
        [&](Communicator& comm) {
          comm.barrier();
          const bool is_late = std::ranges::find(late, comm.rank()) != late.end();
          if (!is_late) {
            expect_failure(comm, wait);
            given_up.count_down();
          } else if (come_late) {
            expect_failure(comm, come_late);
          } else {
            given_up.wait();
          }
        },
        [&](int, Options& options) { options.timeout = timeout(); });
  }
  void expect_late(const std::vector<int>& late, const std::function<void(Communicator&)>& wait) {
    expect_named(late, late.front(),
                 fmt::format("is rank {} still computing", fmt::join(late, ", ")), wait);
  }
  void next_sender_for_ever(Communicator& comm) const {
    while (!comm.next_sender(timeout())) continue;
  }
};

/// In the three ways in which a caller can wait.
void run_somehow(Communicator& comm, const Call& call) {
  if (comm.rank() % 3 == 0) return comm.run(call);
  Work work = comm.start(call);
  if (comm.rank() % 3 == 1) return work.wait();
  std::promise<std::optional<Failure>> ended;
  work.on_done([&](const Failure* failure) {
    ended.set_value(failure == nullptr ? std::optional<Failure>() : *failure);
  });
  if (const auto failure = ended.get_future().get()) throw Error(*failure);
}

void recv_from(Communicator& comm, int peer) {
  std::vector<float> data(1);
  run_somehow(comm, Call::recv(data, peer));
}

TEST_P(LateRank, OfAChainOfReceives) {
  expect_late({last()}, [](Communicator& comm) { recv_from(comm, comm.rank() + 1); });
}

TEST_P(LateRank, OfAChainOfSends) {
  expect_late({last()}, [](Communicator& comm) {
    const std::vector<float> data(kLong);
    run_somehow(comm, Call::send(data, comm.rank() + 1));
  });
}

TEST_P(LateRank, ForWhomOneWaitsThatWouldTakeAnyMessage) {
  if (ranks() < 3) GTEST_SKIP();
  expect_late({last()}, [&](Communicator& comm) {
    if (comm.rank() == 1)
      next_sender_for_ever(comm);
    else
      recv_from(comm, 1);
  });
}

TEST_P(LateRank, ForWhomOneWaitsBeforeItJoinsACollective) {
  if (ranks() < 3) GTEST_SKIP();
  expect_late({last()}, [&](Communicator& comm) {
    std::vector<float> data(1000);
    if (comm.rank() == last() - 1)
      recv_from(comm, last());
    else
      run_somehow(comm, Call::all_reduce(std::span(data)));
  });
}

TEST_P(LateRank, ThatHasOthersBesideIt) {
  if (ranks() < 4) GTEST_SKIP();
  expect_late({1, last()}, [](Communicator& comm) { recv_from(comm, comm.rank() + 1); });
}

// As the workers of an AsyncEa wait for the owner of a shard: its thread that answers is at rest.
TEST_P(LateRank, ThatServesOthersInAnotherThread) {
  const auto ask = [](Communicator& comm) {
    std::vector<float> answer(1);
    const std::vector<float> question(1);
    Work works[] = {comm.start(Call::recv(answer, 0, 1)), comm.start(Call::send(question, 0))};
    for (Work& work : works) work.wait();
  };
  expect_named({0}, 0, "is rank 0 still computing", ask, [&](Communicator& comm) {
    std::thread center([&] {
      std::vector<float> question(1);
      EXPECT_THROW(
          {
            for (;;)
              if (const auto worker = comm.next_sender(1h)) comm.recv(question, *worker);
          },
          Error);
    });
    center.join();
    comm.barrier();
  });
}

// It answers nobody and waits then itself.
TEST_P(LateRank, ThatComesWhenOthersGiveUp) {
  expect_named(
      {last()}, last(), fmt::format("is rank {} still computing", last()),
      [](Communicator& comm) { recv_from(comm, comm.rank() + 1); },
      [&](Communicator& comm) {
        std::this_thread::sleep_for(timeout());
        recv_from(comm, 0);
      });
}

TEST_P(LateRank, IsNoneWhereAllWaitForEachOther) {
  std::string circle = "rank 0 waits in recv #0 for rank 1";
  for (int rank = 1; rank < std::min(ranks(), 12); ++rank)
    circle += fmt::format(", which waits in recv #0 for rank {}", (rank + 1) % ranks());
  expect_named({}, 0, circle,
               [&](Communicator& comm) { recv_from(comm, (comm.rank() + 1) % ranks()); });
}

/// Deadlines are longer under sanitizers, and nothing else but them takes time here.
std::vector<int> rank_counts() {
  return slowness() > 1 ? std::vector{4} : std::vector{2, 4, 16};
}

INSTANTIATE_TEST_SUITE_P(Transports, LateRank,
                         ::testing::Combine(::testing::ValuesIn(transports_under_test()),
                                            ::testing::ValuesIn(rank_counts())));

}  // namespace
}  // namespace ropewalk::testing
