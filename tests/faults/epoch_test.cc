// The next epoch, with threads as ranks: what shrink and agree do, also under sanitizers.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ropewalk/policies.h"
#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

class Epochs : public ::testing::TestWithParam<std::string> {};

TEST_P(Epochs, WhoIsLeftGoesOnAgainAndAgain) {
  constexpr int kRanks = 5;
  const auto body = [](Communicator& first) {
    const int me = first.rank();
    std::unique_ptr<Communicator> later;
    Communicator* comm = &first;
    for (int victim = 0; victim < 2; ++victim) {  // the lowest of each epoch
      try {
        expect_sum_of_ranks(*comm, 1000);
        if (me == victim) throw std::runtime_error("goes");
        for (;;) expect_sum_of_ranks(*comm, 1000);
      } catch (const Error& error) {
        EXPECT_EQ(error.peer(), 0) << error.what();
      }
      auto next = comm->shrink();
      EXPECT_EQ(next->epoch().number, victim + 1);
      EXPECT_EQ(next->size(), kRanks - 1 - victim);
      EXPECT_EQ(next->rank(), me - victim - 1);
      EXPECT_EQ(next->epoch().former_ranks[static_cast<size_t>(next->rank())], comm->rank());
      ASSERT_EQ(next->epoch().departures.size(), 1u);
      EXPECT_EQ(next->epoch().departures[0].rank, 0);
      later = std::move(next);
      comm = later.get();
    }
    expect_sum_of_ranks(*comm, 100'000);
  };
  EXPECT_THROW(run_ranks(kRanks, GetParam(), body), std::runtime_error);
}

// Over shared memory nothing is joined anew.
TEST(EpochsInPlace, GoOnOverTheConnectionsThatThereAre) {
  constexpr int kRanks = 6;
  const auto body = [](Communicator& first) {
    const int me = first.rank();
    const auto old_part = first.split(me % 2);
    std::unique_ptr<Communicator> later;
    Communicator* comm = &first;
    for (const int victim : {4, 0}) {  // of epoch 0
      try {
        expect_sum_of_ranks(*comm, 100'000);
        if (me == victim) throw std::runtime_error("goes");
        for (;;) expect_sum_of_ranks(*comm, 1000);
      } catch (const Error& error) {
        EXPECT_EQ(error.peer(), victim) << error.what();
      }
      const Communicator* const before = comm;
      auto next = comm->shrink();
      EXPECT_TRUE(next->epoch().keeps_connections);
      EXPECT_FALSE(next->failure());
      EXPECT_TRUE(before->failure()) << "it has failed for ever";
      EXPECT_THROW(comm->barrier(), Error);
      EXPECT_THROW(old_part->barrier(), Error);
      later = std::move(next);
      comm = later.get();
      const auto part = comm->split(comm->rank() % 2);
      expect_sum_of_ranks(*part, 1000);
    }
    EXPECT_EQ(comm->size(), kRanks - 2);
    const Agreed agreed = comm->agree(~(uint64_t{1} << comm->rank()));
    EXPECT_EQ(agreed.ranks, (std::vector{0, 1, 2, 3}));
    EXPECT_EQ(agreed.bits, ~uint64_t{15});
    comm->leave();
  };
  EXPECT_THROW(run_ranks(kRanks, "shm", body), std::runtime_error);
}

TEST(EpochsInPlace, NumberRanksAnewInWhatTheySay) {
  const auto body = [](Communicator& first) {
    try {
      first.barrier();
      if (first.rank() == 0) throw std::runtime_error("goes");
      for (;;) first.barrier();
    } catch (const Error&) {
    }
    const auto next = first.shrink();
    ASSERT_TRUE(next->epoch().keeps_connections);
    try {
      std::vector<float> data(next->rank() == 1 ? 10 : 20);
      next->all_reduce(data);
      ADD_FAILURE() << "nobody noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    }
    const auto last = next->shrink();
    EXPECT_EQ(last->size(), 3) << "a mismatch costs no member";
    last->revoke("enough");
    EXPECT_EQ(last->failure()->code, ErrorCode::revoked);
  };
  EXPECT_THROW(run_ranks(4, "shm", body), std::runtime_error);
}

TEST_P(Epochs, RevokeEndsTheEpochOfPartsToo) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    std::unique_ptr<Communicator> part;
    try {
      part = comm.split(comm.rank() % 2);
      expect_sum_of_ranks(*part, 10);
      if (comm.rank() == 2) part->revoke("enough");
      for (;;) expect_sum_of_ranks(*part, 1000);
    } catch (const Error& error) {  // perhaps before the part was made here
      EXPECT_EQ(error.code(), ErrorCode::revoked) << error.what();
      EXPECT_TRUE(error.is_survivable());
    }
    if (part) {
      EXPECT_THROW(part->shrink(), Error);  // the job's own does
    }
    const auto next = comm.shrink();
    EXPECT_EQ(next->size(), 4);
    EXPECT_TRUE(next->epoch().departures.empty());
    EXPECT_NE(next->epoch().reason.find("enough"), std::string::npos) << next->epoch().reason;
    const auto next_part = next->split(next->rank() % 2);
    expect_sum_of_ranks(*next_part, 10);
  });
}

TEST_P(Epochs, TheFirstHasFormerRanks) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    EXPECT_EQ(comm.epoch().former_ranks, (std::vector{0, 1, 2}));
  });
}

TEST_P(Epochs, ShrinkWithoutAFailureEndsTheEpoch) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    auto memory = comm.allocate<float>(1000);
    const auto next = comm.shrink();
    EXPECT_THROW(comm.barrier(), Error);
    EXPECT_EQ(comm.failure()->code, ErrorCode::revoked);
    std::ranges::fill(memory, 1.0f);
    next->all_reduce(memory);
    EXPECT_EQ(memory[999], 3.0f);
  });
}

TEST_P(Epochs, AgreeWhileTheJobGoesOn) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    for (uint64_t call = 0; call < 3; ++call) {
      const Agreed agreed = comm.agree(~(uint64_t{1} << comm.rank()) - call);
      EXPECT_EQ(agreed.ranks, (std::vector<int>{0, 1, 2, 3}));
      uint64_t expected = ~uint64_t{0};
      for (int rank = 0; rank < 4; ++rank) expected &= ~(uint64_t{1} << rank) - call;
      EXPECT_EQ(agreed.bits, expected);
      expect_sum_of_ranks(comm, 100);
    }
  });
}

TEST_P(Epochs, ShrinkAndAgreeAreOtherCalls) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    try {
      comm.rank() == 1 ? static_cast<void>(comm.agree(1)) : static_cast<void>(comm.shrink());
      ADD_FAILURE() << "nobody noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    }
  });
}

TEST_P(Epochs, PoliciesResumeWithEqualParameters) {
  const auto body = [](Communicator& comm) {
    std::vector<float> parameters(100), gradients(100);
    const std::vector<std::span<float>> list{parameters}, gradient_list{gradients};
    AllReduceSgd<float> sgd(comm);
    AllReduceEa<float> ea(comm, 1, 0.2);
    std::unique_ptr<Communicator> next;
    try {
      for (int step = 0;; ++step) {
        if (comm.rank() == 1 && step == 5) throw std::runtime_error("goes");
        std::ranges::fill(gradients, static_cast<float>(comm.rank() + step));
        sgd.sum_and_normalize_gradients(gradient_list);
        for (size_t i = 0; i < parameters.size(); ++i) parameters[i] += gradients[i];
        ea.average_parameters(list);
      }
    } catch (const Error&) {
      next = comm.shrink();
    }
    sgd.resume(*next, list);
    ea.resume(*next, list);
    sgd.synchronize_parameters(list);
    std::vector<float> all(parameters.size() * static_cast<size_t>(next->size()));
    next->all_gather(parameters, all);
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], parameters[i % parameters.size()]);
    std::ranges::fill(gradients, 2.0f);
    EXPECT_EQ(sgd.sum_and_normalize_gradients(gradient_list), next->size());
    EXPECT_EQ(gradients[0], 2.0f);
  };
  EXPECT_THROW(run_ranks(4, GetParam(), body), std::runtime_error);
}

TEST(EpochOfOne, AQuorumOfNobodyIsRefused) {
  Options options;
  options.rank = 0;
  options.size = 1;
  options.quorum_min = 0;
  try {
    Communicator::create(options);
    ADD_FAILURE() << "it was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
  }
}

TEST(EpochOfOne, ShrinksToItself) {
  Options options;
  options.rank = 0;
  options.size = 1;
  const auto comm = Communicator::create(options);
  EXPECT_EQ(comm->agree(42).bits, 42u);
  comm->revoke("why not");
  const auto next = comm->shrink();
  EXPECT_EQ(next->size(), 1);
  EXPECT_EQ(next->epoch().number, 1);
  expect_sum_of_ranks(*next, 10);
}

INSTANTIATE_TEST_SUITE_P(Transports, Epochs, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing
