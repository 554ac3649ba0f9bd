// While one communicator lived the connections of the next one at the same coordinator came to the
// first, too, which took them for strangers: a warning each time, and a join that took longer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "tests/local_world.h"

namespace ropewalk::testing {
namespace {

constexpr int kMembers = 3;

void join_and_sum(const Options& options, int more) {
  const auto comm = Communicator::create(options);
  std::vector<float> data(10'000, 1.0f);
  comm->all_reduce(data);
  EXPECT_EQ(data[9'999], static_cast<float>(kMembers));
  if (more > 0) join_and_sum(options, more - 1);
}

void join_many_times(bool inherits) {
  std::string coordinator;
  const int listener = listen_on_loopback(coordinator);
  if (!inherits) close(listener);
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kMembers; ++rank)
    threads.emplace_back([&, rank] {
      Options options;
      options.rank = rank;
      options.size = kMembers;
      options.coordinator = coordinator;
      if (rank == 0 && inherits) options.coordinator_fd = listener;
      options.transport = "tcp";
      options.key = "a key";
      join_and_sum(options, 5);
    });
  for (std::thread& thread : threads) thread.join();
  if (inherits) close(listener);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(SecondCommunicatorOfAProcess, JoinsWithoutAWarningAtAnInheritedSocket) {
  join_many_times(true);
}

TEST(SecondCommunicatorOfAProcess, JoinsWithoutAWarningAtASocketOfItsOwn) {
  join_many_times(false);
}

}  // namespace
}  // namespace ropewalk::testing
