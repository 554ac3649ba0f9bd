// A rank that failed right after it had joined took its mailbox with it; one that still looked for
// the mailbox reported that, not the failure.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/local_world.h"

namespace ropewalk::testing {
namespace {

constexpr int kRanks = 4;

/// What `rank` ends with when rank 3 aborts the job as soon as it is in it.
std::string ending_of(int rank, const std::string& coordinator, int listening_fd) {
  Options options;
  options.rank = rank;
  options.size = kRanks;
  options.coordinator = coordinator;
  if (rank == 0) options.coordinator_fd = listening_fd;
  options.transport = "shm";
  try {
    const auto comm = Communicator::create(options);
    if (rank == 3) comm->abort("on purpose");
    for (int i = 0; i < 1000; ++i) comm->barrier();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(FailureWhileOthersJoin, IsReportedInsteadOfTheMissingMailbox) {
  for (int round = 0; round < 40; ++round) {
    std::string coordinator;
    const int fd = listen_on_loopback(coordinator);
    std::vector<std::string> endings(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back(
          [&, rank] { endings[static_cast<size_t>(rank)] = ending_of(rank, coordinator, fd); });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& ending : endings) {
      ASSERT_NE(ending.find("rank 3"), std::string::npos) << ending;  // aborted, or died
      ASSERT_EQ(ending.find("mailbox"), std::string::npos) << ending;
    }
  }
}

}  // namespace
}  // namespace ropewalk::testing
