// The time of a start grew with the number of works under way: 16,000 of them took nine times as
// long as 4,000.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "tests/faults/forked_job.h"
#include "tests/local_world.h"

namespace ropewalk::testing {
namespace {

constexpr size_t kFewWorks = 1000, kManyWorks = 16'000;

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
      few = std::min(few, seconds_each(comm, kFewWorks));
      many = std::min(many, seconds_each(comm, kManyWorks));
    }
    if (comm.rank() == 0)
      printf("%zu works: %.1f us each; %zu: %.1f us each\n", kFewWorks, few * 1e6, kManyWorks,
             many * 1e6);
    EXPECT_LT(many, 4 * few) << kManyWorks << " works at once against " << kFewWorks;
  });
}

/// The same calls again and again, more at once than the cache keeps idle.
TEST(ManyOutstandingWorks, AreNotPreparedAnewEachTime) {
  Options options;
  options.size = 2;
  options.transport = "shm";
  ForkedJob job(2, options, [](Communicator& comm) {
    std::vector<std::vector<float>> tensors(64, std::vector<float>(4096));
    double first_s = 0, later_s = 1e9;
    for (int pass = 0; pass < 20; ++pass) {
      const double begin_s = now_s();
      std::vector<Work> works;
      for (auto& tensor : tensors) works.push_back(comm.start(Call::all_reduce(tensor)));
      for (Work& work : works) work.wait();
      const double took_s = now_s() - begin_s;
      if (pass == 0)
        first_s = took_s;  // prepares them
      else
        later_s = std::min(later_s, took_s);
    }
    comm.barrier();
    if (later_s > first_s / 2)
      throw Error(ErrorCode::protocol, "test",
                  "first " + std::to_string(first_s) + " s, later " + std::to_string(later_s));
  });
  job.mark();
  for (const Verdict& verdict : job.verdicts(-1, 60)) {
    EXPECT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.code, 0) << verdict.text;
  }
}

}  // namespace
}  // namespace ropewalk::testing
