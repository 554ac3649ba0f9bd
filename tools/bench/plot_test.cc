// Saved runs of `ropewalk bench`.
#include "tools/bench/plot.h"

#include <gmock/gmock.h>

#include "ropewalk/status.h"

namespace ropewalk::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string line_of(const std::string& transport, size_t bytes, double median_us) {
  BenchOptions options;
  BenchResult result;
  result.bytes = bytes;
  result.median_us = median_us;
  result.busbw_gbs = static_cast<double>(bytes) / median_us / 1e3;
  return json_line(options, {2, transport}, result);
}

TEST(BenchRuns, AreWhatJsonPrintedGroupedBySetting) {
  const std::string text =
      line_of("shm", 64, 2) + line_of("tcp", 8, 30) + "\n" + line_of("shm", 8, 1);
  const std::vector<BenchRun> runs = parse_bench_runs(text, "saved.json", "all_reduce");
  ASSERT_EQ(runs.size(), 2u);
  ASSERT_EQ(runs[0].points.size(), 2u);
  EXPECT_EQ(runs[0].points[0].bytes, 8);
  EXPECT_EQ(runs[0].points[0].median_us, 1);
  EXPECT_EQ(runs[0].points[1].busbw_gbs, 0.032);
  EXPECT_EQ(runs[1].fields[0], (std::pair<std::string, std::string>("transport", "tcp")));
}

TEST(BenchRuns, ErrorsNameFileAndLine) {
  const auto why = [](const std::string& text) -> std::string {
    try {
      parse_bench_runs(text, "saved.json", "all_reduce");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "nothing is wrong";
  };
  const std::string good = line_of("shm", 8, 1);
  for (const char* bad :
       {"# a table", "[1]", "3", "{\"collective\":", "\xff", "[0] {}", "{}", "{\"collective\":3}",
        "{\"collective\":\"all_reduce\"}", "{\"collective\":\"all_reduce\",\"bytes\":\"8\"}",
        "{\"collective\":\"all_reduce\",\"bytes\":8,\"median_us\":-1,\"busbw_gbs\":1}",
        "{\"collective\":\"all_reduce\",\"bytes\":8,\"median_us\":1e999,\"busbw_gbs\":1}",
        "{\"collective\":\"all_gather\",\"bytes\":8,\"median_us\":1,\"busbw_gbs\":1}"})
    EXPECT_THAT(why(good + bad + "\n"), AllOf(HasSubstr("saved.json, line 2: "))) << bad;
  EXPECT_THAT(why("{\"collective\":\"all_gather\"}"),
              HasSubstr("of all_gather, not of all_reduce"));
  EXPECT_THAT(why(""), HasSubstr("saved.json: nothing is in it"));
  EXPECT_THAT(why("\n \n"), HasSubstr("nothing is in it"));
}

}  // namespace
}  // namespace ropewalk::tools
