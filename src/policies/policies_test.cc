// The policies against a plain simulation of all ranks in float64, and torch-distlearn's scenarios.
#include "ropewalk/policies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/local_world.h"
#include "tests/support/tensors.h"

namespace ropewalk {
namespace {

using testing::code_of;
using testing::run_ranks;
using testing::Tensors;

constexpr size_t kElements = 9;  // of Tensors, where no sizes are given

template <class T>
double epsilon() {
  return std::ldexp(1, 1 - digits_of<T>());
}

/// A small integer: exact in every type, and so are sums over eight ranks.
double gradient(int rank, int step, size_t i) {
  return static_cast<double>((rank * 7 + step * 5 + static_cast<int>(i) * 3) % 9) - 4;
}

template <class T>
class Policies : public ::testing::Test {};
TYPED_TEST_SUITE(Policies, FloatingElements<::testing::Types>);

/// One epoch of `steps` (per rank) and a synchronization; checks every sum, count and parameter.
template <class T>
void check_sgd_epoch(Communicator& comm, AllReduceSgd<T>& sgd, const std::vector<int>& steps,
                     bool normalize) {
  const auto rank = static_cast<size_t>(comm.rank());
  Tensors<T> gradients, parameters;
  for (int step = 0; step < steps[rank]; ++step) {
    gradients.fill([&](size_t i) { return gradient(comm.rank(), step, i); });
    const int contributors =
        normalize ? sgd.sum_and_normalize_gradients(gradients) : sgd.sum_gradients(gradients);
    int expected_contributors = 0;
    std::vector<double> expected(kElements);
    for (int other = 0; other < comm.size(); ++other) {
      if (steps[static_cast<size_t>(other)] <= step) continue;
      ++expected_contributors;
      for (size_t i = 0; i < kElements; ++i) expected[i] += gradient(other, step, i);
    }
    EXPECT_EQ(contributors, expected_contributors);
    for (size_t i = 0; i < kElements; ++i) {
      if (normalize) expected[i] /= expected_contributors;
      EXPECT_NEAR(gradients.values()[i], expected[i],
                  normalize ? std::abs(expected[i]) * epsilon<T>() : 0);
    }
  }
  parameters.fill([&](size_t i) { return gradient(comm.rank(), 100, i); });
  sgd.synchronize_parameters(parameters);
  const auto winner = static_cast<int>(std::ranges::max_element(steps) - steps.begin());
  for (size_t i = 0; i < kElements; ++i)
    EXPECT_EQ(parameters.values()[i], gradient(winner, 100, i)) << "rank " << rank;
}

TYPED_TEST(Policies, SgdMatchesTheReferenceForUnevenSteps) {
  const std::vector<std::vector<int>> epochs = {{3, 5, 1, 2}, {0, 0, 0, 0}, {0, 4, 0, 4},
                                                {1, 0, 0, 0}, {2, 2, 2, 2}, {0, 0, 0, 3}};
  for (const int ranks : {2, 4}) {
    run_ranks(ranks, "auto", [&](Communicator& comm) {
      AllReduceSgd<TypeParam> sgd(comm);
      bool normalize = false;
      for (std::vector<int> steps : epochs) {
        steps.resize(static_cast<size_t>(ranks));
        check_sgd_epoch(comm, sgd, steps, normalize);
        normalize = !normalize;
      }
    });
  }
}

TYPED_TEST(Policies, SgdWorksWithOneRank) {
  run_ranks(1, "auto", [](Communicator& comm) {
    AllReduceSgd<TypeParam> sgd(comm);
    check_sgd_epoch(comm, sgd, {3}, true);
    check_sgd_epoch(comm, sgd, {0}, true);
    check_sgd_epoch(comm, sgd, {2}, false);
  });
}

TYPED_TEST(Policies, SgdPutsTheSameBitsOnEveryRank) {
  run_ranks(3, "auto", [](Communicator& comm) {
    Tensors<TypeParam> parameters, gradients, expected;
    const double odd[] = {std::nan(""), -0.0, std::numeric_limits<double>::infinity(), 1.0 / 3};
    expected.fill([&](size_t i) { return odd[i % 4]; });
    parameters.fill([&](size_t i) { return comm.rank() == 2 ? odd[i % 4] : 7.0; });
    AllReduceSgd<TypeParam> sgd(comm);
    if (comm.rank() == 2) sgd.sum_gradients(gradients);
    sgd.synchronize_parameters(parameters);
    EXPECT_EQ(parameters.bytes(), expected.bytes()) << "rank " << comm.rank();
  });
}

TEST(AllReduceSgd, PassesTorchDistlearnsScenario) {
  std::mt19937 random(1);
  for (int ranks = 2; ranks <= 8; ++ranks) {
    std::vector<std::array<int, 5>> steps(static_cast<size_t>(ranks));
    for (auto& of_rank : steps)
      for (int& count : of_rank) count = 4 + static_cast<int>(random() % 10);
    std::vector<std::vector<std::byte>> results(static_cast<size_t>(ranks));
    run_ranks(ranks, "auto", [&](Communicator& comm) {
      const auto rank = static_cast<size_t>(comm.rank());
      AllReduceSgd<float> sgd(comm);
      std::vector<float> parameter(7), slope(7);
      const std::array parameters = {std::span(parameter)}, gradients = {std::span(slope)};
      for (const int count : steps[rank]) {
        for (int step = 0; step < count; ++step) {
          std::ranges::fill(slope, 1.0f / static_cast<float>(count));
          sgd.sum_and_normalize_gradients(gradients);
          for (size_t i = 0; i < 7; ++i) parameter[i] += slope[i];
        }
        sgd.synchronize_parameters(parameters);
      }
      const auto bytes = std::as_bytes(std::span(parameter));
      results[rank].assign(bytes.begin(), bytes.end());
      EXPECT_GT(parameter[0], 2.0f);
    });
    for (const auto& result : results) EXPECT_EQ(result, results[0]);
  }
}

TEST(AllReduceSgd, RefusesAListOfAnotherLength) {
  run_ranks(1, "auto", [](Communicator& comm) {
    AllReduceSgd<float> sgd(comm);
    Tensors<float> nine, regrouped({4, 5}), ten({4, 6});
    sgd.sum_gradients(nine);
    sgd.sum_gradients(regrouped);
    EXPECT_EQ(code_of([&] { sgd.sum_gradients(ten); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { sgd.synchronize_parameters(ten); }), ErrorCode::invalid_argument);
    sgd.synchronize_parameters(nine);
  });
}

TEST(AllReduceSgd, AResumeThatFailedOnSomeRanksLosesNoStep) {
  run_ranks(3, "auto", [](Communicator& comm) {
    AllReduceSgd<float> sgd(comm);
    Tensors<float> gradients, parameters;
    const int steps = comm.rank() == 0 ? 6 : 5;
    const auto fill = [&](int value) { parameters.fill([=](size_t) { return value; }); };
    for (int step = 0; step < 5; ++step) sgd.sum_gradients(gradients);
    // The others were lost in the sixth: here they add to rank 0's without counting it.
    AllReduceSgd<float> uncounted(comm);
    (comm.rank() == 0 ? sgd : uncounted).sum_gradients(gradients);
    fill(steps);
    // To rank 2 it comes too late, as if its resume had thrown.
    const auto next = comm.split(0, 0);
    AllReduceSgd<float> never(*next);
    (comm.rank() == 2 ? never : sgd).resume(*next, parameters);
    if (comm.rank() == 2) fill(steps);
    const auto last = comm.split(0, 0);
    sgd.resume(*last, parameters);
    for (const double value : parameters.values()) EXPECT_EQ(value, 6) << "rank " << comm.rank();
  });
}

// It kept its own count where the others had just synchronized, so that its later steps did not
// count.
TEST(AllReduceSgd, ANewcomerCountsStepsAsTheOthersDo) {
  run_ranks(3, "auto", [](Communicator& comm) {
    const bool is_new = comm.rank() == 2;
    const auto members = comm.split(is_new ? 1 : 0);
    AllReduceSgd<float> member(*members), newcomer(comm);
    Tensors<float> gradients, parameters;
    const auto fill = [&](int value) { parameters.fill([=](size_t) { return value; }); };
    for (int step = 0; step < 5; ++step) member.sum_gradients(gradients);
    member.synchronize_parameters(parameters);
    AllReduceSgd<float>& sgd = is_new ? newcomer : member;
    sgd.resume(comm, parameters);
    // The others were lost in the next step.
    AllReduceSgd<float> uncounted(comm);
    (is_new ? sgd : uncounted).sum_gradients(gradients);
    fill(is_new ? 6 : 5);
    const auto next = comm.split(0, 0);
    sgd.resume(*next, parameters);
    for (const double value : parameters.values()) EXPECT_EQ(value, 6) << "rank " << comm.rank();
  });
}

TEST(AllReduceSgd, LengthsThatDifferBetweenRanksAreAMismatchOnEveryRank) {
  run_ranks(3, "auto", [](Communicator& comm) {
    AllReduceSgd<float> sgd(comm);
    Tensors<float> gradients({comm.rank() == 1 ? size_t{5} : size_t{4}});
    gradients.fill([](size_t i) { return static_cast<double>(i) + 1; });
    const auto before = gradients.bytes();
    EXPECT_EQ(code_of([&] { sgd.sum_gradients(gradients); }), ErrorCode::mismatch);
    EXPECT_EQ(gradients.bytes(), before);
  });
}

/// All ranks of elastic averaging, one after the other, in float64; one element.
class EaReference {
 public:
  EaReference(std::vector<double> parameters, int tau, double alpha)
      : parameters_(std::move(parameters)),
        centers_(parameters_),
        used_(parameters_.size()),
        tau_(tau),
        alpha_(alpha) {}

  /// `noise(rank, step)` is what a local step adds.
  template <class Noise>
  void epoch(const std::vector<int>& steps, Noise noise) {
    const int longest = *std::ranges::max_element(steps);
    if (longest == 0) return;
    std::vector<int> done(steps.size());
    for (int round = 1;; ++round) {
      double sum = 0;
      for (size_t r = 0; r < steps.size(); ++r) {
        const int until = std::min(round * tau_, steps[r]);
        while (done[r] < until) {
          parameters_[r] += noise(r, done[r]++);
          if (!used_[r]) centers_[r] = parameters_[r];
          used_[r] = true;
        }
        const double delta = alpha_ * (parameters_[r] - centers_[r]);
        parameters_[r] -= delta;
        if (round > 1 || steps[r] > 0) sum += delta;
      }
      if (round > longest / tau_) break;
      for (double& center : centers_) center += sum;
    }
  }
  void synchronize_center() { std::ranges::fill(centers_, centers_[0]); }
  void synchronize_parameters() {
    std::ranges::fill(parameters_, parameters_[0]);
    centers_ = parameters_;
  }
  double parameter(size_t rank) const { return parameters_[rank]; }

 private:
  std::vector<double> parameters_, centers_;
  std::vector<bool> used_;  // by the rank: the first call makes the center
  int tau_;
  double alpha_;
};

/// What a local step adds: alike for all elements except for a factor that every type holds
/// exactly.
double noise(size_t rank, int step) {
  return static_cast<double>((rank * 5 + static_cast<size_t>(step) * 3) % 7) / 8 - 0.25;
}
double factor(size_t i) {
  return std::ldexp(1.0, static_cast<int>(i % 4) - 2);
}

template <class T>
void check_ea(Communicator& comm, int tau, double alpha) {
  const auto ranks = static_cast<size_t>(comm.size()), rank = static_cast<size_t>(comm.rank());
  std::vector<double> initial(ranks);
  for (size_t r = 0; r < ranks; ++r) initial[r] = static_cast<double>(r) / 4;
  EaReference reference(initial, tau, alpha);
  AllReduceEa<T> ea(comm, tau, alpha);
  Tensors<T> parameters;
  parameters.fill([&](size_t i) { return initial[rank] * factor(i); });
  // The second and third epoch are below one averaging; the fourth has ranks that do nothing.
  const std::vector<std::vector<int>> epochs = {{7, 12, 3, 9}, {1, 0, 0, 2}, {0, 0, 0, 0},
                                                {0, 11, 0, 4}, {6, 6, 6, 6}, {0, 0, 0, 0}};
  for (size_t epoch = 0; epoch < epochs.size(); ++epoch) {
    std::vector<int> steps = epochs[epoch];
    steps.resize(ranks);
    for (int step = 0; step < steps[rank]; ++step) {
      const auto before = parameters.values();
      parameters.fill([&](size_t i) { return before[i] + noise(rank, step) * factor(i); });
      ea.average_parameters(parameters);
    }
    reference.epoch(steps, noise);
    if (epoch % 4 == 3) {
      ea.synchronize_parameters(parameters);
      reference.synchronize_parameters();
    } else {
      ea.synchronize_center(parameters);
      reference.synchronize_center();
    }
    for (size_t i = 0; i < kElements; ++i)
      EXPECT_NEAR(parameters.values()[i], reference.parameter(rank) * factor(i),
                  40 * epsilon<T>() * factor(i))
          << "epoch " << epoch << " rank " << rank << " element " << i;
  }
}

TYPED_TEST(Policies, EaMatchesTheReferenceForUnevenSteps) {
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, "auto", [](Communicator& comm) {
      check_ea<TypeParam>(comm, 3, 0.25);
      check_ea<TypeParam>(comm, 1, 0.125);
    });
  }
}

TYPED_TEST(Policies, EaWithoutStepsOnlyBroadcasts) {
  run_ranks(3, "auto", [](Communicator& comm) {
    AllReduceEa<TypeParam> ea(comm, 2, 0.5);
    Tensors<TypeParam> parameters;
    parameters.fill([&](size_t i) { return comm.rank() + static_cast<double>(i); });
    const auto before = parameters.bytes();
    ea.synchronize_center(parameters);  // the center is rank 0's now
    EXPECT_EQ(parameters.bytes(), before);
    ea.synchronize_parameters(parameters);
    for (size_t i = 0; i < kElements; ++i)
      EXPECT_EQ(parameters.values()[i], static_cast<double>(i)) << "rank " << comm.rank();
  });
}

TYPED_TEST(Policies, EaSynchronizedParametersHaveTheSameBits) {
  std::vector<std::vector<std::byte>> results(4);
  run_ranks(4, "auto", [&](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    AllReduceEa<TypeParam> ea(comm, 2, 0.2);
    Tensors<TypeParam> parameters;
    for (int step = 0; step < 3 + 2 * comm.rank(); ++step) {
      const auto before = parameters.values();
      parameters.fill([&](size_t i) { return before[i] + noise(rank, step) / 3; });
      ea.average_parameters(parameters);
    }
    ea.synchronize_parameters(parameters);
    results[rank] = parameters.bytes();
  });
  EXPECT_NE(results[0], Tensors<TypeParam>().bytes());
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(AllReduceEa, PassesTorchDistlearnsScenario) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    std::vector<std::vector<double>> results(static_cast<size_t>(ranks));
    run_ranks(ranks, "auto", [&](Communicator& comm) {
      const auto rank = static_cast<size_t>(comm.rank());
      std::mt19937 random(static_cast<unsigned>(17 * ranks + comm.rank()));
      std::normal_distribution<double> normal;
      AllReduceEa<double> ea(comm, 3, 0.4);
      std::vector<double> parameter(7);
      for (double& value : parameter) value = normal(random);
      const std::array parameters = {std::span(parameter)};
      ea.synchronize_parameters(parameters);
      double scale = 1;
      for (int epoch = 0; epoch < 5; ++epoch) {
        const int steps = 45 + static_cast<int>(random() % 9);
        for (int step = 0; step < steps; ++step) {
          for (double& value : parameter) value += normal(random) * scale;
          ea.average_parameters(parameters);
          scale /= 2;
        }
        ea.synchronize_center(parameters);
      }
      results[rank] = parameter;
    });
    EXPECT_NE(results[0][0], 0);
    for (const auto& result : results)
      for (size_t i = 0; i < 7; ++i) EXPECT_NEAR(result[i], results[0][i], 1e-6);
  }
}

TEST(AllReduceEa, RefusesArgumentsThatMakeNoSense) {
  run_ranks(1, "auto", [](Communicator& comm) {
    const auto make = [&](int tau, double alpha) {
      return code_of([&] { AllReduceEa<float>(comm, tau, alpha); });
    };
    EXPECT_EQ(make(1, 0.5), ErrorCode::ok);
    EXPECT_EQ(make(0, 0.5), ErrorCode::invalid_argument);
    EXPECT_EQ(make(-3, 0.5), ErrorCode::invalid_argument);
    EXPECT_EQ(make(1, 0.0), ErrorCode::invalid_argument);
    EXPECT_EQ(make(1, 1.0), ErrorCode::invalid_argument);
    EXPECT_EQ(make(1, -0.1), ErrorCode::invalid_argument);
    EXPECT_EQ(make(1, std::nan("")), ErrorCode::invalid_argument);

    AllReduceEa<float> ea(comm, 1, 0.5);
    Tensors<float> nine, ten({10});
    ea.average_parameters(nine);
    EXPECT_EQ(code_of([&] { ea.average_parameters(ten); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { ea.synchronize_center(ten); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { ea.synchronize_parameters(ten); }), ErrorCode::invalid_argument);
    ea.synchronize_center(nine);
  });
}

TEST(AllReduceEa, AFailedResumeKeepsTheCenter) {
  run_ranks(1, "auto", [](Communicator& comm) {
    AllReduceEa<float> ea(comm, 1, 0.5);
    Tensors<float> parameters;
    parameters.fill([](size_t) { return 1; });
    ea.synchronize_parameters(parameters);  // the center, too
    parameters.fill([](size_t) { return 3; });
    const auto broken = comm.shrink();
    broken->revoke("a death as it resumes");
    EXPECT_EQ(code_of([&] { ea.resume(*broken, parameters); }), ErrorCode::revoked);
    const auto next = broken->shrink();
    ea.resume(*next, parameters);
    ea.average_parameters(parameters);
    for (const double value : parameters.values()) EXPECT_EQ(value, 2);
  });
}

// The center was that of the lowest rank.
TEST(AllReduceEa, ResumeTakesTheCenterThatHasMostRounds) {
  run_ranks(3, "auto", [](Communicator& comm) {
    AllReduceEa<float> ea(comm, 1, 0.5);
    Tensors<float> parameters;
    const auto fill = [&](double value) { parameters.fill([=](size_t) { return value; }); };
    ea.synchronize_parameters(parameters);  // the center: 0
    fill(1);
    // Ranks 0 and 1 were lost in the round, which has ended on rank 2: here they add nothing.
    AllReduceEa<float> uncounted(comm, 1, 0.5);
    (comm.rank() == 2 ? ea : uncounted).average_parameters(parameters);
    const auto before = parameters.bytes();
    const auto next = comm.split(0, 0);
    ea.resume(*next, parameters);
    EXPECT_EQ(parameters.bytes(), before) << "rank " << comm.rank();
    fill(0.5);
    ea.average_parameters(parameters);  // nothing, where that is the center
    for (const double value : parameters.values()) EXPECT_EQ(value, 0.5) << "rank " << comm.rank();
  });
}

// They had moved toward the center before the sum that failed.
TEST(AllReduceEa, AFailedSynchronizationLeavesTheParametersAsTheyWere) {
  using Synchronize = void (AllReduceEa<float>::*)(TensorList<float>);
  for (const Synchronize synchronize :
       {&AllReduceEa<float>::synchronize_center, &AllReduceEa<float>::synchronize_parameters})
    run_ranks(1, "auto", [&](Communicator& comm) {
      AllReduceEa<float> ea(comm, 2, 0.5);
      Tensors<float> parameters;
      ea.average_parameters(parameters);  // local: the center is 0
      parameters.fill([](size_t) { return 1; });
      const auto before = parameters.bytes();
      comm.revoke("a test");
      EXPECT_EQ(code_of([&] { (ea.*synchronize)(parameters); }), ErrorCode::revoked);
      EXPECT_EQ(parameters.bytes(), before);
      comm.shrink();
    });
}

TEST(AllReduceEa, AFailedRoundLeavesTheParametersAsTheyWere) {
  run_ranks(2, "auto", [](Communicator& comm) {
    AllReduceEa<float> ea(comm, 2, 0.5);
    std::vector<float> values(comm.rank() == 1 ? 5 : 4);
    const std::array parameters = {std::span(values)};
    ea.average_parameters(parameters);  // local: the center is 0
    std::ranges::fill(values, 1.0f);
    EXPECT_EQ(code_of([&] { ea.average_parameters(parameters); }), ErrorCode::mismatch);
    for (float value : values) EXPECT_EQ(value, 1.0f);
  });
}

}  // namespace
}  // namespace ropewalk
