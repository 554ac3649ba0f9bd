// What `ropewalk explain` says where there is a tuning profile: what a job on its hosts reckons
// with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/command/command_testing.h"
#include "topology/topology.h"

namespace {

using ropewalk::tools::shell::Outcome;
using ropewalk::tools::shell::run;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ExplainWithAProfile : public testing::Test {
 protected:
  ExplainWithAProfile() : folder_(testing::TempDir() + "/explain_test.XXXXXX") {
    mkdtemp(folder_.data());
  }
  ~ExplainWithAProfile() override {
    for (const char* name : {"ROPEWALK_TUNING", "XDG_CACHE_HOME"}) unsetenv(name);
    std::filesystem::remove_all(folder_);
  }

  /// Two racks of two hosts, of a rank each.
  static nlohmann::json profile() {
    nlohmann::json profile;
    for (const char* name : {"a0", "a1", "b0", "b1"})
      profile["hosts"].push_back({{"name", name}, {"ranks", 1}, {"rack", name[0] == 'a' ? 1 : 2}});
    profile["between_hosts"] = {
        {"transport", "tcp"}, {"latency_us", 20}, {"overhead_us", 5}, {"bytes_per_s", 100e6}};
    profile["between_racks"] = {{"bytes_per_s", 5e6}};
    profile["jobs"] = nlohmann::json::array();
    return profile;
  }
  void use(const nlohmann::json& profile) {
    const std::string path = folder_ + "/profile.json";
    std::ofstream(path) << profile;
    setenv("ROPEWALK_TUNING", path.c_str(), 1);
  }

  std::string folder_;
};

// No name of a host was asked about, so that every link had the rate of those between racks.
TEST_F(ExplainWithAProfile, KnowsItsRacks) {
  use(profile());
  EXPECT_THAT(
      run("explain all_reduce --bytes 8M -n 4 --hosts 4 --transport tcp").out,
      AllOf(HasSubstr("then 100 MB/s"), HasSubstr("(profile)"), HasSubstr("algorithm  racks")));
  // The first two are in one rack, whatever ranks they have.
  EXPECT_THAT(run("explain all_reduce --bytes 8M -n 4 --hosts 2 --transport tcp").out,
              AllOf(HasSubstr("then 100 MB/s"), Not(HasSubstr("algorithm  racks"))));
  // Of a fifth host nothing is known: its link may be a slow one.
  EXPECT_THAT(run("explain all_reduce --bytes 8M -n 5 --hosts 5 --transport tcp").out,
              HasSubstr("then 5 MB/s"));
}

TEST_F(ExplainWithAProfile, KnowsTheRacksOfASavedOneThatThisHostHasAPartIn) {
  nlohmann::json saved = profile();
  saved["hosts"][2]["name"] = ropewalk::host_name();
  setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  std::filesystem::create_directories(folder_ + "/ropewalk/tuning");
  std::ofstream(folder_ + "/ropewalk/tuning/saved.json") << saved;
  EXPECT_THAT(run("explain all_reduce --bytes 8M -n 4 --hosts 4 --transport tcp").out,
              AllOf(HasSubstr("then 100 MB/s"), HasSubstr("algorithm  racks")));
}

// Jobs heeded the network of a profile, explain did not.
TEST_F(ExplainWithAProfile, KnowsTheNetworkThatItDescribes) {
  nlohmann::json described = profile();
  described["network"] = nlohmann::json::parse(R"({
      "hosts": [{"name": "a0"}, {"name": "a1"}, {"name": "b0"}, {"name": "b1"}],
      "switches": [{"name": "sa"}, {"name": "sb"}],
      "links": [{"between": ["a0", "sa"], "rate_mbps": 800}, {"between": ["a1", "sa"], "rate_mbps": 800},
                {"between": ["b0", "sb"], "rate_mbps": 800}, {"between": ["b1", "sb"], "rate_mbps": 800},
                {"between": ["sa", "sb"], "rate_mbps": 40}]})");
  use(described);
  EXPECT_THAT(run("explain all_reduce --bytes 8M -n 4 --hosts 4 --transport tcp").out,
              HasSubstr("link    sa > sb"));
  described["network"]["hosts"][0]["name"] = "elsewhere";
  described["network"]["links"][0]["between"][0] = "elsewhere";
  described["network"]["hosts"].erase(3);
  described["network"]["links"].erase(3);
  use(described);
  const Outcome outcome = run("explain all_reduce --bytes 8M -n 4 --hosts 4 --transport tcp 2>&1");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("is not used: 3 hosts are described"),
                                 Not(HasSubstr("link    sa > sb"))));
}

}  // namespace
