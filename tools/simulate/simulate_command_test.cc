// `ropewalk simulate`, and what `ropewalk explain` says of the same networks.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/command/command_testing.h"

namespace {

using ropewalk::tools::shell::Outcome;
using ropewalk::tools::shell::run;
using testing::HasSubstr;

TEST(SimulateCommand, SimulateTellsOfEveryAlgorithm) {
  const Outcome outcome =
      run("simulate all_reduce --network racks:2x4:uplink=4 --bytes 8M --faults 3 --json");
  EXPECT_EQ(outcome.status, 0);
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["ranks"], 7);
  double before = json["lower_bound_us"];
  std::vector<std::string> names;
  for (const auto& one : json["algorithms"]) {
    EXPECT_GE(one["predicted_us"], before);
    before = one["predicted_us"];
    names.push_back(one["algorithm"]);
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"ring", "tree", "racks", "recursive_doubling"}));
  if (json.contains("synthesized")) names.push_back("synthesized");
  EXPECT_THAT(names, testing::Contains(json["planned"].get<std::string>()));
  if (!json.contains("synthesized")) GTEST_SKIP() << "without Boost.Graph";
  EXPECT_GE(json["synthesized"]["predicted_us"], json["lower_bound_us"]);
  EXPECT_GE(json["synthesized"]["busiest_link_us"], json["synthesized"]["links_least_us"]);
}

TEST(SimulateCommand, SimulateMakesSchedulesWhereAskedTo) {
  const std::string words = "simulate --algorithm synthesized --bytes 8M --json --network ";
  const auto json_of = [&words](const std::string& more, int status) {
    const Outcome outcome = run(words + more);
    EXPECT_EQ(outcome.status, status) << more;
    return nlohmann::json::parse(outcome.out);
  };
  const auto refused = json_of("flat:hosts=1 -n 4 all_reduce", 1);
  EXPECT_TRUE(refused["algorithms"].empty());
  const std::string why = refused["synthesized"]["why_not"];
  if (why.find("Boost") != why.npos) GTEST_SKIP() << why;
  const auto made = json_of("racks:2x4:uplink=16 all_reduce", 0);
  EXPECT_TRUE(made["algorithms"].empty());
  EXPECT_GT(made["synthesized"]["trees"], 0);
}

// What the planner thinks of it does not count there.
TEST(SimulateCommand, SimulateStarsTheFastest) {
  const auto json = nlohmann::json::parse(
      run("simulate all_reduce --network rail:hosts=32:gpus=8 --bytes 256M --json").out);
  EXPECT_EQ(json["planned"], json["algorithms"][0]["algorithm"]);
  EXPECT_GT(json["algorithms"][0]["links"].size(), 5u);
  const std::string one = run("simulate all_reduce -n 1 --bytes 8").out;
  EXPECT_THAT(one, testing::Not(HasSubstr("nan")));
  EXPECT_THAT(one, HasSubstr("what to choose"));
  EXPECT_THAT(run("simulate all_reduce -n 4 --bytes 8 --algorithm ring").out,
              testing::Not(HasSubstr("what to choose")));
}

TEST(SimulateCommand, SimulateRefusesWhatTakesDays) {
  const Outcome outcome = run("simulate all_reduce -n 4 --network flat:rate=1kbit --bytes 1G 2>&1");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, HasSubstr("s at least"));
}

TEST(SimulateCommand, SimulateTellsMoreThanItCanTrace) {
  const std::string file = testing::TempDir() + "trace.txt";
  const std::string words = "simulate all_reduce --algorithm ring --trace " + file;
  EXPECT_EQ(run(words + " -n 2 --bytes 8").status, 0);
  const std::string trace = run("simulate all_reduce -n 2 --bytes 8 --algorithm ring --trace "
                                "/dev/stderr 2>&1 >/dev/null")
                                .out;
  EXPECT_THAT(trace, HasSubstr("from to lane op block bytes\n"));
  EXPECT_THAT(trace, HasSubstr(" 0 1 0 reduce "));
  EXPECT_THAT(trace, HasSubstr(" 1 0 0 copy "));
  const Outcome large = run(words + " -n 8192 --bytes 8M 2>/dev/null");
  EXPECT_NE(large.status, 0);
  EXPECT_THAT(large.out, HasSubstr("ring"));
  const Outcome unwritable =
      run("simulate all_reduce -n 2 --bytes 8 --trace /missing/trace.txt 2>/dev/null");
  EXPECT_EQ(unwritable.status, 2);
  EXPECT_EQ(unwritable.out, "");
}

TEST(SimulateCommand, SimulateShowsTrees) {
  const Outcome outcome = run(
      "simulate broadcast --network racks:2x2:uplink=4 --bytes 8M --algorithm synthesized --trees "
      "--json");
  const auto made = nlohmann::json::parse(outcome.out)["synthesized"];
  if (made.contains("why_not")) GTEST_SKIP() << made["why_not"];
  double share = 0;
  for (const auto& tree : made["forest"]) {
    share += tree["share"].get<double>();
    EXPECT_EQ(tree["root"], 0);
    EXPECT_EQ(tree["edges"].size(), 3u);
  }
  EXPECT_NEAR(share, 1, 1e-9);
}

TEST(SimulateCommand, SimulatedStepsHeedOrRefuseTheirOptions) {
  const std::string file = testing::TempDir() + "model.json";
  std::ofstream(file) << R"({"backward_ms": 1, "buckets": [{"ready_ms": 1, "bytes": 1048576}]})";
  const std::string words = "all_reduce -n 4 --step " + file;
  const auto json = nlohmann::json::parse(run("simulate --json --algorithm tree " + words).out);
  EXPECT_EQ(json["algorithms"][0], "tree");
  for (const char* more : {"--trace trace.txt", "--bytes 8", "--event-by-event", "--root 1"})
    EXPECT_EQ(run("simulate " + words + " " + more + " 2>/dev/null").status, 2) << more;
  EXPECT_EQ(run("simulate broadcast -n 4 --step " + file + " 2>/dev/null").status, 2);
  std::ofstream(file) << "{}";
  EXPECT_THAT(run("simulate " + words + " 2>&1").out, HasSubstr("docs/simulation.md"));
}

// Values as they are without a description count, too, where they are written down.
TEST(SimulateCommand, SimulateAndExplainReckonWithTheCostsOfADescription) {
  const std::string file = testing::TempDir() + "costs.json";
  std::ofstream out(file);
  out << R"({"hosts": [)";
  for (int host = 0; host < 4; ++host)
    out << fmt::format(R"({}{{"name": "h{}", "ranks": 2}})", host == 0 ? "" : ", ", host);
  out << R"(], "switches": [{"name": "s"}, {"name": "t"}], "links": [)";
  for (int host = 0; host < 4; ++host)
    out << fmt::format(R"({{"between": ["h{}", "{}"], "rate_mbps": 8000}}, )", host,
                       host < 2 ? "s" : "t");
  out << R"({"between": ["s", "t"], "rate_mbps": 4000}], "costs": {
      "between_hosts": {"latency_us": 2, "overhead_us": 0.5},
      "within_hosts": {"latency_us": 0.7, "overhead_us": 0.3, "bytes_per_s": 2e9},
      "receive_us": 1, "copy_bytes_per_s": 5e9, "add_bytes_per_s": 4e9}})";
  out.close();
  const std::string words = " all_reduce --bytes 8M --json --network " + file;
  const Outcome explained = run("explain --transport tcp" + words);
  ASSERT_EQ(explained.status, 0) << explained.out;
  const auto json = nlohmann::json::parse(explained.out);
  const auto& costs = json["costs"];
  ASSERT_EQ(costs.size(), 2u) << costs;
  EXPECT_EQ(costs[0]["source"], "described");
  EXPECT_NEAR(costs[0]["latency_us"], 0.7, 1e-3);
  EXPECT_NEAR(costs[0]["overhead_us"], 0.3, 1e-3);
  EXPECT_NEAR(costs[0]["mb_per_s"], 2000, 1);
  EXPECT_EQ(costs[1]["source"], "described");
  EXPECT_NEAR(costs[1]["latency_us"], 3, 1e-3) << "with what the receiver's CPU takes";
  EXPECT_NEAR(costs[1]["overhead_us"], 0.5, 1e-3);
  EXPECT_NEAR(costs[1]["mb_per_s"], 1000, 1);
  EXPECT_EQ(json["algorithm"], nlohmann::json::parse(run("simulate" + words).out)["planned"]);
}

TEST(SimulateCommand, SimulateReadsTheNetworkThatItPrints) {
  const std::string file = testing::TempDir() + "network.json";
  const std::string words = "simulate all_gather --bytes 1M --network ";
  EXPECT_EQ(run(words + "rail:hosts=2:gpus=4 --print-network > " + file).status, 0);
  const auto fastest = [](const Outcome& outcome) {
    return nlohmann::json::parse(outcome.out)["algorithms"][0];
  };
  EXPECT_EQ(fastest(run(words + file + " --json")),
            fastest(run(words + "rail:hosts=2:gpus=4 --json")));
}

}  // namespace
