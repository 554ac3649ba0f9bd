// Starting, output, environment and exit status of local jobs.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tools/launcher/launcher_fixture.h"

namespace ropewalk::tools {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST_F(LauncherTest, PrefixesEveryLineOfEveryRank) {
  const Outcome outcome = run_script({"-n", "2"}, "echo one; echo two; printf rest; echo bad >&2");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(sorted_lines(outcome.out),
              ElementsAre("[0] one", "[0] rest", "[0] two", "[1] one", "[1] rest", "[1] two"));
  EXPECT_THAT(sorted_lines(outcome.err), ElementsAre("[0] bad", "[1] bad"));
}

TEST_F(LauncherTest, NoPrefixPassesBytesThrough) {
  const Outcome outcome = run_script({"-n", "1", "--no-prefix"}, "printf 'a\\nb'");
  EXPECT_EQ(outcome.out, "a\nb");
}

TEST_F(LauncherTest, PassesLargeOutputWhole) {
  const Outcome outcome = run_script({"-n", "2", "--no-prefix"}, "seq 1 200000");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out.size(), 2U * 1288895);
}

TEST_F(LauncherTest, TellsEveryRankWhoItIs) {
  const Outcome outcome = run_script(
      {"-n", "3"},
      "echo $ROPEWALK_RANK/$ROPEWALK_SIZE $ROPEWALK_LOCAL_RANK/$ROPEWALK_LOCAL_SIZE "
      "${ROPEWALK_COORDINATOR%:*} ${ROPEWALK_COORDINATOR_FD:+listens} ${#ROPEWALK_JOB_KEY}");
  EXPECT_THAT(sorted_lines(outcome.out),
              ElementsAre("[0] 0/3 0/3 127.0.0.1 listens 64", "[1] 1/3 1/3 127.0.0.1 64",
                          "[2] 2/3 2/3 127.0.0.1 64"));
}

TEST_F(LauncherTest, RankZeroInheritsTheListeningSocketOfTheCoordinator) {
  const Outcome outcome = run_script(
      {"-n", "2", "--no-prefix"},
      "[ $ROPEWALK_RANK = 0 ] || exit 0; port=$(printf %04X ${ROPEWALK_COORDINATOR##*:});"
      "inode=$(readlink /proc/self/fd/$ROPEWALK_COORDINATOR_FD | tr -dc 0-9);"
      "grep -q \":$port 00000000:0000 0A.* $inode \" /proc/net/tcp && echo listening");
  EXPECT_EQ(outcome.out, "listening\n");
}

TEST_F(LauncherTest, EveryJobHasAKeyOfItsOwnUnlessOneIsGiven) {
  const std::string first = run_script({"-n", "2"}, "echo $ROPEWALK_JOB_KEY").out;
  const std::string second = run_script({"-n", "2"}, "echo $ROPEWALK_JOB_KEY").out;
  EXPECT_NE(first, second);
  EXPECT_EQ(sorted_lines(first)[0].substr(4), sorted_lines(first)[1].substr(4));
  environment_ = {"ROPEWALK_JOB_KEY=chosen"};
  EXPECT_EQ(run_script({"-n", "1"}, "echo $ROPEWALK_JOB_KEY").out, "[0] chosen\n");
}

TEST_F(LauncherTest, FlagsBecomeVariablesAndOuterIdentityIsDropped) {
  environment_ = {"ROPEWALK_COORDINATOR_FD=77", "ROPEWALK_RANK=9", "SHARED=yes"};
  const Outcome outcome =
      run_script({"-n", "2", "--transport", "shm", "--secure", "--timeout", "7", "-x", "EXTRA=a b"},
                 "echo $ROPEWALK_TRANSPORT $ROPEWALK_SECURE $ROPEWALK_TIMEOUT $SHARED \"$EXTRA\" "
                 "$([ $ROPEWALK_RANK = 1 ] && echo ${ROPEWALK_COORDINATOR_FD-unset})");
  EXPECT_THAT(sorted_lines(outcome.out),
              ElementsAre("[0] shm 1 7 yes a b", "[1] shm 1 7 yes a b unset"));
}

TEST_F(LauncherTest, ArgumentsOfTheProgramAreNotTakenForOurs) {
  EXPECT_EQ(run({"-n", "1", "echo", "-n", "7", "--", "--bind"}).out, "[0] 7 -- --bind\n");
  EXPECT_EQ(run({"-n", "1", "--", "echo", "-n", "--help"}).out, "[0] --help\n");
}

TEST_F(LauncherTest, RankZeroReadsStandardInputAndOthersNone) {
  const Outcome outcome = run_script({"-n", "2"}, "cat", "hello\n");
  EXPECT_EQ(outcome.out, "[0] hello\n");
  EXPECT_EQ(run_script({"-n", "2", "--no-stdin"}, "cat", "hello\n").out, "");
}

TEST_F(LauncherTest, BindsEachRankToOneCpuWhileThereAreEnough) {
  const Outcome outcome =
      run_script({"-n", "1", "--bind", "--no-prefix"}, "grep Cpus_allowed_list /proc/self/status");
  EXPECT_THAT(outcome.out, Not(HasSubstr("-")));
  EXPECT_THAT(outcome.out, Not(HasSubstr(",")));
  EXPECT_EQ(run_script({"-n", "40", "--bind"}, "true").status, 0);
}

TEST_F(LauncherTest, ExitStatusAndNameAreThoseOfTheFirstToFail) {
  const Outcome outcome =
      run_script({"-n", "3"}, "case $ROPEWALK_RANK in 1) exit 3;; *) sleep 0.3; exit 5;; esac");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("rank 1 (pid "), HasSubstr("exited with status 3"),
                                 Not(HasSubstr("status 5"))));
}

TEST_F(LauncherTest, DeathBySignalIsNamedAndGives128PlusSignal) {
  const Outcome outcome =
      run_script({"-n", "3"}, "if [ $ROPEWALK_RANK = 2 ]; then kill -9 $$; fi; sleep 0.2");
  EXPECT_EQ(outcome.status, 137);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("rank 2 (pid "), HasSubstr("was killed by signal 9 (Killed)")));
}

TEST_F(LauncherTest, OthersMayEndWithTheirOwnErrorsAfterAFailure) {
  const Outcome outcome = run_script(
      {"-n", "2"},
      "if [ $ROPEWALK_RANK = 0 ]; then exit 1; fi; sleep 0.3; echo 'rank 0 was lost' >&2; exit 1");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("[1] rank 0 was lost"));
}

TEST_F(LauncherTest, ARankThatIgnoresSigtermIsKilledAfterAFailure) {
  const Outcome outcome =
      run_script({"-n", "2", "--grace", "0.2"},
                 "if [ $ROPEWALK_RANK = 0 ]; then sleep 0.2; exit 4; fi; trap '' TERM; echo $$ > " +
                     path("pid") + "; sleep 60; sleep 60");
  EXPECT_EQ(outcome.status, 4);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("ranks 1; sending them SIGTERM"),
                                 HasSubstr("ranks 1; killing them")));
  EXPECT_TRUE(has_ended(pids_in("pid", 1)[0]));
}

TEST_F(LauncherTest, ProgramNotFoundIs127WithAdvice) {
  const Outcome outcome = run({"-n", "2", "--", "no-such-program"});
  EXPECT_EQ(outcome.status, 127);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("cannot start \"no-such-program\""),
                                 HasSubstr("No such file"), HasSubstr("PATH")));
}

TEST_F(LauncherTest, ProgramNotExecutableIs126) {
  std::ofstream(path("text")) << "no program";
  EXPECT_EQ(run({"-n", "2", "--", path("text")}).status, 126);
}

TEST_F(LauncherTest, WorkdirIsEnteredOrRefused) {
  const std::string directory = std::filesystem::canonical(path(""));
  EXPECT_EQ(run({"-n", "1", "--workdir", directory, "pwd"}).out, "[0] " + directory + "\n");
  const Outcome outcome = run({"-n", "1", "--workdir", "/no/such", "pwd"});
  EXPECT_EQ(outcome.status, 126);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("/no/such"), HasSubstr("--workdir")));
}

TEST_F(LauncherTest, RunsWithALimitOf64OpenFiles) {
  before_ = "ulimit -n 64";
  const Outcome outcome = run_script({"-n", "4", "--no-prefix"}, "cat; ulimit -n", "hello\n");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(sorted_lines(outcome.out), ElementsAre("64", "64", "64", "64", "hello"));
}

TEST_F(LauncherTest, RaisesTheSoftLimitOfOpenFilesForItselfAlone) {
  before_ = "ulimit -Sn 64";
  const Outcome outcome = run_script({"-n", "40", "--no-prefix"}, "ulimit -Sn");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(sorted_lines(outcome.out), testing::AllOf(testing::SizeIs(40), testing::Each("64")));
}

TEST_F(LauncherTest, TooFewOpenFilesAreToldBeforeARankStarts) {
  before_ = "ulimit -n 21";
  const Outcome outcome = run_script({"-n", "2"}, "echo started");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("needs 2"), HasSubstr("the limit is 21"), HasSubstr("ulimit -n 2")));
}

// Several agents start them.
TEST_F(LauncherTest, FewOpenFilesSufficeForManyRanks) {
  before_ = "ulimit -n 64";
  const Outcome outcome = run_script(
      {"-n", "40", "--no-prefix"}, "echo $ROPEWALK_RANK $ROPEWALK_LOCAL_RANK $ROPEWALK_LOCAL_SIZE");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (int rank = 0; rank < 40; ++rank)
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("{} {} 40\n", rank, rank)));
}

TEST_F(LauncherTest, TimeLimitEndsTheJobWith124) {
  const Outcome outcome = run_script({"-n", "2", "--time-limit", "0.3"}, "sleep 60");
  EXPECT_EQ(outcome.status, 124);
  EXPECT_THAT(outcome.err, HasSubstr("time limit of 0.3 s"));
}

}  // namespace
}  // namespace ropewalk::tools
