// Processes that join a job that runs, with threads as ranks: also under sanitizers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/faults/growing.h"
#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

using namespace std::chrono_literals;

void expect_grown(Communicator& comm, int number, int members, int newcomers) {
  EXPECT_EQ(comm.epoch().number, number);
  ASSERT_EQ(comm.size(), members + newcomers);
  std::vector<int> former;
  for (int rank = 0; rank < members; ++rank) former.push_back(rank);
  former.resize(static_cast<size_t>(comm.size()), -1);
  EXPECT_EQ(comm.epoch().former_ranks, former);
  expect_sum_of_ranks(comm, 100'000);
  comm.agree(0);  // all have that
}

TEST_P(Growing, NewcomersJoinAfterADeathThatCostNoConnection) {
  constexpr int kMembers = 4;
  const auto late = [](Communicator& comm) {
    expect_grown(comm, 2, kMembers - 1, 1);
    EXPECT_FALSE(comm.epoch().keeps_connections);
  };
  std::future<void> newcomer;
  std::once_flag started;
  const auto body = [&](Communicator& comm) {
    try {
      expect_sum_of_ranks(comm, 1000);
      if (comm.rank() == 0) throw std::runtime_error("goes");
      for (;;) expect_sum_of_ranks(comm, 1000);
    } catch (const Error&) {
    }
    const auto next = comm.shrink();
    if (GetParam() == "shm") {
      EXPECT_TRUE(next->epoch().keeps_connections);
    }
    std::call_once(started, [&] { newcomer = start_newcomer(late); });
    const auto grown = grow_by(*next, 1);
    expect_grown(*grown, 2, kMembers - 1, 1);
    EXPECT_FALSE(grown->epoch().keeps_connections);
  };
  EXPECT_THROW(run_members(kMembers, body), std::runtime_error);
  newcomer.get();
}

TEST_P(Growing, NewcomersJoinAndHaveAVote) {
  constexpr int kMembers = 3, kNewcomers = 2;
  const auto shrink_to = [](Communicator& comm, int size) {
    try {
      for (;;) expect_sum_of_ranks(comm, 1000);
    } catch (const Error& error) {
      EXPECT_TRUE(error.is_survivable()) << error.what();
    }
    const auto next = comm.shrink();
    EXPECT_EQ(next->size(), size);
    expect_sum_of_ranks(*next, 1000);
  };
  const auto late = [&](Communicator& comm) {
    expect_grown(comm, 1, kMembers, kNewcomers);
    shrink_to(comm,
              kMembers + kNewcomers - 2);  // three of five: with the members alone it were one
  };
  std::vector<std::future<void>> newcomers;
  for (int i = 0; i < kNewcomers; ++i) newcomers.push_back(start_newcomer(late));
  const auto body = [&](Communicator& comm) {
    const auto next = grow_by(comm, kNewcomers);
    expect_grown(*next, 1, kMembers, kNewcomers);
    EXPECT_TRUE(next->epoch().departures.empty());
    EXPECT_THROW(comm.barrier(), Error);
    if (next->rank() < 2) throw std::runtime_error("goes");
    shrink_to(*next, kMembers + kNewcomers - 2);
  };
  EXPECT_THROW(run_members(kMembers, body), std::runtime_error);
  for (auto& newcomer : newcomers) newcomer.get();
}

TEST_P(Growing, WithoutNewcomersTheEpochGoesOn) {
  run_members(3, [](Communicator& comm) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(comm.grow(), nullptr);
      expect_sum_of_ranks(comm, 1000);
    }
    EXPECT_EQ(comm.epoch().number, 0);
    comm.agree(0);  // all have their sums
    EXPECT_EQ(comm.shrink()->epoch().number, 1);
  });
}

TEST_P(Growing, AfterADeathGrowAndShrinkAreOne) {
  const auto body = [](Communicator& comm) {
    comm.agree(0);  // all have joined
    if (comm.rank() == 0) throw std::runtime_error("goes");
    try {
      for (;;) expect_sum_of_ranks(comm, 1000);
    } catch (const Error&) {
    }
    const auto next = comm.rank() % 2 == 0 ? comm.grow() : comm.shrink();
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(next->size(), 3);
    EXPECT_EQ(next->epoch().departures.size(), 1u);
    expect_sum_of_ranks(*next, 1000);
  };
  EXPECT_THROW(run_members(4, body), std::runtime_error);
}

