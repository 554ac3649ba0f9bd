// Communicators that their members make alone, by an exchange of texts.
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "tests/local_world.h"
#include "tests/support/descriptors.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

/// Where the ranks of this process exchange texts: a store.
class Store {
 public:
  /// For rank `rank` of `ranks`, of the group of that name.
  Communicator::Exchange exchange(const std::string& name, std::vector<int> ranks, int rank) {
    return [this, name, ranks, rank, round = 0](const std::string& own) mutable {
      const auto key = [&](int of) {
        return name + "/" + std::to_string(round) + "/" + std::to_string(of);
      };
      std::unique_lock lock(mutex_);
      texts_[key(rank)] = own;
      changed_.notify_all();
      std::vector<std::string> all;
      for (const int of : ranks) {
        changed_.wait(lock, [&] { return texts_.contains(key(of)); });
        all.push_back(texts_[key(of)]);
      }
      ++round;
      return all;
    };
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> texts_;
};

class CreateGroupOver : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, CreateGroupOver, ::testing::ValuesIn(transports_under_test()));

TEST_P(CreateGroupOver, IsACallOfItsMembersAlone) {
  Store store;
  run_ranks(5, GetParam(), [&](Communicator& comm) {
    const std::vector<int> ranks = {4, 1, 2};
    if (const auto place = std::ranges::find(ranks, comm.rank()); place != ranks.end()) {
      const auto group = comm.create_group(ranks, store.exchange("g", ranks, comm.rank()));
      EXPECT_EQ(group->size(), 3);
      EXPECT_EQ(group->rank(), place - ranks.begin());
      for (const size_t count : {1, 5'000, 300'000}) expect_sum_of_ranks(*group, count);
    }
    expect_sum_of_ranks(comm, 100);
  });
}

// Ranks have made different numbers of parts before, and groups meet at the same time.
TEST_P(CreateGroupOver, ThoseThatOverlapAgreeOnNumbers) {
  Store store;
  run_ranks(4, GetParam(), [&](Communicator& comm) {
    const auto make = [&](const std::string& name, const std::vector<int>& ranks) {
      return comm.create_group(ranks, store.exchange(name, ranks, comm.rank()));
    };
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int i = 0; i < 3 * comm.rank(); ++i)
      groups.push_back(
          make("own" + std::to_string(comm.rank()) + std::to_string(i), {comm.rank()}));
    for (int i = 0; i < 20; ++i) {
      const int other = comm.rank() ^ (1 + i % 3);
      const int low = std::min(comm.rank(), other), high = std::max(comm.rank(), other);
      groups.push_back(make(std::to_string(i) + ":" + std::to_string(low), {low, high}));
      groups.push_back(make(std::to_string(i), {3, 2, 1, 0}));
      if (i % 5 == 0) groups.push_back(comm.split(0));
    }
    for (const auto& group : groups) expect_sum_of_ranks(*group, 12);
  });
}

TEST_P(CreateGroupOver, AHundredCostFewDescriptors) {
  Store store;
  std::atomic<int> before{0};
  run_ranks(4, GetParam(), [&](Communicator& comm) {
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int i = 0; i < 100; ++i) {
      comm.barrier();
      if (i == 2 && comm.rank() == 0) before = open_descriptors();
      comm.barrier();
      const std::vector<int> ranks = {0, 1, 2, 3};
      groups.push_back(
          comm.create_group(ranks, store.exchange(std::to_string(i), ranks, comm.rank())));
      expect_sum_of_ranks(*groups.back(), 8);
      expect_sum_of_ranks(*groups.back(), 10'000);  // what stages costs none, either
    }
    comm.barrier();
    if (comm.rank() == 0) {
      EXPECT_LE(open_descriptors() - before, 4 * 15);  // of four ranks
    }
    comm.barrier();
  });
}

// Its own deadline, not the whole's.
TEST_P(CreateGroupOver, HasATimeoutOfItsOwn) {
  using namespace std::chrono_literals;
  Store store;
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    const std::vector<int> ranks = {0, 1};
    const auto group = comm.create_group(ranks, store.exchange("g", ranks, comm.rank()), 1s);
    expect_sum_of_ranks(*group, 10);
    if (comm.rank() == 0) {
      try {
        expect_sum_of_ranks(*group, 10);
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
      }
    }
    expect_sum_of_ranks(comm, 10);
  });
}

TEST_P(CreateGroupOver, RefusesWhatIsNoGroupAndNoExchange) {
  run_ranks(3, GetParam(), [&](Communicator& comm) {
    const auto never = [](const std::string&) -> std::vector<std::string> {
      ADD_FAILURE();
      return {};
    };
    const int own = comm.rank(), other = (own + 1) % 3;
    for (const std::vector<int>& ranks :
         {std::vector<int>{}, {other}, {own, own}, {own, 3}, {own, -1}}) {
      try {
        comm.create_group(ranks, never);
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      }
    }
    for (const std::vector<std::string>& texts :
         {std::vector<std::string>{}, {"1"}, {"1", "two"}, {"1:0", "2", "3"}}) {
      try {
        comm.create_group({own, other}, [&](const std::string&) { return texts; });
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::protocol) << error.what();
      }
    }
    expect_sum_of_ranks(comm, 10);
  });
}

TEST_P(CreateGroupOver, OtherRanksElsewhereAreAMismatch) {
  Store store;
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    const std::vector<int> ranks = comm.rank() == 0 ? std::vector{0, 1} : std::vector{1, 0};
    try {
      comm.create_group(ranks, store.exchange("g", {0, 1}, comm.rank()));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    }
    expect_sum_of_ranks(comm, 10);
  });
}

// The last exchange: the other has heard that all is well, and hears of it in the group.
TEST_P(CreateGroupOver, AnExchangeThatFailsAtTheEndFailsTheGroupAlone) {
  Store store;
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    const std::vector<int> ranks = {0, 1};
    auto exchange = store.exchange("g", ranks, comm.rank());
    int calls = 0;
    const auto breaks = [&](const std::string& text) {
      const std::vector<std::string> texts = exchange(text);
      if (++calls == 2 && comm.rank() == 1) throw std::runtime_error("the store has gone");
      return texts;
    };
    if (comm.rank() == 1) {
      EXPECT_THROW(comm.create_group(ranks, breaks), std::runtime_error);
    } else {
      try {
        const auto group = comm.create_group(ranks, breaks);
        expect_sum_of_ranks(*group, 10);
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
        EXPECT_EQ(error.peer(), 1) << error.what();
      }
    }
    expect_sum_of_ranks(comm, 10);
  });
}

TEST_P(CreateGroupOver, AfterLeavingThereIsNothingToShare) {
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    comm.leave();
    EXPECT_THROW(
        comm.create_group({comm.rank()}, [](const std::string& own) { return std::vector{own}; }),
        Error);
  });
}

}  // namespace
}  // namespace ropewalk::testing
