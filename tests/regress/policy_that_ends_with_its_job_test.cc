// A rank whose job had failed ended its AsyncEa, too, and was itself blamed for that by those who
// waited there.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "ropewalk/policies.h"
#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

class PolicyThatEndsWithItsJob : public ::testing::TestWithParam<std::string> {};

TEST_P(PolicyThatEndsWithItsJob, NamesWhoIsToBlame) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::vector<float> values(100, 1);
    const std::array all = {std::span<float>(values)};
    try {
      AsyncEa<float> ea(comm, 1, 0.5);
      ea.synchronize_parameters(all);
      if (comm.rank() == 0) ea.synchronize_parameters(all);  // the others do not
      if (comm.rank() == 1) comm.abort("it has had enough");
      comm.barrier();
      ADD_FAILURE() << "rank " << comm.rank() << " has not failed";
    } catch (const Error& error) {
      EXPECT_EQ(error.peer(), 1) << error.what();
      EXPECT_NE(std::string(error.what()).find("it has had enough"), std::string::npos)
          << error.what();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, PolicyThatEndsWithItsJob,
                         ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing
