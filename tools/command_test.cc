// The `ropewalk` program as a whole; its path is the first argument.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string program;

struct Outcome {
  int status;
  std::string out;  // and standard error, where the command line says 2>&1
};

Outcome run(const std::string& arguments) {
  FILE* pipe = popen((program + " " + arguments).c_str(), "r");
  Outcome outcome{-1, {}};
  char bytes[4096];
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, pipe)) > 0;) outcome.out.append(bytes, n);
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

TEST(Command, VersionAndHelp) {
  EXPECT_THAT(run("--version").out, HasSubstr("ropewalk "));
  for (const char* name : {"run", "bench", "verify", "doctor", "env"}) {
    EXPECT_THAT(run("--help").out, HasSubstr(name));
    const Outcome help = run(std::string(name) + " --help");
    EXPECT_EQ(help.status, 0) << name;
    EXPECT_THAT(help.out, HasSubstr("Examples:")) << name;
  }
  for (const char* name : {"put", "pingpong", "signal"}) {
    EXPECT_THAT(run("bench --help").out, HasSubstr(name));
    EXPECT_THAT(run(std::string("bench ") + name + " --help").out, HasSubstr("Examples:"));
  }
}

TEST(Command, UnknownWordsGetASuggestion) {
  const Outcome outcome = run("bensh 2>&1");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, HasSubstr("did you mean \"bench\"?"));
  EXPECT_THAT(run("bench all_redcue 2>&1").out, HasSubstr("did you mean all_reduce?"));
  EXPECT_THAT(run("bench pignpong 2>&1").out, HasSubstr("did you mean pingpong?"));
}

TEST(Command, BenchPrintsNothingButJson) {
  const Outcome outcome =
      run("bench all_reduce -n 2 --transport shm --sizes 8,64K --iterations 20 --json");
  EXPECT_EQ(outcome.status, 0);
  std::istringstream lines(outcome.out);
  std::vector<size_t> bytes;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    bytes.push_back(json["bytes"]);
    EXPECT_EQ(json["ranks"], 2);
    EXPECT_EQ(json["iterations"], 20);
    EXPECT_EQ(json["transport"], "shm");
    EXPECT_EQ(json["wrong"], 0);
    EXPECT_LE(json["min_us"], json["median_us"]);
  }
  EXPECT_THAT(bytes, testing::ElementsAre(8, 65536));
}

TEST(Command, BenchChecksEveryCollective) {
  for (const char* collective :
       {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter",
        "all_to_all", "barrier", "send_recv"}) {
    for (const char* buffers : {"registered", "plain"}) {
      const Outcome outcome = run(std::string("bench ") + collective +
                                  " -n 3 --sizes 4,1000 --iterations 3 --buffers " + buffers);
      EXPECT_EQ(outcome.status, 0) << collective << " " << buffers << "\n" << outcome.out;
    }
  }
}

TEST(Command, BenchJoinsTheJobItRunsIn) {
  const Outcome outcome =
      run("run -n 2 -- " + program + " bench all_reduce --sizes 1K --iterations 3 --json");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("[0] {"));
}

TEST(Command, BenchMeasuresTheLinkBetweenTwoRanks) {
  for (const char* transport : {"shm", "tcp"}) {
    for (const char* benchmark : {"put", "put --both", "pingpong", "signal"}) {
      const bool signal = std::string(benchmark) == "signal";
      const Outcome outcome = run(std::string("bench ") + benchmark + " --transport " + transport +
                                  " --iterations 50 --json" + (signal ? "" : " --sizes 1,70000"));
      EXPECT_EQ(outcome.status, 0) << benchmark << " " << transport;
      std::istringstream lines(outcome.out);
      std::vector<size_t> bytes;
      for (std::string line; std::getline(lines, line);) {
        const auto json = nlohmann::json::parse(line);
        bytes.push_back(json["bytes"]);
        EXPECT_EQ(json["transport"], transport);
        EXPECT_EQ(json["iterations"], 50);
        EXPECT_EQ(json["wrong"], 0) << line;
        EXPECT_LE(json["min_us"], json["median_us"]);
      }
      EXPECT_EQ(bytes, signal ? std::vector<size_t>{0} : (std::vector<size_t>{1, 70000}));
    }
  }
}

TEST(Command, BenchOfALinkJoinsTheJobItRunsInAndLeavesOtherRanksAlone) {
  const Outcome outcome =
      run("run -n 3 -- " + program + " bench put --sizes 1K --iterations 3 --json");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
  EXPECT_THAT(run("run -n 1 -- " + program + " bench put 2>&1").out, HasSubstr("needs two ranks"));
}

TEST(Command, BenchOfALinkRefusesWhatMakesNoSense) {
  EXPECT_THAT(run("bench put --sizes 8:4 2>&1").out, HasSubstr("ends before it begins"));
  EXPECT_THAT(run("bench --dtype int8 put 2>&1").out, HasSubstr("put excludes --dtype"));
  EXPECT_THAT(run("bench put --hosts localhost 2>&1").out, HasSubstr("is one rank"));
  EXPECT_THAT(run("bench put --timeout soon 2>&1").out, HasSubstr("is not a duration"));
  EXPECT_THAT(run("bench signal --transport pigeon 2>&1").out, HasSubstr("no transport"));
  EXPECT_EQ(run("bench 2>&1").status, 2);
}

TEST(Command, VerifyPrintsALinePerCollectiveAndAlgorithm) {
  const Outcome outcome = run("verify --ranks 1:4");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("all_reduce"), HasSubstr("halving_doubling"), HasSubstr("1:4")));
  EXPECT_NE(run("verify --ranks 4:1 2>&1").status, 0);
}

TEST(Command, EnvShowsValuesButNotTheKeyAndFlagsTypingErrors) {
  setenv("ROPEWALK_TIMEOUT", "7", 1);
  setenv("ROPEWALK_JOB_KEY", "hidden-secret", 1);
  setenv("ROPEWALK_TIMOUT", "8", 1);
  const Outcome outcome = run("env");
  for (const char* name : {"ROPEWALK_TIMEOUT", "ROPEWALK_JOB_KEY", "ROPEWALK_TIMOUT"})
    unsetenv(name);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("\"7\""), HasSubstr("launcher:"),
                                 HasSubstr("did you mean ROPEWALK_TIMEOUT?"),
                                 testing::Not(HasSubstr("hidden-secret"))));
}

TEST(Command, DoctorNamesEachFindingAndAFixForEachFault) {
  const Outcome well = run("doctor");
  for (const char* name : {"memlock", "nofile", "memfd", "peer memory", "cpus", "interface"}) {
    EXPECT_THAT(well.out, HasSubstr(name));
  }
  const Outcome outcome = run("doctor --coordinator 127.0.0.1:1");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("FAIL coordinator: 127.0.0.1:1"), HasSubstr("fix: ")));
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) return 2;
  program = argv[1];
  return RUN_ALL_TESTS();
}
