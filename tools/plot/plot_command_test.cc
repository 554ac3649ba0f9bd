// --plot of the `ropewalk` program, whose path is the first argument.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "synthesize/synthesize.h"
#include "tools/command/command_testing.h"
#include "tools/plot/xml_testing.h"

namespace ropewalk::tools {
namespace {

using shell::Outcome;
using shell::run;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PlotCommand : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }

  /// What the command has drawn; it has to end well.
  std::string drawn(const std::string& arguments) {
    const std::string file = path("plot.svg");
    std::filesystem::remove(file);
    const Outcome outcome = run(arguments + " --plot " + file + " 2>&1");
    EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.out;
    std::ifstream stream(file);
    const std::string svg{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_EQ(why_not_xml(svg), "") << arguments;
    return svg;
  }
  /// What it says where it refuses.
  std::string refusal(const std::string& arguments) {
    const Outcome outcome = run(arguments + " 2>&1");
    EXPECT_EQ(outcome.status, 2) << arguments << "\n" << outcome.out;
    return outcome.out;
  }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      ("plot" + std::to_string(::getpid()) +
       ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

size_t count_of_shape(const std::string& svg, const std::string& shape) {
  size_t count = 0;
  for (size_t at = 0; (at = svg.find("<" + shape, at)) != svg.npos; ++at) ++count;
  return count;
}

TEST_F(PlotCommand, SimulateDrawsTimesScheduleAndLinks) {
  const std::string svg = drawn("simulate all_reduce --network racks:2x4:uplink=4 --bytes 1M");
  EXPECT_THAT(
      svg, AllOf(HasSubstr(">Simulated time<"), HasSubstr(">lower bound<"), HasSubstr(">ring<"),
                 HasSubstr(">racks<"), HasSubstr(">1 KiB<"), HasSubstr(">rank 7<"),
                 HasSubstr("The busiest links, 10 of 10; of links alike, one"), HasSubstr("core")));
  EXPECT_GE(count_of_shape(svg, "polyline"), 2 * 8u);  // a line and its sample of each
}

TEST_F(PlotCommand, SimulateDrawsOneAlgorithmAndTheSizesSaid) {
  const std::string svg =
      drawn("simulate all_reduce -n 4 --bytes 64K --algorithm ring --sizes 32K:128K");
  EXPECT_THAT(svg, AllOf(HasSubstr(">128 KiB<"), Not(HasSubstr(">tree<"))));
  // A dot for each message, and a sample of each kind; three sizes, and a sample of the line.
  EXPECT_EQ(count_of_shape(svg, "circle"), 24 + 2u + 3u + 1u);
}

TEST_F(PlotCommand, SimulateDrawsEveryCollectiveAndAnyNumberOfRanks) {
  for (const char* collective : {"reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
                                 "scatter", "all_to_all", "barrier"})
    EXPECT_THAT(drawn(std::string("simulate ") + collective + " -n 3 --bytes 4K"),
                HasSubstr(">rank 2<"))
        << collective;
  EXPECT_THAT(drawn("simulate all_reduce -n 33 --bytes 4K"), HasSubstr("up to 32 ranks"));
  EXPECT_THAT(drawn("simulate all_reduce --network flat:hosts=1:ranks=4 --bytes 4K"),
              HasSubstr("Nothing passes a link"));
  EXPECT_THAT(drawn("simulate all_reduce -n 1 --bytes 4K"), HasSubstr("moves nothing"));
  drawn("simulate all_reduce -n 2 --bytes 1");
}

TEST_F(PlotCommand, SimulateDrawsSchedulesMadeForTheNetwork) {
  if (!can_synthesize()) GTEST_SKIP() << "without Boost.Graph";
  const std::string among = drawn("simulate all_reduce --network racks:2x4:uplink=16 --bytes 8M");
  EXPECT_THAT(among, AllOf(HasSubstr(">synthesized<"), HasSubstr("Schedule of synthesized")));
  const std::string alone =
      drawn("simulate all_gather --network racks:2x4 --bytes 64K --algorithm synthesized");
  EXPECT_THAT(alone, AllOf(HasSubstr("Schedule of synthesized"), Not(HasSubstr(">ring<"))));
}

TEST_F(PlotCommand, ExplainDrawsWhatThePlannerPredicts) {
  const std::string svg = drawn("explain all_reduce --bytes 1M -n 8 --hosts 4 --transport tcp");
  EXPECT_THAT(svg, AllOf(HasSubstr("planner predicts"), HasSubstr(">two_level<"),
                         HasSubstr(">lower bound<"), HasSubstr(">rank 7<"),
                         HasSubstr(">host0 &gt; switch0<")));
  EXPECT_THAT(drawn("explain all_reduce --bytes 1M -n 4"), HasSubstr(">rank 3<"));
  EXPECT_THAT(drawn("explain all_reduce --bytes 1M -n 1"), HasSubstr("moves nothing"));
  EXPECT_THAT(drawn("explain barrier -n 4"), HasSubstr(">rank 3<"));
  EXPECT_THAT(drawn("explain broadcast --bytes 1M -n 40 --hosts 2"), HasSubstr("up to 32 ranks"));
}

TEST_F(PlotCommand, BenchDrawsItsRunBesideASavedOne) {
  const std::string bench = "bench all_reduce -n 2 --transport shm --sizes 8:64 --iterations 5";
  const std::string saved = path("b & <a>.json");
  EXPECT_EQ(run(bench + " --json > '" + saved + "'").status, 0);
  const std::string alone = drawn(bench);
  EXPECT_THAT(alone, AllOf(HasSubstr("Bus bandwidth"), HasSubstr(">this run: shm, 2 ranks<")));
  const std::string beside = drawn(bench + " --buffers plain --plot-beside '" + saved + "'");
  EXPECT_THAT(beside, HasSubstr(">b &amp; &lt;a&gt;.json: shm, 2 ranks, registered<"));
  EXPECT_EQ(count_of_shape(beside, "polyline"), 2 * count_of_shape(alone, "polyline"));
  EXPECT_THAT(drawn("run -n 2 -- " + shell::program + " " + bench.substr(0, bench.find(" -n")) +
                    " --sizes 8,64 --iterations 3"),
              HasSubstr(">this run: "));
}

TEST_F(PlotCommand, WrongPathsAreNamedBeforeAnythingIsMeasured) {
  const std::string missing = path("missing/plot.svg");
  for (const char* words : {"simulate all_reduce --bytes 8 -n 2", "explain all_reduce --bytes 8",
                            "bench all_reduce -n 2 --sizes 8"}) {
    EXPECT_THAT(refusal(words + std::string(" --plot ") + missing),
                AllOf(HasSubstr(missing + ": No such file"), Not(HasSubstr("algbw"))));
    EXPECT_THAT(refusal(words + std::string(" --plot ") + path("plot.png")),
                AllOf(HasSubstr("plot.png"), HasSubstr(".svg")));
  }
  EXPECT_FALSE(std::filesystem::exists(path("plot.png")));
  const std::string bench = "bench all_reduce -n 2 --sizes 8 --plot " + path("plot.svg");
  EXPECT_THAT(refusal(bench + " --plot-beside " + missing), HasSubstr(missing + ": No such file"));
  std::ofstream(path("wrong.json")) << "{\"collective\":\"broadcast\"}\n";
  EXPECT_THAT(refusal(bench + " --plot-beside " + path("wrong.json")),
              HasSubstr("wrong.json, line 1: it is of broadcast, not of all_reduce"));
}

TEST_F(PlotCommand, OptionsThatMeanNothingAreRefused) {
  const std::string plot = " --plot " + path("plot.svg");
  EXPECT_THAT(refusal("simulate all_reduce --bytes 8 --sizes 8"), HasSubstr("--plot FILE.svg"));
  EXPECT_THAT(refusal("simulate all_reduce --bytes 8 --sizes x" + plot),
              HasSubstr("simulate: --sizes: \"x\" is not a size"));
  EXPECT_THAT(refusal("simulate barrier --sizes 8" + plot), HasSubstr("a barrier has none"));
  std::ofstream(path("model.json")) << R"({"backward_ms": 1, "buckets": []})";
  EXPECT_THAT(refusal("simulate all_reduce --step " + path("model.json") + plot),
              HasSubstr("no training step"));
  EXPECT_THAT(refusal("explain all_reduce --bytes 8 --sizes 8"), HasSubstr("--plot FILE.svg"));
  EXPECT_THAT(refusal("bench all_reduce --plot-beside x.json"), HasSubstr("--plot FILE.svg"));
  EXPECT_THAT(refusal("bench barrier" + plot), HasSubstr("a barrier has none"));
}

TEST_F(PlotCommand, APictureThatCannotBeWrittenIsAFailure) {
  std::filesystem::create_symlink("/dev/full", path("plot.svg"));
  for (const char* words : {"explain all_reduce --bytes 8", "simulate all_reduce --bytes 8 -n 2",
                            "bench all_reduce -n 2 --sizes 8 --iterations 1"}) {
    const Outcome outcome = run(std::string(words) + " --plot " + path("plot.svg") + " 2>&1");
    EXPECT_EQ(outcome.status, 1) << words;
    EXPECT_THAT(outcome.out, HasSubstr("cannot write " + path("plot.svg") + ": No space")) << words;
  }
}

TEST_F(PlotCommand, APictureThatIsThereIsReplaced) {
  const std::string file = path("plot.svg");
  std::ofstream(file) << std::string(1 << 20, 'x');
  EXPECT_EQ(run("explain all_reduce --bytes 8 --plot " + file).status, 0);
  std::ifstream stream(file);
  EXPECT_EQ(why_not_xml({std::istreambuf_iterator<char>(stream), {}}), "");
}

}  // namespace
}  // namespace ropewalk::tools

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc < 2) return 2;
  ropewalk::tools::shell::program = argv[1];
  return RUN_ALL_TESTS();
}
