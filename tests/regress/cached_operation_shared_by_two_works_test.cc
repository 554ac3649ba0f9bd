// An operation from the cache was given to a second start while the first start's Work, finished
// but not yet waited for, still referred to it: waiting for the first then waited for the second.
#include <gtest/gtest.h>

#include <thread>

#include "tests/local_world.h"

namespace ropewalk::testing {
namespace {

TEST(Regress, CachedOperationSharedByTwoWorks) {
  run_ranks(
      2, "shm",
      [](Communicator& comm) {
        int value = comm.rank(), go = 1;
        Call call;
        call.type = DataType::int32;
        call.count = 1;
        if (comm.rank() == 1) {
          comm.send(std::span<const int>(&value, 1), 0);
          comm.recv(std::span(&go, 1), 0);  // sent only after rank 0 has waited for the first
          comm.send(std::span<const int>(&value, 1), 0);
          return;
        }
        call.collective = Collective::recv;
        call.out = &value;
        call.root = 1;
        Work first = comm.start(call);
        while (!first.test()) std::this_thread::yield();
        Work second = comm.start(call);
        first.wait();
        comm.send(std::span<const int>(&go, 1), 1);
        second.wait();
        EXPECT_EQ(value, 1);
      },
      [](int, Options& options) { options.timeout = std::chrono::seconds(10); });
}

}  // namespace
}  // namespace ropewalk::testing
