// Messages between pairs beyond plain send and recv, and communicators made of others, over every
// transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <thread>

#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

using namespace std::chrono_literals;

class Messages : public ::testing::TestWithParam<std::string> {};

Call message(Collective collective, int peer, std::vector<int>& data, int channel = 0,
             uint32_t tag = 0) {
  Call call;
  call.collective = collective;
  call.type = DataType::int32;
  call.count = data.size();
  call.in = collective == Collective::send ? data.data() : nullptr;
  call.out = collective == Collective::recv ? data.data() : nullptr;
  call.root = peer;
  call.channel = channel;
  call.tag = tag;
  return call;
}

TEST_P(Messages, AreTakenFromWhoeverSendsFirst) {
  for (const size_t count : {size_t{5}, size_t{100'000}}) {
    run_ranks(4, GetParam(), [count](Communicator& comm) {
      constexpr int kMessages = 20;
      std::vector<int> data(count, comm.rank());
      if (comm.rank() != 0) {
        for (int i = 0; i < kMessages; ++i) comm.run(message(Collective::send, 0, data));
        return;
      }
      std::vector<int> taken(4);
      for (int i = 0; i < 3 * kMessages; ++i) {
        const std::optional<int> sender = comm.next_sender(10s);
        ASSERT_TRUE(sender);
        comm.run(message(Collective::recv, *sender, data));
        EXPECT_EQ(data, std::vector<int>(count, *sender));
        ++taken[static_cast<size_t>(*sender)];
      }
      EXPECT_EQ(taken, (std::vector{0, kMessages, kMessages, kMessages}));
      EXPECT_FALSE(comm.next_sender(1ms));
    });
  }
}

/// A rank in compute, which has started nothing, must still be found by those who would send to it.
TEST_P(Messages, WakeTheOneThatWaitsForAny) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<int> data(1, comm.rank());
    if (comm.rank() == 0) {
      EXPECT_EQ(comm.next_sender(10s), 1);
      comm.run(message(Collective::recv, 1, data));
    } else {
      std::this_thread::sleep_for(100ms);  // long enough for rank 0 to sleep
      comm.run(message(Collective::send, 0, data));
    }
  });
}

/// A thread that waits for something else polls, and so takes the news from the one that sleeps.
TEST_P(Messages, WakeTheOneThatWaitsForAnyThoughAnotherPolls) {
  constexpr int kMessages = 15;
  using Clock = std::chrono::steady_clock;
  std::array<std::atomic<Clock::time_point>, kMessages> sent{};
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    std::vector<int> data(1), other(1);
    comm.barrier();
    if (comm.rank() == 1) {
      for (auto& at : sent) {
        comm.run(message(Collective::recv, 0, other, 1));  // rank 0 begins to wait
        std::this_thread::sleep_for(5ms);                  // and still polls
        at = Clock::now();
        comm.run(message(Collective::send, 0, data, 0));
        std::this_thread::sleep_for(30ms);
        comm.run(message(Collective::send, 0, other, 1));
      }
      return;
    }
    std::vector<Clock::duration> took;
    std::thread server([&] {
      for (auto& at : sent) {
        EXPECT_EQ(comm.next_sender(10s), 1);
        took.push_back(Clock::now() - at.load());
        comm.run(message(Collective::recv, 1, data));
      }
    });
    for (int i = 0; i < kMessages; ++i) {
      std::this_thread::sleep_for(50ms);  // the server sleeps
      std::vector<int> own(1);
      comm.run(message(Collective::send, 1, own, 1));
      comm.run(message(Collective::recv, 1, own, 1));
    }
    server.join();
    std::ranges::sort(took);
    EXPECT_LT(took[kMessages / 2], 3ms * slowness());
  });
}

TEST_P(Messages, NeedNotComeWhereTheWaitIsInterrupted) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const auto begin = std::chrono::steady_clock::now();
    std::thread other([&] {
      std::this_thread::sleep_for(50ms);
      comm.interrupt_next_sender(1);
    });
    EXPECT_FALSE(comm.next_sender(10s, 1));
    other.join();
    comm.interrupt_next_sender(0);
    EXPECT_FALSE(comm.next_sender(10s, 0));  // the next one
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
    EXPECT_FALSE(comm.next_sender(1ms, 0));
    EXPECT_THROW(comm.interrupt_next_sender(kChannels), Error);
  });
}

TEST_P(Messages, OfOneChannelDoNotWaitForTheOther) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const int peer = 1 - comm.rank();
    std::vector<int> first(100'000, 1), second(100'000, 2), got(100'000);
    if (comm.rank() == 0) {
      Work held_up = comm.start(message(Collective::send, peer, first, 0));
      comm.run(message(Collective::send, peer, second, 1));
      held_up.wait();
    } else {
      EXPECT_EQ(comm.next_sender(10s, 1), 0);
      comm.run(message(Collective::recv, peer, got, 1));
      EXPECT_EQ(got, second);
      EXPECT_EQ(comm.next_sender(10s, 0), 0);
      comm.run(message(Collective::recv, peer, got, 0));
      EXPECT_EQ(got, first);
    }
  });
}

TEST_P(Messages, WithAnotherTagAreAMismatch) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<int> data(3);
    const bool sends = comm.rank() == 0;
    const Call call = message(sends ? Collective::send : Collective::recv, 1 - comm.rank(), data, 0,
                              sends ? 3 : 4);
    try {
      comm.run(call);
      // What fits into a slot is sent; the next call hears of the failure.
      comm.barrier();
      ADD_FAILURE() << "rank " << comm.rank() << " met no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
      const std::string text = error.what();
      EXPECT_NE(text.find("tag 3"), std::string::npos) << text;
      EXPECT_NE(text.find("tag 4"), std::string::npos) << text;
    }
  });
}

TEST_P(Messages, AreWaitedForInStepsWithoutFailing) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<int> data(1);
    if (comm.rank() == 0) {
      Work work = comm.start(message(Collective::recv, 1, data));
      EXPECT_FALSE(work.wait_for(1ms));
      comm.barrier();
      EXPECT_TRUE(work.wait_for(10s));
      work.wait();
    } else {
      comm.barrier();
      comm.run(message(Collective::send, 0, data));
    }
  });
}

TEST_P(Messages, TakeOnlyChannelsThatExist) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<int> data(1);
    EXPECT_THROW(comm.next_sender(1ms, kChannels), Error);
    EXPECT_THROW(comm.run(message(Collective::send, 1 - comm.rank(), data, -1)), Error);
    Call sum = message(Collective::all_reduce, 0, data);
    sum.in = sum.out = data.data();
    sum.tag = 1;
    EXPECT_THROW(comm.run(sum), Error);
  });
}

TEST_P(Messages, FlowInPartsOfACommunicatorAlongsideTheWhole) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    // Odd and even ranks apart, in the reverse order.
    const auto part = comm.split(comm.rank() % 2, -comm.rank());
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(part->size(), 2);
    EXPECT_EQ(part->rank(), 1 - comm.rank() / 2);
    int sum = comm.rank(), whole = comm.rank();
    part->all_reduce(std::span(&sum, 1));
    comm.all_reduce(std::span(&whole, 1));
    EXPECT_EQ(sum, comm.rank() % 2 == 0 ? 2 : 4);
    EXPECT_EQ(whole, 6);

    const auto none = comm.split(comm.rank() == 3 ? -1 : 7);
    EXPECT_EQ(none == nullptr, comm.rank() == 3);
    if (none) none->barrier();
    const auto alone = comm.split(comm.rank());
    EXPECT_EQ(alone->size(), 1);
    alone->barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Messages, ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing
