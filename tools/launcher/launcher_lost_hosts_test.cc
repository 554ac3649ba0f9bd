// Elastic jobs whose hosts are lost: who is started again, and where. Shell scripts stand for
// ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "tools/launcher/launcher_fixture.h"

namespace ropewalk::tools {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class LostHostsTest : public HostsTest {
 protected:
  /// Ranks say where they are in "started", and one that was started again that it has joined. They
  /// end with status 0 once there is a file "end".
  pid_t start_job(std::vector<std::string> flags) {
    const std::string script = fmt::format(
        "cd {}; echo \"${{ROPEWALK_RANK-new}} $HOSTNAME_SEEN $ROPEWALK_LOCAL_RANK/"
        "$ROPEWALK_LOCAL_SIZE $ROPEWALK_COORDINATOR\" >>started; echo $$ >>pids;"
        "[ -n \"$HOSTNAME_SEEN\" ] || echo $PPID >local_agent;"
        "[ -z \"$ROPEWALK_JOINED_FD\" ] || echo >/proc/self/fd/$ROPEWALK_JOINED_FD;"
        "until [ -e end ]; do sleep 0.01; done",
        path("."));
    flags.insert(flags.end(), {"--", "sh", "-c", script});
    return start(flags);
  }
  void lose(const std::string& host, bool is_reachable) {
    set_reachable(host, is_reachable);
    kill(agent_on(host), SIGKILL);
  }
  void await_said(const std::string& text) {
    EXPECT_TRUE(eventually([&] { return read("stderr").find(text) != std::string::npos; }))
        << "\"" << text << "\" is not in " << read("stderr");
  }
  Outcome end(pid_t launcher) {
    std::ofstream(path("end")) << "now";
    return wait(launcher);
  }
};

TEST_F(LostHostsTest, TheJobGoesOnWithFewerAndSaysSoOnce) {
  const pid_t launcher = start_job({"--hosts", "a:2,b:2", "--elastic", "2:4", "--restart", "4"});
  pids_in("pids", 4);
  lose("b", false);
  await_said("no host has free slots");
  const Outcome outcome = end(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              AllOf(ContainsRegex("host b is lost: ssh was killed .* \\(ranks 2, 3\\); 2 go on"),
                    ContainsRegex("slots for ranks 2, 3; they are started again once one is back"),
                    Not(HasSubstr("in its place")),
                    HasSubstr("2 ranks were lost in all, and 0 started again; not there at the "
                              "end: b")));
}

TEST_F(LostHostsTest, TheRanksOfALostHostAreStartedOnASpareHost) {
  const pid_t launcher =
      start_job({"--hosts", "a:2,b:2,c:4", "--elastic", "2:4", "--restart", "3"});
  pids_in("pids", 4);
  lose("b", true);
  pids_in("pids", 6);
  const Outcome outcome = end(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(read("started"),
              AllOf(ContainsRegex("new c 0/4 a:[0-9]+,c:[0-9]+\n"), ContainsRegex("new c 1/4 a:")));
  EXPECT_THAT(outcome.err,
              AllOf(ContainsRegex("rank [23].1 is started in its place on host c; 2 restarts"),
                    ContainsRegex("rank [23].1 is started in its place on host c; 1 restart is"),
                    HasSubstr("2 ranks were lost in all, and 2 started again")));
}

// Nobody could be started again, since newcomers were told of the first host alone.
TEST_F(LostHostsTest, TheHostOfRankZeroIsNoException) {
  const pid_t launcher = start_job({"--hosts", "a,b,c", "--elastic", "1:2", "--restart", "1"});
  pids_in("pids", 2);
  lose("a", false);
  pids_in("pids", 3);
  const Outcome outcome = end(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(read("started"), ContainsRegex("new c 0/1 b:[0-9]+,c:[0-9]+\n"));
}

TEST_F(LostHostsTest, SlotsThatAreLeftOfAHostAreSpareToo) {
  const pid_t launcher =
      start_job({"--hosts", "a:2,b:2", "-n", "3", "--elastic", "1:4", "--restart", "5"});
  pids_in("pids", 3);
  lose("a", false);
  pids_in("pids", 4);
  await_said("no host has free slots for ranks 1;");
  const Outcome outcome = end(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(read("started"), AllOf(HasSubstr("2 b 0/1 "), HasSubstr("new b 1/2 ")));
}

TEST_F(LostHostsTest, AHostThatIsBackGetsItsRanksAgain) {
  const pid_t launcher = start_job({"--hosts", "a,b:2", "--elastic", "1:3", "--restart", "3"});
  pids_in("pids", 3);
  for (int round = 0; round < 2; ++round) {  // the second is beyond the budget
    lose("b", false);
    await_said(round == 0 ? "free slots for ranks 1, 2;" : "free slots for ranks 1.1;");
    set_reachable("b", true);
    pids_in("pids", round == 0 ? 5 : 6);
  }
  const Outcome outcome = end(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("host b is there again"),
                                 HasSubstr("rank 1.1 is started in its place on host b; 2 re"),
                                 HasSubstr("rank 1.2 is started in its place on host b; 0 re")));
}

TEST_F(LostHostsTest, TheRanksOfTheLaunchersOwnHostAreStartedAgainThere) {
  char own[256] = {};
  gethostname(own, sizeof own - 1);
  const pid_t launcher =
      start_job({"--hosts", std::string(own) + ",b", "--elastic", "1:2", "--restart", "1"});
  pids_in("pids", 2);
  kill(pids_in("local_agent", 1).at(0), SIGKILL);
  pids_in("pids", 3);
  const Outcome outcome = end(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("and its ranks with it (ranks 0); 1 go on"),
                    HasSubstr(fmt::format("rank 0.1 is started in its place on host {}", own))));
}

TEST_F(LostHostsTest, TheNextSpareHostTakesThePlaceOfOneThatCannotBeReached) {
  const pid_t launcher = start_job({"--hosts", "a,b,c,d", "--elastic", "2:2", "--restart", "1"});
  pids_in("pids", 2);
  set_reachable("c", false);
  lose("b", false);
  pids_in("pids", 3);
  const Outcome outcome = end(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(read("started"), ContainsRegex("new d 0/1 a:[0-9]+,d:[0-9]+\n"));
  EXPECT_THAT(outcome.err, HasSubstr("host c cannot be used: ssh exited with status 255"));
}

TEST_F(LostHostsTest, WithFewerThanTheLeastAndNoSpareHostTheJobEnds) {
  const pid_t launcher = start_job({"--hosts", "a,b,c", "--elastic", "2:2", "--restart", "1"});
  const auto pids = pids_in("pids", 2);
  set_reachable("c", false);
  lose("b", false);
  const Outcome outcome = wait(launcher);
  EXPECT_EQ(outcome.status, 255);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("host c cannot be used"),
                                 HasSubstr("1 rank is left, and --elastic demands 2")));
  for (const pid_t pid : pids) EXPECT_TRUE(eventually([&] { return has_ended(pid); }));
}

TEST_F(LostHostsTest, AHostThatFallsSilentIsReplaced) {
  const pid_t launcher =
      start_job({"--hosts", "a,b,c", "--elastic", "2:2", "--restart", "1", "--host-timeout", "3"});
  pids_in("pids", 2);
  kill(agent_on("b"), SIGSTOP);
  pids_in("pids", 3);
  const Outcome outcome = end(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(ContainsRegex("host b is lost: nothing has come from its agent "
                                               "for [0-9]+ s \\(ranks 1\\); 1 go on"),
                                 HasSubstr("rank 1.1 is started in its place on host c")));
}

// A host that is cut off hears of no end: its ranks went on for as long as TCP tried.
TEST_F(LostHostsTest, RanksEndWhereTheirAgentHearsNothingOfTheLauncher) {
  const pid_t launcher = start_job({"--hosts", "a,b", "--elastic", "1:2", "--host-timeout", "3"});
  const auto pids = pids_in("pids", 2);
  kill(launcher, SIGSTOP);
  for (const pid_t pid : pids) EXPECT_TRUE(eventually([&] { return has_ended(pid); }));
  kill(launcher, SIGCONT);
  EXPECT_EQ(wait(launcher).status, 255);
}

// Ranks that the others had gone on without failed the job when they were found to be lost.
TEST_F(LostHostsTest, AHostThatWasLostBeforeTheJobsEndDoesNotFailIt) {
  const pid_t launcher = start_job({"--hosts", "a,b", "--elastic", "1:2", "--host-timeout", "6"});
  pids_in("pids", 2);
  kill(agent_on("b"), SIGSTOP);
  await_said("host b: nothing has come from its agent");
  const Outcome outcome = end(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              ContainsRegex("host b is lost: .* \\(ranks 1\\); the job has ended without them"));
}

TEST_F(LostHostsTest, AHostThatIsLostAtTheEndFailsTheJob) {
  const Outcome outcome = run_script(
      {"--hosts", "a,b", "--elastic", "1:2"},
      fmt::format("[ $ROPEWALK_RANK = 1 ] || exit 0; sleep 0.5; kill -9 $(cat {}); sleep 60",
                  path("ssh_pid.b")));
  EXPECT_EQ(outcome.status, 255);
  EXPECT_THAT(outcome.err, ContainsRegex("host b is lost: .* \\(ranks 1\\)"));
}

}  // namespace
}  // namespace ropewalk::tools
