#include "job/tuning.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

TuningProfile profile() {
  using enum Collective;
  using enum Algorithm;
  return {.hosts = {{"alpha", 2}, {"beta", 2}},
          .between_hosts = TuningProfile::Link{"tcp", {10e-6, 5e-6, 4e-8}},
          .jobs = {{2, "shm", {{all_reduce, ring, 8, 1e-6}, {all_reduce, direct, 8, 2e-6}}},
                   {4, "shm+tcp", {{all_reduce, ring, 8, 3e-6}, {broadcast, tree, 4096, 4e-6}}}}};
}

TunedJob whole_job() {
  return {{"alpha", "alpha", "beta", "beta"}, {0, 0, 1, 1}, "shm+tcp"};
}

Costs tuned(const TuningProfile& profile, const TunedJob& job) {
  Costs costs;
  apply_tuning(profile, job, costs);
  return costs;
}

std::string refusal_of(const std::string& text) {
  try {
    parse_tuning(text);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.failure().reason;
  }
}

TEST(Tuning, WhatIsWrittenIsReadAgain) {
  const TuningProfile read = parse_tuning(text_of(profile()));
  EXPECT_EQ(read.hosts[1].name, "beta");
  EXPECT_EQ(read.hosts[1].ranks, 2);
  EXPECT_EQ(read.between_hosts->transport, "tcp");
  EXPECT_DOUBLE_EQ(read.between_hosts->cost.latency_s, 10e-6);
  EXPECT_DOUBLE_EQ(read.between_hosts->cost.s_per_byte, 4e-8);
  ASSERT_EQ(read.jobs.size(), 2u);
  EXPECT_EQ(read.jobs[1].transport, "shm+tcp");
  ASSERT_EQ(read.jobs[1].times.size(), 2u);
  EXPECT_EQ(read.jobs[1].times[1].collective, Collective::broadcast);
  EXPECT_EQ(read.jobs[1].times[1].algorithm, Algorithm::tree);
  EXPECT_EQ(read.jobs[1].times[1].bytes, 4096u);
  EXPECT_DOUBLE_EQ(read.jobs[1].times[1].seconds, 4e-6);
}

TEST(Tuning, KeepsTheDescriptionOfTheNetwork) {
  TuningProfile described = profile();
  EXPECT_FALSE(parse_tuning(text_of(described)).network);
  described.network = network_of_template("racks:2x1:uplink=4:ranks=2", 0);
  EXPECT_EQ(parse_tuning(text_of(described)).network, described.network);
  EXPECT_NE(refusal_of(R"({"jobs": [], "network": {"hosts": [{"name": "alpha"}], "cables": []}})"),
            "");
}

TEST(Tuning, ServesJobsOfItsHostsAlone) {
  EXPECT_EQ(why_not_for(profile(), whole_job()), "");
  const Costs costs = tuned(profile(), whole_job());
  EXPECT_EQ(costs.inter, CostSource::profile);
  EXPECT_EQ(costs.calls, CostSource::profile);
  EXPECT_EQ(costs.times, profile().jobs[1].times);
  // A part on one host.
  EXPECT_EQ(tuned(profile(), {{"alpha", "alpha"}, {0, 0}, "shm"}).times, profile().jobs[0].times);
  // A rank a host: the links alone.
  const TunedJob one_each{{"beta", "alpha"}, {0, 1}, "tcp"};
  EXPECT_EQ(why_not_for(profile(), one_each), "");
  EXPECT_EQ(tuned(profile(), one_each).inter, CostSource::profile);
  EXPECT_TRUE(tuned(profile(), one_each).times.empty());

  EXPECT_EQ(why_not_for(profile(), {{"alpha", "gamma"}, {0, 1}, "tcp"}),
            "it was measured on other hosts than gamma");
  EXPECT_EQ(why_not_for(profile(), {{"alpha", "beta"}, {0, 1}, "verbs"}),
            "it has no job of 2 ranks so placed over verbs");
  TuningProfile any = profile();
  any.hosts.clear();
  EXPECT_EQ(why_not_for(any, {{"gamma", "gamma"}, {0, 0}, "shm"}), "");
}