TEST_P(Growing, AProcessJoinsInPlaceOfRankZero) {
  constexpr int kMembers = 4;
  std::future<void> newcomer;
  const auto body = [&](Communicator& comm) {
    comm.agree(0);  // all have joined
    if (comm.rank() == 0) throw std::runtime_error("goes");
    try {
      for (;;) expect_sum_of_ranks(comm, 1000);
    } catch (const Error&) {
    }
    const auto fewer = comm.shrink();
    if (comm.rank() == 1)
      newcomer = start_newcomer([](Communicator& late) { expect_grown(late, 2, kMembers - 1, 1); });
    const auto next = grow_by(*fewer, 1);
    expect_grown(*next, 2, kMembers - 1, 1);
  };
  EXPECT_THROW(run_members(kMembers, body), std::runtime_error);
  newcomer.get();
}

TEST_P(Growing, AnotherProcessListensOnceTheFirstIsGone) {
  std::future<void> newcomer;
  const auto body = [&](Communicator& comm) {
    comm.agree(0);  // all have joined
    if (comm.rank() == 0) {
      ::close(std::exchange(listener_, -1));
      throw std::runtime_error("goes");
    }
    try {
      for (;;) expect_sum_of_ranks(comm, 1000);
    } catch (const Error&) {
    }
    const auto fewer = comm.shrink();
    if (comm.rank() == 1)
      newcomer = start_newcomer([](Communicator& late) { expect_grown(late, 2, 2, 1); });
    expect_grown(*grow_by(*fewer, 1), 2, 2, 1);
  };
  EXPECT_THROW(run_members(3, body, false), std::runtime_error);
  newcomer.get();
}

TEST_P(Growing, WhoCameInGoesOnToTheNextAndTakesInOthers) {
  constexpr int kEpochs = 3;
  std::vector<std::future<void>> newcomers(kEpochs);
  std::function<void(Communicator&, int)> go_on = [&](Communicator& comm, int epoch) {
    if (epoch == kEpochs) return;
    if (comm.rank() == 0)
      newcomers[static_cast<size_t>(epoch)] = start_newcomer([&, epoch](Communicator& late) {
        expect_grown(late, epoch + 1, 2 + epoch, 1);
        go_on(late, epoch + 1);
      });
    const auto next = grow_by(comm, 1);
    expect_grown(*next, epoch + 1, 2 + epoch, 1);
    go_on(*next, epoch + 1);
  };
  run_members(2, [&](Communicator& comm) { go_on(comm, 0); });
  for (auto& newcomer : newcomers) newcomer.get();
}

/// The recipe of docs/elastic.md.
class Healing {
 public:
  explicit Healing(bool has_state) : has_state_(has_state) {
    if (has_state) std::ranges::fill(parameters_, 1.0f);
  }

  void train(Communicator& comm) {
    const std::vector<NamedBuffer> state{{"parameters", parameters_}, {"momentum", momentum_}};
    StateSync sync = comm.start_sync_state(state, step_);
    std::vector<std::vector<float>> sums;
    for (int late = 1; late != 0;) {
      sums.push_back(add_up(comm));
      late = static_cast<int>(sums.back()[kLate]);
      if (!has_state_ && sync.done()) {
        step_ = sync.wait().revision;
        has_state_ = true;
      }
      if (!has_state_) continue;
      for (const auto& sum : sums) apply(sum);
      sums.clear();
    }
    EXPECT_EQ(comm.sync_state(state, step_).sources.size(), static_cast<size_t>(comm.size()));
  }

 private:
  static constexpr size_t kContributors = 100, kLate = 101;

  std::vector<float> add_up(Communicator& comm) const {
    std::vector<float> gradients(kLate + 1);
    for (size_t i = 0; has_state_ && i < kContributors; ++i)
      gradients[i] = 0.1f * parameters_[i] + static_cast<float>(comm.rank());
    gradients[kContributors] = has_state_ ? 1 : 0;
    gradients[kLate] = has_state_ ? 0 : 1;
    comm.all_reduce(gradients);
    return gradients;
  }
  void apply(const std::vector<float>& sum) {
    for (size_t i = 0; i < kContributors; ++i) {
      momentum_[i] = 0.9f * momentum_[i] + sum[i] / sum[kContributors];
      parameters_[i] -= 0.1f * momentum_[i];
    }
    ++step_;
  }

  std::vector<float> parameters_ = std::vector<float>(3'000'000);
  std::vector<float> momentum_ = std::vector<float>(1000);
  bool has_state_;
  uint64_t step_ = 0;
};

TEST_P(Growing, ANewcomerMakesTheStepsThatItHasMissedOnceItHasTheState) {
  auto newcomer = start_newcomer([](Communicator& comm) { Healing(false).train(comm); });
  run_members(2, [](Communicator& comm) {
    Healing trainer(true);
    trainer.train(comm);
    trainer.train(*grow_by(comm, 1));
  });
  newcomer.get();
}

TEST_P(Growing, AJobOfOneGrows) {
  auto newcomer = start_newcomer([](Communicator& late) { expect_grown(late, 1, 1, 1); });
  run_members(1, [](Communicator& comm) {
    std::unique_ptr<Communicator> next;
    while (!next) next = comm.grow();
    expect_grown(*next, 1, 1, 1);
  });
  newcomer.get();
}

TEST_P(Growing, AnotherKeyIsRefused) {
  run_members(2, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      try {
        start_newcomer([](Communicator&) {}, "another").get();
        ADD_FAILURE() << "it was let in";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::refused) << error.what();
      }
    }
    comm.barrier();
    EXPECT_EQ(comm.pending(), 0);
  });
}

// A newcomer that came to listen refused others: it asked for the key of the epoch that it had
// joined.
TEST_P(Growing, WhoCameInLetsOthersInWithTheKeyOfTheJob) {
  constexpr int kMembers = 2, kNewcomers = 3;
  ASSERT_EQ(setenv("ROPEWALK_COORDINATOR_FD", std::to_string(listener_).c_str(), 1), 0);
  std::future<void> last;
  const auto stay = [&](Communicator& comm) {
    try {
      for (;;) expect_sum_of_ranks(comm, 1000);
    } catch (const Error&) {
    }
    const auto fewer = comm.shrink();
    if (fewer->rank() == 0)
      last = start_newcomer([](Communicator& late) { expect_grown(late, 3, kNewcomers, 1); });
    expect_grown(*grow_by(*fewer, 1), 3, kNewcomers, 1);
  };
  std::vector<std::future<void>> newcomers;
  for (int i = 0; i < kNewcomers; ++i)
    newcomers.push_back(start_newcomer([&](Communicator& comm) {
      expect_grown(comm, 1, kMembers, kNewcomers);
      stay(comm);
    }));
  const auto body = [&](Communicator& comm) {
    const auto next = grow_by(comm, kNewcomers);
    expect_grown(*next, 1, kMembers, kNewcomers);
    throw std::runtime_error("goes");
  };
  EXPECT_THROW(run_members(kMembers, body), std::runtime_error);
  for (auto& newcomer : newcomers) newcomer.get();
  last.get();
  unsetenv("ROPEWALK_COORDINATOR_FD");
}

// It dialed the first of several addresses for ever: a handshake there took as long as a turn.
TEST_P(Growing, ANewcomerPassesByAnAddressWhereNobodyAnswers) {
  std::string silent;
  const int listener = listen_on_loopback(silent);
  auto newcomer = start_newcomer([](Communicator& late) { expect_grown(late, 1, 2, 1); }, "growing",
                                 silent + "," + address_);
  run_members(2, [&](Communicator& comm) { expect_grown(*grow_by(comm, 1), 1, 2, 1); });
  newcomer.get();
  ::close(listener);
}

TEST(JoinRunning, WithoutAJobItIsAnErrorInTime) {
  std::string address;
  ::close(listen_on_loopback(address));
  Options options;
  options.coordinator = address;
  options.join_running = true;
  options.join_timeout = 100ms;
  try {
    Communicator::create(options);
    ADD_FAILURE() << "it has joined";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Growing, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing
