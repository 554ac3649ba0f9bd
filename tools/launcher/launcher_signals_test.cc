// Nothing outlives the launcher: signals, kill -9, grandchildren.
#include <gmock/gmock.h>
#include <signal.h>

#include "tools/launcher/launcher_fixture.h"

namespace ropewalk::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

bool all_ended(const std::vector<pid_t>& pids) {
  return eventually([&] {
    for (const pid_t pid : pids) {
      if (!has_ended(pid)) return false;
    }
    return true;
  });
}

// Every rank writes its pid and that of a child that has left its session and ignores signals.
std::string family_script(const std::string& file) {
  return "sh -c 'trap \"\" TERM HUP INT; echo $$ >> " + file +
         "; exec setsid sleep 61' & echo $$ >> " + file + "; sleep 60";
}

TEST_F(LauncherTest, SigtermIsPassedOnOnceAndRanksMayClean) {
  const std::string script = "trap 'echo cleaned; exit 0' TERM; echo $$ >> " + path("pids") +
                             "; while :; do sleep 0.05; done";
  const pid_t launcher = start({"-n", "2", "--", "sh", "-c", script});
  const auto pids = pids_in("pids", 2);
  kill(launcher, SIGTERM);
  const Outcome outcome = wait(launcher);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("[0] cleaned"), HasSubstr("[1] cleaned")));
  EXPECT_TRUE(all_ended(pids));
}

TEST_F(LauncherTest, SigintThatKillsRanksGives130AndNamesNobody) {
  const pid_t launcher =
      start({"-n", "2", "--", "sh", "-c", "echo $$ >> " + path("pids") + "; exec sleep 60"});
  pids_in("pids", 2);
  kill(launcher, SIGINT);
  const Outcome outcome = wait(launcher);
  EXPECT_EQ(outcome.status, 130);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("Interrupt: passed on"), Not(HasSubstr("rank 0 (pid"))));
}

TEST_F(LauncherTest, ASecondSignalKillsRanksThatIgnoreTheFirst) {
  const pid_t launcher =
      start({"-n", "2", "--", "sh", "-c",
             "trap '' TERM; echo $$ >> " + path("pids") + "; while :; do sleep 1; done"});
  const auto pids = pids_in("pids", 2);
  kill(launcher, SIGTERM);
  EXPECT_TRUE(eventually([&] { return read("stderr").find("passed on") != std::string::npos; }));
  kill(launcher, SIGTERM);
  EXPECT_EQ(wait(launcher).status, 128 + SIGTERM);
  EXPECT_TRUE(all_ended(pids));
}

TEST_F(LauncherTest, InterruptedRanksHaveTheGraceOfTheFlagAndNotFiveSeconds) {
  const pid_t launcher = start({"-n", "1", "--grace", "0.2", "--", "sh", "-c",
                                "trap '' INT; echo $$ > " + path("pids") + "; sleep 4; echo late"});
  const auto pids = pids_in("pids", 1);
  kill(launcher, SIGINT);
  const Outcome outcome = wait(launcher);
  EXPECT_EQ(outcome.status, 130);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("they have 0.2 s (--grace)"));
  EXPECT_TRUE(all_ended(pids));
}

TEST_F(LauncherTest, KillingTheLauncherLeavesNoProcess) {
  const pid_t launcher = start({"-n", "2", "--", "sh", "-c", family_script(path("pids"))});
  const auto pids = pids_in("pids", 4);
  kill(launcher, SIGKILL);
  EXPECT_EQ(wait(launcher).status, 137);
  EXPECT_TRUE(all_ended(pids));
}

TEST_F(LauncherTest, KillingTheAgentEndsTheJobAndLeavesNoProcess) {
  const pid_t launcher = start({"-n", "2", "--", "sh", "-c", family_script(path("pids"))});
  const auto pids = pids_in("pids", 4);
  kill(agent_of(launcher), SIGKILL);
  const Outcome outcome = wait(launcher);
  EXPECT_EQ(outcome.status, 255);
  EXPECT_THAT(outcome.err, HasSubstr("was killed by signal 9"));
  EXPECT_TRUE(all_ended(pids));
}

TEST_F(LauncherTest, GrandchildrenDoNotOutliveASuccessfulJob) {
  const Outcome outcome =
      run({"-n", "2", "--", "sh", "-c",
           "(trap '' TERM; setsid sleep 61 & echo $! >> " + path("pids") + "); exit 0"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(all_ended(pids_in("pids", 2)));
}

}  // namespace
}  // namespace ropewalk::tools
