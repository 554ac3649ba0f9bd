// Parts of a job chose by the cost model, where a tuning profile knew better.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

class PartsChooseByTheProfile : public ::testing::TestWithParam<std::string> {
 protected:
  PartsChooseByTheProfile() : path_(std::string(::testing::TempDir()) + "/profile.XXXXXX") {
    close(mkstemp(path_.data()));
    const auto job = [](int ranks, const char* fastest) {
      return fmt::format(
          R"({{"ranks": {}, "transport": "{}", "calls": [{{"collective": "all_reduce", "bytes": 8,
              "us": {{"one_shot": 900, "direct": 900, "recursive_doubling": 900, "{}": 0.1}}}}]}})",
          ranks, GetParam(), fastest);
    };
    std::ofstream(path_) << fmt::format(R"({{"jobs": [{}, {}]}})", job(4, "tree"), job(2, "ring"));
    setenv("ROPEWALK_TUNING", path_.c_str(), 1);
  }
  ~PartsChooseByTheProfile() override {
    unsetenv("ROPEWALK_TUNING");
    std::filesystem::remove(path_);
  }

  static Algorithm chosen(Communicator& comm) {
    auto sum = comm.allocate<float>(2);
    return comm.plan(Call::all_reduce(sum.span())).algorithm();
  }

  std::string path_;
};

TEST_P(PartsChooseByTheProfile, AsTheWholeDoes) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    EXPECT_EQ(chosen(comm), Algorithm::tree);
    const auto part = comm.split(comm.rank() / 2);
    EXPECT_EQ(chosen(*part), Algorithm::ring);
    part->barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, PartsChooseByTheProfile,
                         ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing
