// Elastic jobs: who is lost, who goes on, who is started again. Shell scripts stand for ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <string>

#include "tools/launcher/launcher_fixture.h"

namespace ropewalk::tools {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class ElasticTest : public LauncherTest {
 protected:
  /// "0" for rank 0, "again" for a process that was started again.
  Outcome run_cases(std::vector<std::string> flags, const std::string& cases) {
    const std::string functions = fmt::format(
        "cd {}; say() {{ echo $$ >$1.new; mv $1.new $1; }};"
        "joined() {{ echo >/proc/self/fd/$ROPEWALK_JOINED_FD; }};"
        "await() {{ until [ -e $1 ]; do sleep 0.01; done; }};"
        "await_end() {{ await $1; while kill -0 $(cat $1) 2>/dev/null; do sleep 0.01; done; }};",
        path("."));
    return run_script(flags, functions + "case ${ROPEWALK_RANK-again} in " + cases + " esac");
  }
};

TEST_F(ElasticTest, GoesOnWithoutARankThatIsLost) {
  const Outcome outcome =
      run_cases({"-n", "3", "--elastic", "2:3"}, "1) say lost; exit 3;; *) await_end lost;;");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, ContainsRegex("rank 1 \\(pid [0-9]+, host [a-z]+\\) exited with status "
                                         "3; 2 go on"));
}

TEST_F(ElasticTest, WithFewerThanTheLeastItEnds) {
  const Outcome outcome = run_cases({"--elastic", "2:3", "--grace", "0.2"},
                                    "0) say zero; kill -9 $$;;"
                                    "1) await_end zero; exit 5;; *) exec sleep 60;;");
  EXPECT_EQ(outcome.status, 5);
  EXPECT_THAT(outcome.err,
              AllOf(ContainsRegex("rank 0 .* was killed by signal 9 .*; 2 go on"),
                    ContainsRegex("rank 1 .* status 5; 1 rank is left, and --elastic demands 2")));
}

TEST_F(ElasticTest, ALostRankIsStartedAgainAsANewcomer) {
  const Outcome outcome =
      run_cases({"-n", "2", "--elastic", "2:4", "--restart", "1", "-x", "ROPEWALK_RANK_OF=x"},
                "0) echo $ROPEWALK_COORDINATOR >coordinator; await joined;;"
                "1) await coordinator; kill -9 $$;;"
                "again) echo ${ROPEWALK_SIZE-no} size $ROPEWALK_LOCAL_RANK/$ROPEWALK_LOCAL_SIZE"
                " $ROPEWALK_ELASTIC$ROPEWALK_JOIN_RUNNING ${#ROPEWALK_JOB_KEY};"
                " [ $ROPEWALK_COORDINATOR = $(cat coordinator) ] && echo same;"
                " joined; say joined;;");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "[1.1] no size 1/2 11 64\n[1.1] same\n");
  EXPECT_THAT(outcome.err, AllOf(ContainsRegex("rank 1 .* signal 9 .*; 1 go on"),
                                 ContainsRegex("rank 1.1 is started in its place on host [a-z]+; "
                                               "0 restarts are left")));
}

TEST_F(ElasticTest, EveryRankInheritsTheListenerAndSoDoNewcomers) {
  const Outcome outcome =
      run_cases({"-n", "2", "--elastic", "1:2", "--restart", "1", "--no-prefix"},
                "0) readlink /proc/self/fd/$ROPEWALK_COORDINATOR_FD; say told; await joined;;"
                "1) await told; readlink /proc/self/fd/$ROPEWALK_COORDINATOR_FD; exit 1;;"
                "again) readlink /proc/self/fd/$ROPEWALK_COORDINATOR_FD; joined; say joined;;");
  const std::string first = outcome.out.substr(0, outcome.out.find('\n') + 1);
  EXPECT_THAT(first, HasSubstr("socket:"));
  EXPECT_EQ(outcome.out, first + first + first);
}

TEST_F(ElasticTest, WhatALostRankLeftBehindDoesNotGoOn) {
  const Outcome outcome = run_cases({"-n", "2", "--elastic", "1:2", "--restart", "1"},
                                    "0) await joined; await_end left;;"
                                    "1) sleep 60 & echo $! >left; kill -9 $$;;"
                                    "again) joined; say joined;;");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_F(ElasticTest, RestartsAreUsedUp) {
  const Outcome outcome =
      run_cases({"-n", "2", "--elastic", "1:2", "--restart", "2"},
                "0) await third;; 1) exit 1;;"
                "again) [ ! -e second ] || { say third; exit 7; }; say second; exit 8;;");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(ContainsRegex("rank 1.1 .* status 8"),
                                 ContainsRegex("rank 1.2 .* status 7"), Not(HasSubstr("1.3"))));
}

TEST_F(ElasticTest, NobodyIsStartedAgainWhereNoMemberIsLeft) {
  const Outcome outcome =
      run_cases({"-n", "1", "--elastic", "1:1", "--restart", "5"}, "*) exit 4;;");
  EXPECT_EQ(outcome.status, 4);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("no rank is left that those started again could join"),
                                 Not(HasSubstr("in its place"))));
}

TEST_F(ElasticTest, AFailureAtTheEndOfTheJobIsOne) {
  const Outcome outcome = run_cases({"-n", "2", "--elastic", "1:2", "--restart", "5"},
                                    "0) say first;; 1) await_end first; exit 6;;");
  EXPECT_EQ(outcome.status, 6);
  EXPECT_THAT(outcome.err, Not(HasSubstr("in its place")));
}

TEST_F(ElasticTest, WhoComesTooLateIsEndedAndDoesNotCount) {
  const Outcome outcome =
      run_cases({"-n", "2", "--elastic", "1:2", "--restart", "1", "--grace", "0.2"},
                "0) await late;; 1) exit 1;; again) say late; exec sleep 60;;");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("still running: ranks 1.1; sending them SIGTERM"),
                                 HasSubstr("the job is at its end, and had not taken it in")));
}

TEST_F(ElasticTest, CtrlCEndsItAndStartsNobodyAgain) {
  const pid_t launcher = start({"-n", "2", "--elastic", "1:2", "--restart", "5", "--", "sh", "-c",
                                "echo $$ >> " + path("pids") + "; exec sleep 60"});
  pids_in("pids", 2);
  kill(launcher, SIGINT);
  const Outcome outcome = wait(launcher);
  EXPECT_EQ(outcome.status, 128 + SIGINT);
  EXPECT_THAT(outcome.err, Not(HasSubstr("in its place")));
}

}  // namespace
}  // namespace ropewalk::tools
