// What newcomers get of the policies' state, and what they are told where nobody has any more. With
// threads as ranks: also under sanitizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <future>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "ropewalk/policies.h"
#include "tests/faults/growing.h"
#include "tests/support/tensors.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

/// A rank's policy with its parameters, which are all the same number.
template <class Policy>
class Trainer {
 public:
  Trainer(Communicator& comm, float value) : values_(100, value), policy_(make(comm)) {}

  Policy& policy() { return *policy_; }
  TensorList<float> parameters() const { return list_; }
  void set(float value) { std::ranges::fill(values_, value); }
  void expect(float value) const { EXPECT_EQ(values_, std::vector<float>(values_.size(), value)); }
  ErrorCode resume(Communicator& next) {
    return code_of([&] { policy_->resume(next, list_); });
  }
  /// Which changes nothing where all have the same, the center too.
  void step() {
    if constexpr (requires { policy_->average_parameters(list_); }) {
      policy_->average_parameters(list_);
    } else {
      std::vector<float> gradients(values_.size());
      const std::array all = {std::span(gradients)};
      policy_->sum_gradients(all);
    }
  }

 private:
  static std::unique_ptr<Policy> make(Communicator& comm) {
    if constexpr (std::is_constructible_v<Policy, Communicator&, int, double>)
      return std::make_unique<Policy>(comm, 1, 0.5);
    else
      return std::make_unique<Policy>(comm);
  }

  std::vector<float> values_;
  const std::array<std::span<float>, 1> list_ = {std::span(values_)};
  std::unique_ptr<Policy> policy_;
};

void reduce_until_failure(Communicator& comm) {
  for (;;) comm.barrier();
}

/// On all ranks of the next epoch.
template <class Policy>
void go_on_with_seven(Communicator& comm, Trainer<Policy>& trainer) {
  EXPECT_EQ(trainer.resume(comm), ErrorCode::ok);
  trainer.expect(7);
  for (int i = 0; i < 5; ++i) trainer.step();
  trainer.policy().synchronize_parameters(trainer.parameters());
  trainer.expect(7);
}

template <class Policy>
void give_parameters(Growing& job) {
  auto newcomer = job.start_newcomer([](Communicator& comm) {
    Trainer<Policy> trainer(comm, 100);
    go_on_with_seven(comm, trainer);
  });
  job.run_members(2, [](Communicator& comm) {
    std::unique_ptr<Communicator> next;
    Trainer<Policy> trainer(comm, 7);
    trainer.policy().synchronize_parameters(trainer.parameters());
    trainer.step();
    next = grow_by(comm, 1);
    go_on_with_seven(*next, trainer);
  });
  newcomer.get();
}

TEST_P(Growing, AllReduceSgdGivesItsParametersToNewcomers) {
  give_parameters<AllReduceSgd<float>>(*this);
}
// A newcomer kept its own, and pulled the center to them.
TEST_P(Growing, AllReduceEaGivesItsCenterToNewcomers) {
  give_parameters<AllReduceEa<float>>(*this);
}
TEST_P(Growing, AsyncEaGivesItsCenterToNewcomers) {
  give_parameters<AsyncEa<float>>(*this);
}

/// One member trains, takes in two newcomers, and dies before they have its parameters: the two
/// are a quorum.
template <class Policy>
void lose_all_who_have_state(Growing& job) {
  const auto go_on_alone = [](Communicator& comm) {
    comm.agree(0);  // all have joined
    EXPECT_THROW(reduce_until_failure(comm), Error);
    const auto next = comm.shrink();
    ASSERT_EQ(next->size(), 2);
    Trainer<Policy> trainer(*next, -1);
    EXPECT_EQ(trainer.resume(*next), ErrorCode::unavailable);
    EXPECT_EQ(trainer.resume(*next), ErrorCode::unavailable);
    trainer.expect(-1);
    if (next->rank() == 1) {
      trainer.set(7);  // of a checkpoint
      trainer.policy().declare_state();
    }
    go_on_with_seven(*next, trainer);
  };
  std::vector<std::future<void>> newcomers;
  for (int i = 0; i < 2; ++i) newcomers.push_back(job.start_newcomer(go_on_alone));
  const auto train_and_die = [](Communicator& comm) {
    Trainer<Policy> trainer(comm, 5);
    trainer.policy().synchronize_parameters(trainer.parameters());
    trainer.step();
    grow_by(comm, 2)->agree(0);
    throw std::runtime_error("it dies");
  };
  EXPECT_THROW(job.run_members(1, train_and_die), std::runtime_error);
  for (auto& newcomer : newcomers) newcomer.get();
}

// They went on with initial parameters, and nobody was told.
TEST_P(Growing, NewcomersThatAreAloneHaveNoStateOfAllReduceSgd) {
  lose_all_who_have_state<AllReduceSgd<float>>(*this);
}
TEST_P(Growing, NewcomersThatAreAloneHaveNoStateOfAllReduceEa) {
  lose_all_who_have_state<AllReduceEa<float>>(*this);
}
TEST_P(Growing, NewcomersThatAreAloneHaveNoStateOfAsyncEa) {
  lose_all_who_have_state<AsyncEa<float>>(*this);
}

}  // namespace
}  // namespace ropewalk::testing
