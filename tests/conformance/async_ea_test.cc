// Asynchronous elastic averaging over every transport: nothing lost, nothing twice, nobody waits.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "reduce/element.h"
#include "ropewalk/policies.h"
#include "tests/local_world.h"
#include "tests/support/tensors.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Drawn once: drawing each element anew took most of the time.
std::vector<double> draw_whole_numbers(std::mt19937& random, unsigned limit) {
  std::vector<double> numbers(4099);
  for (double& number : numbers) number = static_cast<double>(random() % limit);
  return numbers;
}

class AsyncEaOver : public ::testing::TestWithParam<std::string> {};

/// Each rank makes some exchanges with whole numbers; the center must be what it was plus all that
/// they moved by. All is exact: a half of a difference has one more bit than the difference, and
/// there are at most 40 exchanges, of all ranks.
void check_sum(Communicator& comm, const std::vector<size_t>& sizes, unsigned seed, int servers,
               int most = 40) {
  AsyncEa<double> ea(comm, 1, 0.5, {.servers = servers});
  if (comm.rank() < servers) return ea.serve();
  std::mt19937 random(seed * 31 + static_cast<unsigned>(comm.rank()));
  const std::vector<double> numbers = draw_whole_numbers(random, 64);
  Tensors<double> parameters(sizes), center(sizes);
  parameters.repeat(numbers, random());
  ea.synchronize_parameters(parameters);
  std::vector<double> sum =
      comm.rank() == servers ? parameters.values() : std::vector(parameters.values().size(), 0.0);
  const unsigned exchanges = random() % static_cast<unsigned>(most / comm.size() + 1);
  for (unsigned i = 0; i < exchanges; ++i) {
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    parameters.repeat(numbers, random());
    const auto before = parameters.values();
    EXPECT_TRUE(ea.average_parameters(parameters));
    const auto after = parameters.values();
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += before[e] - after[e];
  }
  ea.center(center);
  const auto got = center.values();
  static std::mutex mutex;
  static std::map<unsigned, std::pair<int, std::vector<double>>> sums;
  std::lock_guard lock(mutex);
  auto& [ranks, total] = sums[seed];
  total.resize(sum.size());
  for (size_t e = 0; e < sum.size(); ++e) total[e] += sum[e];
  if (++ranks < comm.size() - servers) return;
  EXPECT_EQ(got, total) << "seed " << seed;
  sums.erase(seed);
}

TEST_P(AsyncEaOver, LosesNoUpdateAndAppliesNoneTwice) {
  unsigned seed = 0;
  for (const int ranks : rank_counts_under_test()) {
    const unsigned first = seed;
    seed += 8;
    run_ranks(ranks, GetParam(), [&](Communicator& comm) {
      check_sum(comm, {3, 0, 1, 5}, first, 0);
      check_sum(comm, {1000, 17}, first + 1, 0);
      check_sum(comm, {2}, first + 2, 0);  // fewer than ranks
      check_sum(comm, {}, first + 3, 0);
      for (int servers = 1; servers < std::min(comm.size(), 3); ++servers)
        check_sum(comm, {1000, 17}, first + 3 + static_cast<unsigned>(servers), servers);
    });
  }
}

/// A rank's own exchanges with its shard, and the others', at full speed. An update that is lost is
/// some thousandths at least; rounding is far below.
TEST_P(AsyncEaOver, LosesNoUpdateUnderContention) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const int exchanges = static_cast<int>(5000 / slowness());
    constexpr size_t kElements = 1000;
    AsyncEa<double> ea(comm, 1, 0.5);
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    const std::vector<double> numbers = draw_whole_numbers(random, 1024);
    Tensors<double> parameters({kElements}), center({kElements});
    ea.synchronize_parameters(parameters);
    std::vector<double> sum(kElements);
    for (int i = 0; i < exchanges; ++i) {
      parameters.repeat(numbers, random());
      const auto before = parameters.values();
      ea.average_parameters(parameters);
      const auto after = parameters.values();
      for (size_t e = 0; e < sum.size(); ++e) sum[e] += before[e] - after[e];
    }
    ea.center(center);
    comm.all_reduce(std::span(sum));
    for (size_t e = 0; e < sum.size(); ++e) EXPECT_NEAR(center.values()[e], sum[e], 1e-4);
  });
}

