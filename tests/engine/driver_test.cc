// Who turns the crank.
#include "engine/driver.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "bootstrap/monitor_testing.h"
#include "tests/engine/broadcast_testing.h"
#include "transports/fake/forwarding_transport.h"
#include "transports/fake/instant_fabric.h"

namespace {

std::atomic<int> yields = 0;  // of all threads

}  // namespace

/// Stands in front of the C library's, and counts.
extern "C" int sched_yield() noexcept {
  ++yields;
  return static_cast<int>(::syscall(SYS_sched_yield));
}

namespace ropewalk {
namespace {

/// Keeps puts to itself until it has been polled often, as a transport does whose peer is slow.
class SlowTransport final : public ForwardingTransport {
 public:
  static constexpr int kPolls = 10'000;

  using ForwardingTransport::ForwardingTransport;
  Posted put(const PutRequest& request) override {
    put_ = [=, this] { below_.put(request); };
    done_ = {Completion::Kind::put_done, request.peer, 0, request.cookie};
    polls_left_ = kPolls;
    return Posted::posted;
  }
  size_t poll(std::span<Completion> into) override {
    if (!put_) return below_.poll(into);
    if (--polls_left_ > 0) return 0;
    put_();
    put_ = {};
    into[0] = done_;
    return 1;
  }
  bool arm() override { return false; }

 private:
  std::function<void()> put_;
  Completion done_;
  int polls_left_ = 0;
};

/// Counts how often somebody went to sleep on it.
class CountingTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  size_t poll(std::span<Completion> into) override {
    if (on_poll) on_poll();
    return below_.poll(into);
  }
  bool arm() override {
    ++armed;
    if (on_arm) on_arm();
    return below_.arm();
  }
  int armed = 0;
  std::function<void()> on_arm, on_poll;
};

/// Has a peer's hello only where it has been polled since, as one that reads it from a socket.
class PolledTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  std::optional<std::span<const std::byte>> hello_of(int peer) const override {
    return polled_ ? below_.hello_of(peer) : std::nullopt;
  }
  size_t poll(std::span<Completion> into) override {
    polled_ = true;
    return below_.poll(into);
  }

 private:
  bool polled_ = false;
};

/// Later each time it is asked; between two of a waiter's looks something may happen.
class SteppingClock final : public Clock {
 public:
  int64_t now_ns() const override {
    if (++asked_ == happens_at && happens) happens();
    return now_ns_ += step_ns;
  }
  int asked() const { return asked_; }
  void pass(int64_t ns) { now_ns_ += ns; }
  int64_t step_ns = 1'000'000;
  std::function<void()> happens;
  int happens_at = 0;

 private:
  mutable int asked_ = 0;
  mutable int64_t now_ns_ = 0;
};

/// Rank 0 of two waits for a message of rank 1, which sends it when it is told.
class DriverThatWaits : public ::testing::Test {
 protected:
  DriverThatWaits() {
    for (Engine* engine : {&engine0, &engine1})
      operations.push_back(prepare_broadcast(*engine, data, 1));
    for (const auto& operation : operations) groups.emplace_back().add(operation);
    driver.start(groups[0], false);
  }
  void send() {
    groups[1].start(engine1);
    engine1.progress();
  }

  std::array<float, 2> data{};
  SteppingClock clock;
  NothingFails monitor;
  InstantFabric fabric{2};
  CountingTransport transport{fabric.transport(0)};
  MemoryRegistry memories;
  LoneEngine engine0{0, 2, {&transport}, {0, 0}, memories, monitor, clock};
  LoneEngine engine1{1, 2, {&fabric.transport(1)}, {0, 0}, memories, monitor, clock};
  std::vector<std::shared_ptr<Operation>> operations;
  std::deque<Group> groups;  // one of each operation
  LoneDriver driver{engine0, clock, {.progress_thread = false, .progress_cpu = {}}};
};

TEST_F(DriverThatWaits, DoesNotSleepWhenAnotherHasEndedTheOperationMeanwhile) {
  // The second look ends the waiter's wait: it is about to sleep.
  clock.step_ns = 100'000'000;
  clock.happens_at = 2;
  clock.happens = [&] {
    send();
    driver.test(groups[0]);  // as another thread
    driver.test(groups[0]);
  };
  driver.wait(groups[0], driver.timeout_ns());
  EXPECT_EQ(operations[0]->state, Operation::State::done);
  EXPECT_EQ(transport.armed, 0);
}

// Hundreds of ranks of a CPU that looked around every 20 ms kept it from those that connected: the
// first all_reduce of 512 ranks over TCP took 12 to 18 s, and that of 1,024 failed.
TEST_F(DriverThatWaits, LooksAroundLessOftenWhereManyRanksShareACpu) {
  std::vector<int64_t> looks_ns;
  const auto shortest_pause_ns = [&](double ranks_per_cpu, size_t looks) {
    LoneDriver other{
        engine0,
        clock,
        {.progress_thread = false, .progress_cpu = {}, .ranks_per_cpu = ranks_per_cpu}};
    looks_ns.clear();
    const auto is_over = [&] { return looks_ns.size() >= looks; };
    transport.on_arm = [&] { looks_ns.push_back(MonotonicClock().now_ns()); };
    other.serve_until(is_over);
    int64_t shortest_ns = INT64_MAX;
    for (size_t i = 1; i < looks_ns.size(); ++i)
      shortest_ns = std::min(shortest_ns, looks_ns[i] - looks_ns[i - 1]);
    return shortest_ns;
  };
  const int64_t alone_ns = shortest_pause_ns(1, 6), crowded_ns = shortest_pause_ns(512, 2);
  EXPECT_GT(crowded_ns, 5 * alone_ns);
  transport.on_arm = {};
}

// It went to sleep for 20 ms, and whoever waited for it, too.
TEST(EngineTest, GoesOnInTheTurnInWhichALinkBecomesReady) {
  std::array<float, 2> data{};
  SteppingClock clock;
  NothingFails monitor;
  InstantFabric fabric{2};
  PolledTransport transport{fabric.transport(0)};
  MemoryRegistry memories;
  LoneEngine sender{0, 2, {&transport}, {0, 0}, memories, monitor, clock};
  LoneEngine receiver{1, 2, {&fabric.transport(1)}, {0, 0}, memories, monitor, clock};
  std::deque<Group> groups;
  for (LoneEngine* engine : {&receiver, &sender}) {
    groups.emplace_back().add(prepare_broadcast(*engine, data, 0));
    groups.back().start(*engine);
    EXPECT_EQ(engine->progress(), engine == &sender);
  }
}

/// 50 us pass in every yield, as where somebody computes on the same CPU.
TEST_F(DriverThatWaits, SleepsInTheBackgroundOnceAYieldTakesLong) {
  clock.step_ns = 50'000;
  clock.happens_at = 7;
  int armed_before = 0;
  clock.happens = [&] {
    armed_before = transport.armed;
    send();
  };
  EXPECT_TRUE(driver.wait_for(groups[0], 1'000'000'000));
  EXPECT_GT(armed_before, 0);
}

TEST_F(DriverThatWaits, SleepsWhileItsPeerIsStillToConnect) {
  clock.happens_at = 8;
  clock.happens = [&] { send(); };
  driver.wait(groups[0], driver.timeout_ns());
  EXPECT_GT(transport.armed, 0);
}

TEST_F(DriverThatWaits, YieldsForLongWhereACallerWaits) {
  send();
  driver.wait(groups[0], driver.timeout_ns());
  transport.armed = 0;
  driver.start(groups[0], false);  // they are connected now
  clock.happens_at = clock.asked() + 8;
  clock.happens = [&] { send(); };
  driver.wait(groups[0], driver.timeout_ns());
  EXPECT_EQ(transport.armed, 0);
}

// A run made up to 64 turns, and then 32 more, before it yielded: over TCP, where a turn takes
// system calls, 120 us in which a peer on the same CPU could not answer.
TEST_F(DriverThatWaits, YieldsAfterEachTurnThatMakesSystemCalls) {
  send();
  driver.wait(groups[0], driver.timeout_ns());
  clock.step_ns = 10;
  const auto turns_between_yields = [&](bool polls_kernel) {
    LoneDriver other{engine0,
                     clock,
                     {.progress_thread = false, .progress_cpu = {}, .polls_kernel = polls_kernel}};
    int polls = 0, polls_since = 0, most = 0, yields_seen = yields;
    transport.on_poll = [&] {
      const int yields_now = yields;
      polls_since = std::exchange(yields_seen, yields_now) == yields_now ? polls_since + 1 : 1;
      most = std::max(most, polls_since);
      if (++polls == 1000) send();
    };
    other.run(groups[0]);
    transport.on_poll = {};
    return most;
  };
  EXPECT_LE(turns_between_yields(true), 2);
  EXPECT_GT(turns_between_yields(false), 64);
}

// The limit was counted from the first look at the clock after up to 256 yields, each of which may
// last milliseconds where others compute: 1.5 s became more than 2.5 s.
TEST_F(DriverThatWaits, CountsItsLimitFromTheFirstYields) {
  constexpr int64_t kYield_ns = 60'000'000, kLimit_ns = 2'000'000'000;
  LoneDriver other{
      engine0, clock, {.progress_thread = false, .progress_cpu = {}, .polls_kernel = true}};
  int polls = 0;
  transport.on_poll = [&] {
    ++polls;
    clock.pass(kYield_ns);
  };
  EXPECT_FALSE(other.next_sender(0, kLimit_ns));
  transport.on_poll = {};
  EXPECT_LT(polls, 80);  // after 64 it sleeps for the first time, and looks at the clock
}

/// Rank 0 of two sends a short message, which ends as soon as its transport has taken it.
class DriverTest : public ::testing::Test {
 protected:
  DriverTest() {
    for (Engine* engine : {&engine0, &engine1})
      operations.push_back(prepare_broadcast(*engine, data, 0));
    for (const auto& operation : operations) groups.emplace_back().add(operation);
    groups[1].start(engine1);
    engine1.progress();  // connects
  }

  bool has_work() {
    return driver.locked([&] { return engine0.worker().has_work(); });
  }
  void expect_sent_in_the_end() {
    for (int i = 0; i < 10'000 && has_work(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(has_work());
    driver.stop();
    engine1.progress();
    EXPECT_EQ(operations[1]->state, Operation::State::done);
  }

  std::array<float, 2> data{};
  const MonotonicClock clock;
  NothingFails monitor;
  InstantFabric fabric{2};
  SlowTransport slow{fabric.transport(0)};
  MemoryRegistry memories;
  LoneEngine engine0{0, 2, {&slow}, {0, 0}, memories, monitor, clock};
  LoneEngine engine1{1, 2, {&fabric.transport(1)}, {0, 0}, memories, monitor, clock};
  std::vector<std::shared_ptr<Operation>> operations;
  std::deque<Group> groups;  // one of each operation
  LoneDriver driver{engine0, clock, {}};
};

TEST_F(DriverTest, SendsInTheBackgroundWhatIsLeftAfterARun) {
  driver.run(groups[0]);
  EXPECT_EQ(operations[0]->state, Operation::State::done);
  expect_sent_in_the_end();
}

TEST_F(DriverTest, SendsInTheBackgroundWhatIsLeftAfterAStart) {
  driver.start(groups[0], false);
  driver.wait(groups[0], driver.timeout_ns());
  EXPECT_EQ(operations[0]->state, Operation::State::done);
  expect_sent_in_the_end();
}

/// Its failure becomes known between two looks, as the control thread reports one.
class FailsAfterLooks final : public Monitor {
 public:
  /// The next so many looks still find nothing.
  void fail_after(int looks) { looks_left_ = looks; }
  const Failure* failure() const noexcept override {
    if (looks_left_ < 0) return nullptr;
    if (looks_left_ > 0 && looks_left_-- > 0) return nullptr;
    return &failure_;
  }
  void report(const Failure& failure) override { ADD_FAILURE() << failure.text(); }
  bool has_left(int) const noexcept override { return false; }
  int event_fd() const noexcept override { return -1; }

 private:
  const Failure failure_{ErrorCode::aborted, "test", "enough", {}, 0, 1, {}};
  mutable std::atomic<int> looks_left_{-1};
};

// The progress thread went to sleep where a failure came just then: nobody was told.
TEST(CallbacksOfAFailure, RunWhereverTheProgressThreadIsAsItComes) {
  for (int looks = 0; looks < 40; ++looks) {
    MonotonicClock clock;
    FailsAfterLooks monitor;
    NothingFails nothing_fails;
    InstantFabric fabric{2};
    MemoryRegistry memories;
    LoneEngine engine0{0, 2, {&fabric.transport(0)}, {0, 0}, memories, monitor, clock};
    LoneEngine engine1{1, 2, {&fabric.transport(1)}, {0, 0}, memories, nothing_fails, clock};
    LoneDriver driver{engine0, clock, {.progress_thread = true, .progress_cpu = {}}};
    std::array<float, 2> data{};
    Group group;
    group.add(prepare_broadcast(engine0, data, 1));
    std::promise<ErrorCode> told;
    driver.start(group, true);
    driver.on_done(
        group,
        [&](const Failure* failure) { told.set_value(failure ? failure->code : ErrorCode::ok); },
        driver.timeout_ns());
    monitor.fail_after(looks);
    auto code = told.get_future();
    ASSERT_EQ(code.wait_for(std::chrono::seconds(20)), std::future_status::ready) << looks;
    EXPECT_EQ(code.get(), ErrorCode::aborted);
  }
}

/// Until it ends no thread of the process can be started: none has so much memory for its stack.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 46);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoMoreThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST_F(DriverTest, StartsNothingWithoutAThreadForIt) {
  const NoMoreThreads limit;
  EXPECT_THROW(driver.start(groups[0], true), Error);
  EXPECT_FALSE(has_work());
}

TEST_F(DriverTest, TellsOfTheEndFromTheThreadThatWaitsWhereThereIsNoOther) {
  const NoMoreThreads limit;
  driver.start(groups[0], false);
  std::thread::id told;
  driver.on_done(
      groups[0],
      [&](const Failure* failure) {
        EXPECT_EQ(failure, nullptr);
        told = std::this_thread::get_id();
      },
      driver.timeout_ns());
  driver.wait(groups[0], driver.timeout_ns());
  EXPECT_EQ(told, std::this_thread::get_id());
}

TEST_F(DriverTest, LeavesWhatNoThreadCanSendToTheNextCall) {
  const NoMoreThreads limit;
  driver.run(groups[0]);
  EXPECT_EQ(operations[0]->state, Operation::State::done);
  while (has_work()) driver.locked([&] { return engine0.progress(); });
  expect_sent_in_the_end();
}

}  // namespace
}  // namespace ropewalk
