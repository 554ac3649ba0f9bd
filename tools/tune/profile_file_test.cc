#include "tools/tune/profile_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "ropewalk/status.h"

namespace ropewalk::tools {
namespace {

TuningProfile profile(const std::vector<int>& jobs, double seconds) {
  TuningProfile profile{.hosts = {{"alpha", 2}, {"beta", 2}}, .between_hosts = {}, .jobs = {}};
  for (const int ranks : jobs)
    profile.jobs.push_back({ranks, "tcp", {{Collective::all_reduce, Algorithm::ring, 8, seconds}}});
  return profile;
}

class ProfileFiles : public ::testing::Test {
 protected:
  ProfileFiles() : folder_(std::string(::testing::TempDir()) + "/profile_file_test.XXXXXX") {
    mkdtemp(folder_.data());
  }
  ~ProfileFiles() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/in/profile.json"; }
  std::string text() const { return read_tuning(path()); }

  std::string folder_;
};

TEST_F(ProfileFiles, HoldWhatWasSavedLast) {
  const ProfileFile file(path());
  EXPECT_FALSE(std::filesystem::exists(path()));
  file.save(profile({2, 4}, 1e-6));
  file.save(profile({4}, 2e-6));
  EXPECT_EQ(text(), text_of(profile({4}, 2e-6)));
  const std::filesystem::directory_iterator entries(folder_ + "/in");
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

// Who ended `ropewalk tune` before its end had nothing, and would have had less than before.
TEST_F(ProfileFiles, KeepWhatHasNotBeenMeasuredAnew) {
  const ProfileFile file(path());
  file.save_part(profile({2}, 1e-6));
  EXPECT_EQ(text(), text_of(profile({2}, 1e-6)));
  file.save(profile({2, 4}, 1e-6));
  file.save_part(profile({2}, 3e-6));
  TuningProfile both = profile({2}, 3e-6);
  both.jobs.push_back(profile({4}, 1e-6).jobs[0]);
  EXPECT_EQ(text(), text_of(both));
  TuningProfile other = profile({2}, 5e-6);
  other.hosts[1].ranks = 1;
  file.save_part(other);
  EXPECT_EQ(text(), text_of(other));
}

TEST_F(ProfileFiles, ThatCannotBeWrittenAreToldAtOnce) {
  EXPECT_THROW(ProfileFile("/proc/no/such/profile.json"), Error);
  EXPECT_THROW(ProfileFile(""), Error);
}

}  // namespace
}  // namespace ropewalk::tools