TEST_P(AsyncEaOver, ExchangesLongListsInPieces) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    check_sum(comm, {2'200'000}, 1000, 0, 8);
    check_sum(comm, {1'200'001}, 1001, 1, 8);
  });
  run_ranks(3, GetParam(), [](Communicator& comm) {
    check_sum(comm, std::vector<size_t>(200, 2'001), 1002, 0, 15);
  });
}

template <class T>
void check_convergence(Communicator& comm, double tolerance) {
  std::mt19937 random(static_cast<unsigned>(17 * comm.size() + comm.rank()));
  std::normal_distribution<double> normal;
  AsyncEa<T> ea(comm, 3, 0.4);
  Tensors<T> parameters({4, 3}), center({4, 3});
  parameters.for_each([&](T& value) { value = narrow<T>(static_cast<Wide<T>>(normal(random))); });
  ea.synchronize_parameters(parameters);
  double scale = 1;
  for (int epoch = 0; epoch < 30; ++epoch) {
    const int steps = 15 + static_cast<int>(random() % 9);
    for (int step = 0; step < steps; ++step) {
      parameters.for_each([&](T& value) {
        value = narrow<T>(widen(value) + static_cast<Wide<T>>(normal(random) * scale));
      });
      EXPECT_EQ(ea.average_parameters(parameters), step % 3 == 2);
      scale /= 2;
    }
    ea.synchronize_center(parameters);
  }
  ea.center(center);
  const auto before = parameters.values(), middle = center.values();
  EXPECT_NE(middle[0], 0);
  for (size_t i = 0; i < middle.size(); ++i) EXPECT_NEAR(before[i], middle[i], tolerance);
  ea.synchronize_parameters(parameters);
  EXPECT_EQ(parameters.values(), middle);
  std::vector<double> first = middle;
  comm.broadcast(std::span(first));
  EXPECT_EQ(first, middle);
}

TEST_P(AsyncEaOver, BringsRanksTogether) {
  for (const int ranks : {1, 2, 4, 7}) {
    if (ranks > rank_counts_under_test().back()) break;
    run_ranks(ranks, GetParam(), [](Communicator& comm) {
      check_convergence<double>(comm, 1e-6);
      check_convergence<float>(comm, 1e-5);
      check_convergence<float16>(comm, 0.02);
      check_convergence<bfloat16>(comm, 0.15);
    });
  }
}

/// Seconds for `steps` steps of one rank, each a nap and an exchange.
double seconds_for(AsyncEa<float>& ea, TensorList<float> parameters, int steps) {
  const auto begin = Clock::now();
  for (int step = 0; step < steps; ++step) {
    std::this_thread::sleep_for(2ms);
    ea.average_parameters(parameters);
  }
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Throughput of three ranks with a fourth that naps ten times as long, as a part of that without:
/// the median of several pairs of measurements, each beside the other.
double throughput_beside_a_straggler(const std::string& transport) {
  constexpr int kRanks = 4, kSteps = 40, kPairs = 9;
  std::array<std::atomic<int>, 2 * kPairs> ended{};  // ranks that have, by phase
  std::array<std::atomic<double>, 2 * kPairs> slowest_s{};
  run_ranks(kRanks, transport, [&](Communicator& comm) {
    AsyncEa<float> ea(comm, 1, 0.2);
    Tensors<float> parameters({10'000});
    ea.synchronize_parameters(parameters);
    for (size_t phase = 0; phase < ended.size(); ++phase) {
      ea.synchronize_center(parameters);
      const auto nap = phase % 2 == 0 ? 2ms : 20ms;
      while (comm.rank() == kRanks - 1 && ended[phase] < kRanks - 1) {
        std::this_thread::sleep_for(nap);
        ea.average_parameters(parameters);
      }
      if (comm.rank() == kRanks - 1) continue;
      const double took_s = seconds_for(ea, parameters, kSteps);
      double seen_s = slowest_s[phase];
      while (seen_s < took_s && !slowest_s[phase].compare_exchange_weak(seen_s, took_s)) {
      }
      ++ended[phase];
    }
  });
  std::vector<double> ratios;
  for (size_t phase = 0; phase < slowest_s.size(); phase += 2)
    ratios.push_back(slowest_s[phase] / slowest_s[phase + 1]);
  std::ranges::sort(ratios);
  return ratios[kPairs / 2];
}

TEST_P(AsyncEaOver, AStragglerSlowsNobody) {
  // Where others load the machine meanwhile once more may help; where a rank waits for the slow one
  // it is a fifth every time.
  std::string ratios;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const double ratio = throughput_beside_a_straggler(GetParam());
    ratios += std::to_string(ratio) + " ";
    RecordProperty("ratios", ratios);
    if (ratio >= 0.9) return;
  }
  ADD_FAILURE() << "the others keep only this part of their throughput: " << ratios;
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST_P(AsyncEaOver, CostsLittleWhileNobodyExchanges) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    AsyncEa<float> ea(comm, 1, 0.2);
    Tensors<float> parameters({1000});
    ea.synchronize_parameters(parameters);
    ea.average_parameters(parameters);
    std::this_thread::sleep_for(comm.rank() == 0 ? 200ms : 1500ms);
    if (comm.rank() != 0) return;
    const double before_s = cpu_seconds();
    std::this_thread::sleep_for(1s);
    const double used_s = cpu_seconds() - before_s;
    RecordProperty("cpu_seconds", std::to_string(used_s));
    EXPECT_LT(used_s, 0.1 * comm.size() * slowness());
  });
}

TEST_P(AsyncEaOver, AnExceptionOnOneRankEndsAll) {
  for (const int culprit : {0, 2}) {
    std::atomic<int> told = 0;
    const auto body = [&](Communicator& comm) {
      AsyncEa<float> ea(comm, 1, 0.5);
      Tensors<float> parameters({100'000});
      ea.synchronize_parameters(parameters);
      try {
        for (int step = 0; comm.rank() != culprit || step < 5; ++step)
          ea.average_parameters(parameters);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
        EXPECT_EQ(error.peer(), culprit) << error.what();
        ++told;
        throw;
      }
      throw std::runtime_error("the disk is full");
    };
    EXPECT_THROW(run_ranks(3, GetParam(), body), std::exception);
    EXPECT_EQ(told, 2);
  }
}

/// A server that waits for the workers, a worker that waits for the others, one that comes later,
/// and one that leaves: all end when any thread says so.
TEST_P(AsyncEaOver, AnAbortFromAnotherThreadEndsEveryCall) {
  std::atomic<int> told = 0;
  run_ranks(4, GetParam(), [&](Communicator& comm) {
    AsyncEa<float> ea(comm, 1, 0.5, {.servers = 1});
    Tensors<float> parameters({10});
    comm.barrier();
    const auto begin = Clock::now();
    std::thread watchdog;
    if (comm.rank() == 1)
      watchdog = std::thread([&] {
        std::this_thread::sleep_for(100ms);
        ea.abort("it takes too long");
      });
    if (comm.rank() == 2) std::this_thread::sleep_for(300ms);
    try {
      if (comm.rank() == 0) ea.serve();
      if (comm.rank() == 3) ea.leave();
      if (comm.rank() != 3) ea.synchronize_parameters(parameters);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
      EXPECT_EQ(error.peer(), 1) << error.what();
      EXPECT_NE(std::string(error.what()).find("it takes too long"), std::string::npos);
      ++told;
    }
    if (watchdog.joinable()) watchdog.join();
    EXPECT_LT(Clock::now() - begin, 10s);
  });
  EXPECT_EQ(told, 3);
}

TEST_P(AsyncEaOver, RefusesCallsAfterItsEnd) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    AsyncEa<float> ea(comm, 1, 0.5);
    Tensors<float> parameters({10});
    ea.synchronize_parameters(parameters);
    ea.leave();
    ea.leave();
    EXPECT_EQ(code_of([&] { ea.average_parameters(parameters); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { ea.center(parameters); }), ErrorCode::invalid_argument);
  });
}

/// When the workers have left, nobody is missed: the server may take its time.
TEST_P(AsyncEaOver, AServerMayGoOnWithOtherThings) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    AsyncEa<float> ea(comm, 1, 0.5, {.servers = 1});
    Tensors<float> parameters({10});
    if (comm.rank() == 0) {
      ea.serve();
      std::this_thread::sleep_for(1500ms);
      return;
    }
    ea.synchronize_parameters(parameters);
    const auto begin = Clock::now();
    ea.leave();
    EXPECT_GE(Clock::now() - begin, 1400ms);  // not by a failure
  });
}

TEST_P(AsyncEaOver, MayEndAtAnyTime) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    { const AsyncEa<float> unused(comm, 1, 0.5); }
    AsyncEa<double> first(comm, 1, 0.5), second(comm, 2, 0.5);
    Tensors<double> parameters({1000});
    first.synchronize_parameters(parameters);
    for (int step = 0; step < 20 * comm.rank(); ++step) first.average_parameters(parameters);
    second.synchronize_center(parameters);
  });
}

TEST_P(AsyncEaOver, WaitsForTheSlowestLongerThanForAnything) {
  const auto body = [](Communicator& comm) {
    AsyncEa<float> ea(comm, 1, 0.5);
    Tensors<float> parameters({10});
    ea.synchronize_parameters(parameters);
    for (int step = 0; step < 10; ++step) ea.average_parameters(parameters);
    if (comm.rank() == 1) std::this_thread::sleep_for(3s);
    ea.average_parameters(parameters);
    ea.synchronize_parameters(parameters);
  };
  run_ranks(3, GetParam(), body, [](int, Options& options) { options.timeout = 2s; });
}

TEST_P(AsyncEaOver, OutlivesTheCommunicatorItWasMadeOf) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    auto part = comm.split(0);
    AsyncEa<float> ea(*part, 1, 0.5);
    part.reset();
    Tensors<float> parameters({10});
    ea.synchronize_parameters(parameters);
    ea.average_parameters(parameters);
  });
}

struct Descriptors {
  int buffers = 0;  // of registered memory: a file each
  int others = 0;
};

/// Of all ranks, which are threads, on rank 0.
Descriptors count_descriptors(Communicator& comm) {
  Descriptors open;
  comm.barrier();
  if (comm.rank() == 0)
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      ++(read_symlink(entry).string().starts_with("/memfd:ropewalk-buffer") ? open.buffers
                                                                            : open.others);
  comm.barrier();
  return open;
}

/// Those whose descriptors and memory are the library's own.
std::vector<std::string> own_transports_under_test() {
  std::vector<std::string> transports = transports_under_test();
  std::erase_if(transports, [](const std::string& one) { return one != "shm" && one != "tcp"; });
  return transports;
}

class AsyncEaDescriptors : public ::testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AsyncEaDescriptors);
INSTANTIATE_TEST_SUITE_P(Transports, AsyncEaDescriptors,
                         ::testing::ValuesIn(own_transports_under_test()));

TEST_P(AsyncEaDescriptors, AreThoseOfMemoryAlone) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::vector<std::unique_ptr<AsyncEa<float>>> made;
    const auto make = [&](bool works) {
      AsyncEa<float>& ea = *made.emplace_back(std::make_unique<AsyncEa<float>>(comm, 1, 0.5));
      if (!works) return;
      Tensors<float> parameters({10, 3000});
      ea.synchronize_parameters(parameters);
      for (int step = 0; step < 3; ++step) ea.average_parameters(parameters);
      ea.center(parameters);
    };
    make(true);  // all connections stand
    const Descriptors before = count_descriptors(comm);
    for (int i = 0; i < 20; ++i) make(false);
    const Descriptors made_only = count_descriptors(comm);
    for (int i = 0; i < 5; ++i) make(true);
    const Descriptors after = count_descriptors(comm);
    if (comm.rank() != 0) return;
    EXPECT_EQ(made_only.others, before.others);
    EXPECT_EQ(made_only.buffers, before.buffers);
    EXPECT_EQ(after.others, before.others);
    EXPECT_GT(after.buffers, before.buffers);
  });
}

TEST_P(AsyncEaOver, RefusesWhatMakesNoSense) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const auto make = [&](int tau, double alpha, int servers = 0) {
      return code_of([&] { AsyncEa<float>(comm, tau, alpha, {.servers = servers}); });
    };
    EXPECT_EQ(make(0, 0.5), ErrorCode::invalid_argument);
    EXPECT_EQ(make(1, 0.0), ErrorCode::invalid_argument);
    EXPECT_EQ(make(1, 1.0), ErrorCode::invalid_argument);
    EXPECT_EQ(make(1, std::nan("")), ErrorCode::invalid_argument);
    EXPECT_EQ(make(1, 0.5, -1), ErrorCode::invalid_argument);
    EXPECT_EQ(make(1, 0.5, 2), ErrorCode::invalid_argument);

    AsyncEa<float> ea(comm, 1, 0.5);
    Tensors<float> nine({4, 5}), ten({10});
    EXPECT_EQ(code_of([&] { ea.average_parameters(nine); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { ea.center(nine); }), ErrorCode::invalid_argument);
    ea.synchronize_center(nine);
    EXPECT_EQ(code_of([&] { ea.average_parameters(ten); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { ea.synchronize_center(ten); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { ea.synchronize_parameters(ten); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { ea.center(ten); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { ea.serve(); }), ErrorCode::invalid_argument);
    EXPECT_TRUE(ea.average_parameters(nine));
  });
}

TEST_P(AsyncEaOver, SaysWhereRanksDoNotAgree) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const bool odd = comm.rank() == 1;
    Tensors<float> parameters({odd ? size_t{5} : size_t{4}}), equal({4});
    AsyncEa<float> ea(comm, 1, 0.5);
    const auto mismatch = [&](auto body) { EXPECT_EQ(code_of(body), ErrorCode::mismatch); };
    mismatch([&] { ea.synchronize_parameters(parameters); });
    mismatch([&] { odd ? ea.synchronize_center(equal) : ea.synchronize_parameters(equal); });
    ea.synchronize_center(equal);  // none of that has broken it
    EXPECT_TRUE(ea.average_parameters(equal));

    AsyncEa<float> other(comm, 1, odd ? 0.25 : 0.5);
    mismatch([&] { other.synchronize_center(equal); });
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, AsyncEaOver, ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing
