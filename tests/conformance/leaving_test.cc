// Leaving before the communicator dies: what was allocated stays, and nothing more is taken.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "tests/local_world.h"

namespace ropewalk {
namespace {

using testing::run_ranks;

constexpr std::chrono::seconds kLong(10);

class Leaving : public ::testing::TestWithParam<const char*> {};

TEST_P(Leaving, MemoryCanBeReadAfterwards) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    auto values = comm.allocate<int>(1000);
    for (int& value : values) value = comm.rank();
    comm.all_reduce(values.span());
    comm.leave();
    for (const int value : values) ASSERT_EQ(value, 3);
  });
}

TEST_P(Leaving, LaterCallsAreRefused) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Call barrier;
    barrier.collective = Collective::barrier;
    std::byte byte{};
    barrier.in = barrier.out = &byte;
    barrier.count = 1;
    barrier.type = DataType::uint8;
    barrier.op = kMax;
    Plan plan = comm.plan(barrier);
    plan.run();
    Call recv = barrier;
    recv.collective = Collective::recv;
    recv.in = nullptr;
    recv.op = {};
    recv.root = 1 - comm.rank();
    Work unfinished = comm.start(recv);
    comm.leave();
    comm.leave();
    std::array<float, 4> values{};
    for (const auto& call :
         {std::function([&] { comm.all_reduce(std::span<float>(values)); }),
          std::function([&] { comm.next_sender(std::chrono::seconds(10)); }),
          std::function([&] { comm.allocate<float>(1); }),
          std::function([&] { unfinished.test(); }), std::function([&] { plan.run(); })}) {
      try {
        call();
        ADD_FAILURE() << "a call after leave() must throw";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      }
    }
  });
}

/// Who waits for a message of any rank hears that none can come; first it gets what was sent.
TEST_P(Leaving, OfAllOthersEndsTheWaitForAnyOfThem) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::array<int, 1> data{comm.rank()};
    if (comm.rank() == 1) comm.send(std::span<const int>(data), 0);
    if (comm.rank() != 0) return comm.leave();
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    EXPECT_EQ(comm.next_sender(kLong), 1);
    comm.recv(std::span<int>(data), 1);
    const auto begin = std::chrono::steady_clock::now();
    try {
      comm.next_sender(kLong);
      ADD_FAILURE() << "nobody can send any more";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_lost);
      EXPECT_NE(std::string(error.what()).find("every other rank has left"), std::string::npos);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Leaving, ::testing::Values("shm", "tcp"));

}  // namespace
}  // namespace ropewalk
