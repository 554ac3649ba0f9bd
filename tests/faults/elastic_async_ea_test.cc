// Members of an ElasticAsyncEa that die, leave and join while the others exchange or compute: with
// real processes, which are killed, and with threads, for sanitizers.
#include "ropewalk/elastic_async_ea.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/faults/exchange_ledger.h"
#include "tests/faults/forked_job.h"
#include "tests/faults/growing.h"
#include "tests/support/sanitized.h"
#include "tests/support/tensors.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

constexpr size_t kPerLane = 420;

/// What the ranks and the test share.
struct MemberBoard {
  ExchangeLedger ledger;
  std::array<std::atomic<int>, ExchangeLedger::kWorkers> exchanges{};
  std::atomic<int> gone{0};  // who was to go

  static std::shared_ptr<MemberBoard> make() {
    void* at = ::mmap(nullptr, sizeof(MemberBoard), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return {new (at) MemberBoard, [](MemberBoard* board) { ::munmap(board, sizeof *board); }};
  }
};

void await_that(const char* what, const std::function<bool()>& holds) {
  const double limit_s = now_s() + 60 * slowness();
  for (; !holds(); sleep_s(0.001))
    if (now_s() > limit_s) throw std::runtime_error(std::string("it takes too long: ") + what);
}

/// One member, whose exchanges the ledger counts.
class Member {
 public:
  Member(Communicator& comm, MemberBoard& board, size_t worker, size_t per_lane = kPerLane)
      : board_(board),
        me_(worker),
        values_(ExchangeLedger::kLanes * per_lane),
        ea_({&comm, [](auto*) {}}, 1, ExchangeLedger::kAlpha, parameters()) {}

  ElasticAsyncEa<double>& policy() { return ea_; }
  int size() const { return ea_.membership().size; }

  void exchange() {
    if (exchange_ == ExchangeLedger::kLanes) throw std::runtime_error("no lane is left");
    board_.ledger.begin(me_, exchange_, values_);
    const int epoch = ea_.membership().epoch;
    const double before = values_[exchange_];
    if (!ea_.average_parameters(parameters())) throw std::runtime_error("it has not exchanged");
    // By 1 or more; where the epoch has ended the center may have had it already.
    for (size_t i = exchange_; i < values_.size(); i += ExchangeLedger::kLanes)
      if (values_[i] > before - 0.5 && ea_.membership().epoch == epoch)
        throw std::runtime_error("the parameters have not moved");
    board_.ledger.end(me_, exchange_++);
    ++board_.exchanges[me_];
    sleep_s(0.0005);
  }
  void exchange(int count) {
    for (int i = 0; i < count; ++i) exchange();
  }
  /// As long as there are lanes, and 30 left.
  void exchange_until(const char* what, const std::function<bool()>& holds) {
    await_that(what, [&] {
      if (exchange_ + 30 < ExchangeLedger::kLanes) exchange();
      return holds();
    });
  }

  /// With all others. `is_dead`: whose exchanges with its own part may be missing.
  void finish(const std::function<bool(size_t worker)>& is_dead = [](size_t) { return false; }) {
    ea_.finish(parameters());
    const std::string errors =
        board_.ledger.errors_in(values_, is_dead, [](size_t) { return true; });
    if (!errors.empty()) throw std::runtime_error(errors);
    if (code_of([&] { exchange(); }) != ErrorCode::invalid_argument)
      throw std::runtime_error("it goes on after its end");
  }

 private:
  TensorList<double> parameters() {
    list_ = {std::span(values_)};
    return list_;
  }

  MemberBoard& board_;
  const size_t me_;
  std::vector<double> values_;
  std::array<std::span<double>, 1> list_ = {};
  ElasticAsyncEa<double> ea_;
  size_t exchange_ = 0;
};

// ---- Processes ----

class ElasticSurvives : public ::testing::TestWithParam<std::string> {
 protected:
  Options options(int ranks) const {
    Options options;
    options.size = ranks;
    options.transport = GetParam();
    options.timeout = std::chrono::seconds(20);
    options.elastic = true;
    return options;
  }

  /// Kills the victims at any moment, one `pause_ms` after the other at most.
  void kill(int ranks, const std::vector<int>& victims, unsigned seed, unsigned pause_ms,
            size_t per_lane = kPerLane) {
    std::mt19937 random(seed);
    const auto board = MemberBoard::make();
    const auto is_victim = [&](size_t worker) {
      return std::ranges::count(victims, static_cast<int>(worker)) > 0;
    };
    ForkedJob job(ranks, options(ranks), [&](Communicator& comm) {
      Member member(comm, *board, static_cast<size_t>(comm.rank()), per_lane);
      const int left = ranks - static_cast<int>(victims.size());
      member.exchange_until("all have died", [&] { return member.size() == left; });
      member.exchange(20);
      member.finish(is_victim);
    });
    await_that("all exchange", [&] {
      for (int rank = 0; rank < ranks; ++rank)
        if (board->exchanges[static_cast<size_t>(rank)] == 0) return false;
      return true;
    });
    for (const int victim : victims) {
      sleep_s(static_cast<double>(random() % (pause_ms * 1000)) / 1e6);
      job.signal(victim, SIGKILL);
    }
    expect_success(job.verdicts(-1, 60 * slowness()), victims);
    if (HasFailure()) ADD_FAILURE() << "seed " << seed;
  }
};

TEST_P(ElasticSurvives, OneThatWorksAndOwns) {
  for (int i = 0; i < kills_under_test(4) && !HasFailure(); ++i)
    kill(4, {i % 4}, static_cast<unsigned>(i), 30, i % 3 == 2 ? 2100 : kPerLane);
}

TEST_P(ElasticSurvives, TwoOneAfterTheOther) {
  for (int i = 0; i < kills_under_test(6) && !HasFailure(); ++i)
    kill(5, {i % 5, (i + 1 + i / 5 % 3) % 5}, static_cast<unsigned>(i), i % 2 == 0 ? 1 : 40);
}

TEST_P(ElasticSurvives, NewcomersThatDieAsTheyJoin) {
  constexpr int kRanks = 3, kNewcomers = 4;
  const auto board = MemberBoard::make();
  const auto is_dead = [](size_t worker) {
    return worker >= kRanks && worker + 1 < kRanks + kNewcomers;
  };
  ForkedJob job(kRanks, options(kRanks), [&](Communicator& comm) {
    Member member(comm, *board, static_cast<size_t>(comm.rank()));
    member.exchange_until("the last is in, the others gone",
                          [&] { return board->gone == 1 && member.size() == kRanks + 1; });
    member.exchange(10);
    member.finish(is_dead);
  });
  std::vector<int> victims;
  std::mt19937 random(1);
  for (size_t i = 0; i < kNewcomers; ++i) {
    const bool stays = i + 1 == kNewcomers;
    if (stays) board->gone = 1;
    const int newcomer = job.add_newcomer(options(kRanks), [&, i](Communicator& comm) {
      Member member(comm, *board, kRanks + i);
      member.exchange_until("it is the last", [&] {
        return board->gone == 1 && i + 1 == kNewcomers && member.size() == kRanks + 1;
      });
      member.exchange(10);
      member.finish(is_dead);
    });
    sleep_s(static_cast<double>(random() % 200'000) / 1e6);
    if (stays) continue;
    job.signal(newcomer, SIGKILL);
    victims.push_back(newcomer);
  }
  expect_success(job.verdicts(-1, 60 * slowness()), victims);
}

INSTANTIATE_TEST_SUITE_P(Transports, ElasticSurvives, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

// ---- Threads: named so that tests/faults/meson.build has them run under sanitizers ----

class ElasticEpochs : public Growing {
 protected:
  /// Where one rank is to throw.
  void run_but_one(int ranks, const std::function<void(Communicator&)>& body) {
    try {
      run_members(ranks, body);
      ADD_FAILURE() << "nobody has died";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "it dies");
    }
  }
  void leave_until_one_is_left(size_t per_lane);

  const std::shared_ptr<MemberBoard> board_ = MemberBoard::make();
};

// Rank 0 makes no call at all while the others take leave of the dead and go on.
TEST_P(ElasticEpochs, NobodyWaitsForOneThatComputesWhenAnotherDies) {
  run_but_one(4, [&](Communicator& comm) {
    Member member(comm, *board_, static_cast<size_t>(comm.rank()));
    member.exchange(2);
    if (comm.rank() == 1) throw std::runtime_error("it dies");
    if (comm.rank() == 0) {
      await_that("the others go on", [&] { return board_->gone == 2; });
    } else {
      member.exchange_until("the dead is gone", [&] { return member.size() == 3; });
      member.exchange(20);
      ++board_->gone;
    }
    EXPECT_EQ(member.size(), 3);
    member.finish([](size_t worker) { return worker == 1; });
  });
}

TEST_P(ElasticEpochs, NobodyWaitsForOneThatComputesWhenAnotherJoins) {
  const auto join = [&](Communicator& comm) {
    Member member(comm, *board_, 3);
    EXPECT_GE(member.policy().steps(), 1u);  // as many as the others had made
    member.exchange(20);
    board_->gone = 1;
    member.finish();
  };
  std::future<void> newcomer;
  run_members(3, [&](Communicator& comm) {
    Member member(comm, *board_, static_cast<size_t>(comm.rank()));
    member.exchange(1);
    if (comm.rank() == 0) {
      newcomer = start_newcomer(join);
      await_that("the newcomer has exchanged", [&] { return board_->gone == 1; });
    } else {
      member.exchange_until("the newcomer has exchanged", [&] { return board_->gone == 1; });
    }
    EXPECT_EQ(member.size(), 4);
    member.finish();
  });
  newcomer.get();
}

// The others compute; of the two that are left in the end one is not more than half.
void ElasticEpochs::leave_until_one_is_left(size_t per_lane) {
  constexpr int kRanks = 4;
  const auto board = MemberBoard::make();
  run_members(kRanks, [&](Communicator& comm) {
    const int rank = comm.rank();
    Member member(comm, *board, static_cast<size_t>(rank), per_lane);
    member.exchange(5);
    if (rank < kRanks - 1) {
      await_that("it is its turn", [&] { return board->gone == rank; });
      member.exchange(5);
      member.policy().leave();
      EXPECT_EQ(code_of([&] { member.exchange(); }), ErrorCode::invalid_argument);
      ++board->gone;
      return;
    }
    await_that("the others have left", [&] { return board->gone == kRanks - 1; });
    member.exchange(5);
    EXPECT_EQ(member.size(), 1);
    member.finish();  // with every exchange of those who have left
  });
}

TEST_P(ElasticEpochs, MembersLeaveAloneUntilOneIsLeft) {
  leave_until_one_is_left(kPerLane);
}

// Once it went before the others had restored the center that has its last exchanges.
TEST_P(ElasticEpochs, WhoLeavesIsNotTheOnlyOneThatHasRestored) {
  for (int i = 0; i < 8 && !HasFailure(); ++i) leave_until_one_is_left(4);
}

TEST_P(ElasticEpochs, AllMayLeaveAtOnce) {
  for (int ranks = 1; ranks <= 3; ++ranks)
    run_members(ranks, [&](Communicator& comm) {
      std::vector<float> values(1000, static_cast<float>(comm.rank()));
      const std::array all = {std::span(values)};
      ElasticAsyncEa<float> ea({&comm, [](auto*) {}}, 1, 0.5, all);
      EXPECT_EQ(values[0], 0) << "a founder has those of rank 0";
      EXPECT_TRUE(ea.average_parameters(all));
    });
}

TEST_P(ElasticEpochs, ExchangesThatTheirEndCutsOffAreInTheCenterOnce) {
  for (int i = 0; i < (kIsSanitized ? 4 : 10) && !HasFailure(); ++i) {
    const auto board = MemberBoard::make();
    run_members(4, [&](Communicator& comm) {
      Member member(comm, *board, static_cast<size_t>(comm.rank()), i % 2 == 0 ? 4 : kPerLane);
      member.exchange(2);
      if (comm.rank() == i % 4) comm.revoke("enough");
      member.exchange_until("the next epoch",
                            [&] { return member.policy().membership().epoch > 0; });
      member.exchange(5);
      member.finish();
    });
  }
}

// They went on with initial parameters as the center.
TEST_P(ElasticEpochs, NewcomersThatAreAloneHaveNoCenter) {
  for (const bool one_has_state : {false, true}) {
    const auto go_on_alone = [&](Communicator& comm) {
      comm.agree(0);  // all have joined
      const bool has_state = one_has_state && comm.rank() == 2;
      std::vector<float> values(1000, static_cast<float>(comm.rank()));
      const std::array all = {std::span(values)};
      std::optional<ElasticAsyncEa<float>> ea;
      const ErrorCode code = code_of([&] {
        ea.emplace(std::shared_ptr<Communicator>(&comm, [](auto*) {}), 1, 0.5, all,
                   std::chrono::seconds(30), has_state);
      });
      EXPECT_EQ(code, one_has_state ? ErrorCode::ok : ErrorCode::unavailable);
      if (!ea) return;
      EXPECT_EQ(values[0], 2);
      ea->finish(all);
      EXPECT_EQ(values[0], 2);
    };
    std::vector<std::future<void>> newcomers;
    for (int i = 0; i < 2; ++i) newcomers.push_back(start_newcomer(go_on_alone));
    run_but_one(1, [&](Communicator& comm) {
      grow_by(comm, 2)->agree(0);
      throw std::runtime_error("it dies");
    });
    for (auto& newcomer : newcomers) newcomer.get();
  }
}

TEST_P(ElasticEpochs, TooFewThatAreLeftIsAnErrorOfEveryCall) {
  run_but_one(2, [&](Communicator& comm) {
    Member member(comm, *board_, static_cast<size_t>(comm.rank()));
    if (comm.rank() == 1) {
      member.exchange(2);
      throw std::runtime_error("it dies");
    }
    EXPECT_EQ(code_of([&] { member.exchange_until("the end", [] { return false; }); }),
              ErrorCode::no_quorum);
    EXPECT_EQ(code_of([&] { member.exchange(); }), ErrorCode::no_quorum);
    EXPECT_EQ(code_of([&] { member.finish(); }), ErrorCode::no_quorum);
  });
}

TEST_P(ElasticEpochs, AbortEndsACallUnderWayAndTheOthersGoOn) {
  run_members(3, [&](Communicator& comm) {
    const int rank = comm.rank();
    Member member(comm, *board_, static_cast<size_t>(rank));
    if (rank == 2) {
      std::thread aborter([&] {
        sleep_s(0.02);
        member.policy().abort("enough");
      });
      EXPECT_EQ(code_of([&] { member.finish(); }), ErrorCode::aborted);
      aborter.join();
      return;
    }
    member.exchange_until("it is gone", [&] { return member.size() == 2; });
    member.finish();
  });
}

TEST_P(ElasticEpochs, AListOfAnotherLengthEndsNothing) {
  run_members(2, [&](Communicator& comm) {
    Member member(comm, *board_, static_cast<size_t>(comm.rank()));
    std::vector<double> other(17);
    const std::array list = {std::span(other)};
    EXPECT_EQ(code_of([&] { member.policy().average_parameters(list); }),
              ErrorCode::invalid_argument);
    member.exchange(3);
    member.finish();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, ElasticEpochs, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing
