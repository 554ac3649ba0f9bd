// Ranks that die while they exchange with the center, or while it is restored: those who are left
// go on, and every exchange is in the center once. With real processes, which are killed, and with
// threads, for sanitizers.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ropewalk/policies.h"
#include "tests/faults/exchange_ledger.h"
#include "tests/faults/forked_job.h"
#include "tests/local_world.h"
#include "tests/support/tensors.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

/// What the ranks and the test share.
struct ResumeBoard {
  ExchangeLedger ledger;
  std::atomic<int> exchanging{0};  // ranks that have begun to
  std::atomic<int> resuming{0};    // calls of resume after a failure

  static std::shared_ptr<ResumeBoard> make() {
    void* at = ::mmap(nullptr, sizeof(ResumeBoard), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return {new (at) ResumeBoard, [](ResumeBoard* board) { ::munmap(board, sizeof *board); }};
  }
};

struct ResumeCase {
  int ranks = 4;
  std::vector<int> victims;  // of the first epoch's ranks
  int servers = 0;
  bool large = false;  // several pieces for each owner
  /// With threads the victim throws, in the second epoch.
  bool throws = false;
  /// Whole lanes for each owner, whoever is left.
  size_t elements() const { return ExchangeLedger::kLanes * (large ? 2100 : 420); }
  int left() const { return ranks - static_cast<int>(victims.size()); }
  bool is_victim(size_t worker) const {
    return std::ranges::find(victims, static_cast<int>(worker)) != victims.end();
  }
};

/// One rank, until so many are left as `wanted` says, and have exchanged again.
class ElasticWorker {
 public:
  ElasticWorker(Communicator& first, ResumeBoard& board, const ResumeCase& wanted)
      : board_(board),
        wanted_(wanted),
        me_(static_cast<size_t>(first.rank())),
        comm_(&first),
        serves_(first.rank() < wanted.servers),
        values_(wanted.elements()),
        ea_(first, 1, ExchangeLedger::kAlpha, {.servers = wanted.servers}) {}

  void run() {
    while (!ends_) try {
        if (resumes_) resume();
        step();
      } catch (const Error& error) {
        if (!error.is_survivable()) throw;
        if (board_.ledger.state(me_, exchange_) == ExchangeLedger::begun) {
          board_.ledger.fail(me_, exchange_);
          failed_ = exchange_++;
        }
        later_ = comm_->shrink();
        comm_ = later_.get();
        resumes_ = true;
        since_resume_ = 0;
        ++board_.resuming;
      }
  }

 private:
  void resume() {
    const std::vector<double> before = values_;
    const size_t told = serves_ ? ea_.resume(*comm_, {}) : ea_.resume(*comm_, parameters());
    if (values_ != before) throw std::runtime_error("the parameters have changed");
    if (failed_ < ExchangeLedger::kLanes) board_.ledger.tell(me_, failed_, told);
    failed_ = ExchangeLedger::kLanes;
    resumes_ = false;
  }

  void step() {
    if (serves_) {
      ea_.serve();
      ends_ = true;
      return;
    }
    if (since_resume_ == 0) ++board_.exchanging;
    const bool all_have_died = comm_->size() == wanted_.left();
    if (all_have_died && since_resume_ >= 20) return end();
    ++since_resume_;
    if (wanted_.throws && wanted_.is_victim(me_) && comm_->epoch().number == 1 &&
        since_resume_ > 10)
      throw std::runtime_error("it dies");
    if (!all_have_died && exchange_ > ExchangeLedger::kLanes - 60) return wait_for_death();
    board_.ledger.begin(me_, exchange_, values_);
    ea_.average_parameters(parameters());
    board_.ledger.end(me_, exchange_++);
    if (me_ % 2 == 1) sleep_s(0.0005);
  }

  /// The lanes that are left are for the end.
  void wait_for_death() const {
    if (const auto failure = comm_->failure()) throw Error(*failure);
    sleep_s(0.001);
  }

  void end() {
    std::vector<double> center(values_.size());
    const std::array all = {std::span(center)};
    ea_.center(all);
    const auto is_dead = [&](size_t worker) { return wanted_.is_victim(worker); };
    const auto may_miss = [&](size_t element) { return may_have_died(element); };
    const std::string errors = board_.ledger.errors_in(center, is_dead, may_miss);
    if (!errors.empty()) throw std::runtime_error(errors);
    ea_.leave();
    ends_ = true;
  }

  /// The owner of that element. After several epochs it may have been any.
  bool may_have_died(size_t element) const {
    if (comm_->epoch().number > 1) return true;
    const int owners = wanted_.servers > 0 ? wanted_.servers : wanted_.ranks;
    return wanted_.is_victim(element / (values_.size() / static_cast<size_t>(owners)));
  }

  std::array<std::span<double>, 1> parameters_ = {};
  TensorList<double> parameters() {
    parameters_ = {std::span(values_)};
    return parameters_;
  }

  ResumeBoard& board_;
  const ResumeCase wanted_;
  const size_t me_;
  std::unique_ptr<Communicator> later_;
  Communicator* comm_;
  const bool serves_;
  std::vector<double> values_;
  AsyncEa<double> ea_;
  bool resumes_ = true;  // also the first time: it makes the center
  bool ends_ = false;
  size_t exchange_ = 0;
  size_t failed_ = ExchangeLedger::kLanes;  // none
  size_t since_resume_ = 0;                 // exchanges
};

class AsyncEaSurvives : public ::testing::TestWithParam<std::string> {
 protected:
  /// Kills the victims one after the other, `between` of them, and expects all others to go on.
  template <class Between>
  void kill(const ResumeCase& wanted, unsigned seed, Between between) {
    std::mt19937 random(seed);
    const auto board = ResumeBoard::make();
    Options options;
    options.size = wanted.ranks;
    options.transport = GetParam();
    options.timeout = std::chrono::seconds(20);
    ForkedJob job(wanted.ranks, options, [&](Communicator& comm) {
      ElasticWorker worker(comm, *board, wanted);
      worker.run();
    });
    const double limit_s = now_s() + 20 * slowness();
    while (board->exchanging < wanted.ranks - wanted.servers && now_s() < limit_s) sleep_s(0.0005);
    sleep_s(static_cast<double>(random() % 30'000) / 1e6);
    for (const int victim : wanted.victims) {
      if (victim != wanted.victims[0]) between(*board, random);
      job.signal(victim, SIGKILL);
    }
    expect_success(job.verdicts(-1, 60 * slowness()), wanted.victims);
    if (HasFailure()) ADD_FAILURE() << "seed " << seed;
  }
  void kill(const ResumeCase& wanted, int seed) {
    kill(wanted, static_cast<unsigned>(seed), [](auto&, auto&) {});
  }
};

TEST_P(AsyncEaSurvives, OneThatWorksAndOwns) {
  for (int i = 0; i < kills_under_test(4) && !HasFailure(); ++i)
    kill({.victims = {i % 4}, .large = i % 3 == 2}, i);
}

TEST_P(AsyncEaSurvives, AServer) {
  for (int i = 0; i < kills_under_test(3) && !HasFailure(); ++i)
    kill({.ranks = 5, .victims = {i / 2 % 2}, .servers = 2, .large = i % 2 == 1}, i);
}

TEST_P(AsyncEaSurvives, TheOnlyServer) {
  for (int i = 0; i < kills_under_test(2) && !HasFailure(); ++i)
    kill({.victims = {0}, .servers = 1}, i);
}

TEST_P(AsyncEaSurvives, AWorkerOfServers) {
  for (int i = 0; i < kills_under_test(2) && !HasFailure(); ++i)
    kill({.victims = {3}, .servers = 2}, i);
}

TEST_P(AsyncEaSurvives, TwoAtOnce) {
  for (int i = 0; i < kills_under_test(3) && !HasFailure(); ++i)
    kill({.ranks = 5, .victims = {i % 5, (i + 1) % 5}}, i);
}

TEST_P(AsyncEaSurvives, OneMoreWhileTheCenterIsRestored) {
  for (int i = 0; i < kills_under_test(3) && !HasFailure(); ++i)
    kill({.ranks = 5, .victims = {i % 5, (i + 1 + i / 5 % 3) % 5}, .large = i % 2 == 1},
         static_cast<unsigned>(i), [](ResumeBoard& board, std::mt19937& random) {
           const double limit_s = now_s() + 20 * slowness();
           while (board.resuming == 0 && now_s() < limit_s) sleep_s(0.0002);
           sleep_s(static_cast<double>(random() % 20'000) / 1e6);
         });
}

INSTANTIATE_TEST_SUITE_P(Transports, AsyncEaSurvives, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

/// With threads: named so that tests/faults/meson.build has them run under sanitizers.
class AsyncEaEpochs : public ::testing::TestWithParam<std::string> {};

TEST_P(AsyncEaEpochs, EndInTheMiddleOfExchanges) {
  const ResumeCase wanted{.victims = {1}, .throws = true};
  const auto board = ResumeBoard::make();
  run_ranks(wanted.ranks, GetParam(), [&](Communicator& comm) {
    std::thread revoker;
    if (comm.rank() == 2)
      revoker = std::thread([&] {
        while (board->exchanging < wanted.ranks) sleep_s(0.001);
        sleep_s(0.01);
        comm.revoke("enough");
      });
    try {
      ElasticWorker worker(comm, *board, wanted);
      worker.run();
      EXPECT_NE(comm.rank(), 1);
    } catch (const std::exception& error) {
      EXPECT_EQ(comm.rank(), 1) << error.what();
    }
    if (revoker.joinable()) revoker.join();
  });
}

/// As where a rank joins a job that runs: it has just made its policy.
void check_newcomer(const std::string& transport, int servers) {
  std::atomic<bool> has_exchanged = false;
  run_ranks(3, transport, [&](Communicator& comm) {
    const bool is_new = comm.rank() == 2, serves = comm.rank() < servers;
    const AsyncEaOptions options{.servers = servers};
    std::vector<double> values(10'000, comm.rank()), center(values.size());
    const std::array all = {std::span(values)}, into = {std::span(center)};
    const auto part = comm.split(is_new ? 1 : 0);
    std::optional<AsyncEa<double>> ea;
    if (!is_new) ea.emplace(*part, 1, 0.5, options);
    try {
      if (serves) ea->serve();
      if (!is_new) ea->synchronize_center(all);
      if (comm.rank() == 1) has_exchanged = ea->average_parameters(all);
      while (!has_exchanged) sleep_s(0.001);
      if (is_new) comm.revoke("another joins");
      for (;;) comm.barrier();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::revoked) << error.what();
    }
    const auto next = comm.shrink();
    if (is_new) ea.emplace(*next, 1, 0.5, options);
    const std::vector<double> before = values;
    EXPECT_EQ(ea->resume(*next, serves ? TensorList<double>() : all), 0u);
    if (serves) return ea->serve();
    ea->center(into);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(center[i], servers == 0 ? 0.5 : 1);  // rank 1 has gone half of the way to 0
      ASSERT_EQ(values[i], is_new ? center[i] : before[i]);
    }
    EXPECT_TRUE(ea->average_parameters(all));
    ea->leave();
  });
}

TEST_P(AsyncEaEpochs, GiveTheCenterToWhoIsNew) {
  check_newcomer(GetParam(), 0);
  check_newcomer(GetParam(), 1);
}

TEST_P(AsyncEaEpochs, EndTheCenterThatIsNotReplicated) {
  std::atomic<int> have_gone_on = 0;
  const auto body = [&](Communicator& comm) {
    std::vector<float> values(10'000, 1);
    const std::array all = {std::span(values)};
    AsyncEa<float> ea(comm, 1, 0.5, {.replicated = false});
    ea.synchronize_center(all);
    try {
      comm.barrier();
      if (comm.rank() == 1) throw std::runtime_error("it dies");
      for (;;) ea.average_parameters(all);
    } catch (const Error& error) {
      EXPECT_TRUE(error.is_survivable()) << error.what();
    }
    const auto next = comm.shrink();
    EXPECT_EQ(code_of([&] { ea.resume(*next, all); }), ErrorCode::unavailable);
    EXPECT_EQ(code_of([&] { ea.average_parameters(all); }), ErrorCode::invalid_argument);
    ea.synchronize_center(all);  // a new one
    EXPECT_TRUE(ea.average_parameters(all));
    ea.leave();
    ++have_gone_on;
  };
  try {
    run_ranks(4, GetParam(), body);
    ADD_FAILURE() << "nobody has died";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "it dies");
  }
  EXPECT_EQ(have_gone_on, 3);
}

TEST_P(AsyncEaEpochs, MayLastLongerThanACenter) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::vector<float> values(10'000, 1);
    const std::array all = {std::span(values)};
    AsyncEa<float> ea(comm, 1, 0.5);
    ea.resume(comm, all);  // as a synchronization
    for (int round = 0; round < 3; ++round) {
      try {
        ea.average_parameters(all);
        if (comm.rank() == round) ea.abort("enough");
        for (;;) ea.average_parameters(all);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
        EXPECT_EQ(error.peer(), round) << error.what();
      }
      ea.resume(comm, all);
    }
    EXPECT_TRUE(ea.average_parameters(all));
    ea.leave();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, AsyncEaEpochs, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing
