// A rank that ended with the failure of a part of the job was named by those that are not in it,
// and not the rank for which the part had failed.
#include <gtest/gtest.h>

#include <array>
#include <future>

#include "tests/local_world.h"

namespace ropewalk::testing {
namespace {

/// Rank 0 aborts its part, of ranks 0 and 2, and stays in the job; rank 2 lets the exception go.
TEST(ExceptionAfterAPartsFailure, NamesTheCulpritOfThePart) {
  std::string coordinator;
  const int fd = listen_on_loopback(coordinator);
  std::array<std::future<Failure>, 4> failures;
  for (int rank = 0; rank < 4; ++rank)
    failures[static_cast<size_t>(rank)] = std::async(std::launch::async, [&, rank] {
      Options options;
      options.rank = rank;
      options.size = 4;
      options.coordinator = coordinator;
      if (rank == 0) options.coordinator_fd = fd;
      options.transport = "tcp";
      try {
        const auto whole = Communicator::create(options);
        const auto part = whole->split(rank % 2);
        whole->barrier();
        if (rank == 0) part->abort("no data");
        if (rank == 2) part->barrier();
        whole->barrier();
      } catch (const Error& error) {
        return error.failure();
      }
      return Failure();
    });
  for (int rank = 0; rank < 4; ++rank) {
    const Failure failure = failures[static_cast<size_t>(rank)].get();
    EXPECT_EQ(failure.peers, std::vector{0}) << failure.text();
    if (rank == 2) continue;
    EXPECT_EQ(failure.reason,
              "rank 2 left because of an exception, in the part of the ranks 0, 2, where they are "
              "numbered from 0: rank 0 aborted the job: no data");
  }
}

}  // namespace
}  // namespace ropewalk::testing