TEST(Tuning, SaysWhereATextIsWrong) {
  const auto with = [](const char* was, const char* is) {
    const std::string text = text_of(profile());
    EXPECT_TRUE(std::regex_search(text, std::regex(was))) << was;
    return refusal_of(std::regex_replace(text, std::regex(was), is));
  };
  EXPECT_EQ(refusal_of(text_of(profile())), "");
  EXPECT_EQ(with("\"ring\"", "\"rong\""), "all_reduce has no algorithm \"rong\"");
  EXPECT_EQ(with("\"broadcast\"", "\"broadcost\""), "there is no collective \"broadcost\"");
  EXPECT_EQ(with("\"tree\"", "\"one_shot\""), "broadcast has no algorithm \"one_shot\"");
  EXPECT_EQ(with("\"bytes\": 4096", "\"bytes\": -1"), "bytes is -1");
  EXPECT_EQ(with("\"ranks\": 4", "\"ranks\": 0"), "ranks is 0");
  EXPECT_EQ(with("\"latency_us\": 10.0", "\"latency_us\": -1"), "latency_us is -1");
  EXPECT_EQ(with("3.0", "0"), "ring takes 0 us");
  EXPECT_EQ(with("3.0", "1e-9"), "ring is 1e-09");
  EXPECT_EQ(
      with("\"ranks\": 4,\\s+\"transport\": \"shm\\+tcp", "\"ranks\": 2, \"transport\": \"shm"),
      "a job of 2 ranks over shm is there twice");
  EXPECT_EQ(with("\"broadcast\",\\s+\"bytes\": 4096,\\s+\"us\": .\\s+\"tree\"",
                 "\"all_reduce\", \"bytes\": 8, \"us\": { \"direct\""),
            "a job has all_reduce of 8 bytes twice");
  EXPECT_NE(with("\"jobs\"", "\"job\"").find("key 'jobs' not found"), std::string::npos);
  EXPECT_NE(refusal_of("").find("parse error"), std::string::npos);
  EXPECT_NE(refusal_of("[1, 2]"), "");
  EXPECT_EQ(refusal_of(std::string(kTuningBytesMax + 1, ' ')), "it is longer than 1048576 bytes");
}

// It was parsed, and overflowed the stack as an error told of it.
TEST(Tuning, IsNotNestedDeeply) {
  const std::string deep(kTuningBytesMax / 2 - 100, '['), end(deep.size(), ']');
  EXPECT_EQ(refusal_of(R"({"jobs": [], "network": )" + deep + end + "}"),
            "values are nested too deeply");
  EXPECT_EQ(refusal_of(R"({"jobs": [{"ranks": 2, "transport": "shm", "calls": [
                           {"collective": "all_reduce", "bytes": )" +
                       deep + end + "}]}]}"),
            "values are nested too deeply");
}

class SavedTuning : public ::testing::Test {
 protected:
  SavedTuning() : folder_(std::string(::testing::TempDir()) + "/tuning_test.XXXXXX") {
    mkdtemp(folder_.data());
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~SavedTuning() override {
    unsetenv("XDG_CACHE_HOME");
    std::filesystem::remove_all(folder_);
  }
  /// Each is newer than those before.
  void save(const std::string& text,
            const std::vector<TuningProfile::Host>& hosts = profile().hosts) {
    const std::string path = saved_tuning_path(hosts);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    std::filesystem::last_write_time(path, time_ += std::chrono::seconds(1));
  }

  std::string folder_;
  std::filesystem::file_time_type time_ = std::filesystem::file_time_type::clock::now();
};

TEST_F(SavedTuning, IsFoundByTheNamesOfItsHosts) {
  EXPECT_FALSE(may_have_tuning(""));
  save(text_of(profile()));
  EXPECT_TRUE(may_have_tuning(""));
  EXPECT_EQ(find_tuning("", whole_job()), text_of(profile()));
  EXPECT_EQ(find_tuning("", {{"alpha", "alpha"}, {0, 0}, "shm"}), text_of(profile()));  // a part
  EXPECT_EQ(find_tuning("", {{"alpha", "gamma"}, {0, 1}, "tcp"}), "");
}

// Another shape is another file; of all that serve, times of such a job count most, then youth.
TEST_F(SavedTuning, TheOneThatKnowsMostIsTaken) {
  TuningProfile one_each = profile();
  one_each.hosts = {{"alpha", 1}, {"beta", 1}};
  one_each.jobs.clear();
  const TunedJob job{{"alpha", "beta"}, {0, 1}, "tcp"};
  save(text_of(one_each), one_each.hosts);
  save(text_of(profile()));
  EXPECT_EQ(find_tuning("", job), text_of(profile()));  // of links both know
  one_each.jobs = {{2, "tcp", {{Collective::all_reduce, Algorithm::ring, 8, 1e-6}}}};
  save(text_of(one_each), one_each.hosts);
  save(text_of(profile()));
  EXPECT_EQ(find_tuning("", job), text_of(one_each));
}

TEST_F(SavedTuning, IsOffWhereTheUserSaysSo) {
  save(text_of(profile()));
  EXPECT_FALSE(may_have_tuning("none"));
  EXPECT_EQ(find_tuning("none", whole_job()), "");
}

TEST_F(SavedTuning, IsPassedOverWithAWarningWhereItIsOfNoUse) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(find_tuning("/nonexistent/file", whole_job()), "");
  EXPECT_EQ(find_tuning("/dev/zero", whole_job()), "");
  EXPECT_EQ(find_tuning(folder_, whole_job()), "");
  save("{");
  EXPECT_EQ(find_tuning("", whole_job()), "");
  const std::string told = ::testing::internal::GetCapturedStderr();
  for (const char* why : {"/nonexistent/file: No such file", "/dev/zero: it is no regular file"})
    EXPECT_NE(told.find(std::string(" is not used: cannot read ") + why), std::string::npos)
        << told;
  EXPECT_NE(told.find("parse error"), std::string::npos) << told;
}

}  // namespace
}  // namespace ropewalk
