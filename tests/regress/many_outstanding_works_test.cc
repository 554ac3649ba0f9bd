// The time of a start grew with the number of works under way: 16,000 of them took nine times as
// long as 4,000.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "tests/faults/forked_job.h"
#include "tests/local_world.h"

namespace ropewalk::testing {
namespace {

constexpr size_t kFew = 1000, kMany = 16'000;

/// Seconds for each of `works` works on plain memory that are under way at once.
double seconds_each(Communicator& comm, size_t works) {
  std::vector<std::array<float, 4>> data(works);
  std::deque<Work> started;
  comm.barrier();
  const double begin_s = now_s();
  for (auto& piece : data) started.push_back(comm.start(Call::all_reduce(piece)));
  while (!started.empty()) {
    started.front().wait();
    started.pop_front();
  }
  return (now_s() - begin_s) / static_cast<double>(works);
}

TEST(ManyOutstandingWorks, TakeTheirNumberOfTimesAsLong) {
  run_ranks(2, "shm", [](Communicator& comm) {
    // The least of three: noise only adds.
    double few = 1e9, many = 1e9;
    for (int round = 0; round < 3; ++round) {
      few = std::min(few, seconds_each(comm, kFew));
      many = std::min(many, seconds_each(comm, kMany));
    }
    if (comm.rank() == 0)
      printf("%zu works: %.1f us each; %zu: %.1f us each\n", kFew, few * 1e6, kMany, many * 1e6);
    EXPECT_LT(many, 4 * few) << kMany << " works at once against " << kFew;
  });
}

/// The same calls again and again, more at once than the cache keeps idle.
TEST(ManyOutstandingWorks, AreNotPreparedAnewEachTime) {
  run_ranks(2, "shm", [](Communicator& comm) {
    std::vector<std::vector<float>> tensors(64, std::vector<float>(4096));
    double first = 0, later = 1e9;
    for (int pass = 0; pass < 6; ++pass) {
      comm.barrier();
      const double begin_s = now_s();
      std::vector<Work> works;
      for (auto& tensor : tensors) works.push_back(comm.start(Call::all_reduce(tensor)));
      for (Work& work : works) work.wait();
      (pass == 0 ? first : later) = std::min(pass == 0 ? 1e9 : later, now_s() - begin_s);
    }
    EXPECT_LT(later, first / 2) << "the first pass prepares them";
  });
}

}  // namespace
}  // namespace ropewalk::testing
