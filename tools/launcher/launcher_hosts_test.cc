// Jobs on several hosts.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <fstream>

#include "tests/support/sanitized.h"
#include "tools/launcher/launcher_fixture.h"

namespace ropewalk::tools {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST_F(HostsTest, RanksAreSpreadInOrderWithLocalRanks) {
  const Outcome outcome =
      run_script({"--hosts", "a:2,user@b:1"},
                 "echo $HOSTNAME_SEEN $ROPEWALK_RANK/$ROPEWALK_SIZE "
                 "$ROPEWALK_LOCAL_RANK/$ROPEWALK_LOCAL_SIZE ${ROPEWALK_COORDINATOR%:*}");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("[0] a 0/3 0/2 a\n"), HasSubstr("[1] a 1/3 1/2 a\n"),
                                 HasSubstr("[2] user@b 2/3 0/1 a\n")));
}

TEST_F(HostsTest, AllRanksGetOneCoordinatorAndRankZeroItsSocket) {
  const Outcome outcome = run_script({"--hosts", "a,b", "--no-prefix"},
                                     "echo $ROPEWALK_COORDINATOR;"
                                     "[ -z \"$ROPEWALK_COORDINATOR_FD\" ] || "
                                     "readlink /proc/self/fd/$ROPEWALK_COORDINATOR_FD");
  const std::string coordinator = outcome.out.substr(outcome.out.find("a:"), 6);
  EXPECT_NE(outcome.out.find(coordinator), outcome.out.rfind(coordinator)) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("socket:"));
}

TEST_F(HostsTest, TheKeyIsTheSameEverywhereAndOnNoCommandLine) {
  environment_.push_back("ROPEWALK_JOB_KEY=secret-of-this-job");
  const Outcome outcome =
      run_script({"--hosts", "a,b"}, "echo $ROPEWALK_JOB_KEY; cat " + path("calls") +
                                         " /proc/$PPID/cmdline | tr '\\0' ' '");
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("[0] secret-of-this-job\n"), HasSubstr("[1] secret-of-this-job\n")));
  EXPECT_THAT(read("calls"), AllOf(HasSubstr("run-agent"), Not(HasSubstr("secret"))));
}

TEST_F(HostsTest, VariablesAndWorkdirTravelAndWordsAreKept) {
  environment_.push_back("ROPEWALK_LOG=debug");
  const Outcome outcome =
      run({"--hosts", "a", "-x", "WORDS=it's \"$HOME\"", "--", "sh", "-c",
           "echo $ROPEWALK_LOG; pwd; echo \"$WORDS\"; printf '<%s>' \"$@\"", "sh", "a  b", "'$x'"});
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("[0] debug\n"), HasSubstr("[0] it's \"$HOME\"\n"),
                                 HasSubstr("[0] <a  b><'$x'>\n"), Not(HasSubstr("[0] /\n"))));
}

TEST_F(HostsTest, StandardInputReachesRankZeroThroughSsh) {
  std::string input;
  for (int i = 0; i < 50000; ++i) input += "line of input\n";
  const Outcome outcome = run_script({"--hosts", "a,b"}, "wc -c", input);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("[0] 700000\n"), HasSubstr("[1] 0\n")));
}

TEST_F(HostsTest, TheEndOfALargeOutputIsNotLostOnItsWayThroughSsh) {
  for (int run = 0; run < (kIsSanitized ? 1 : 3); ++run) {
    const Outcome outcome = run_script({"--hosts", "a,b"}, "yes '' | head -c 1000000");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2000000);
  }
}

TEST_F(HostsTest, AFailureNamesTheHost) {
  const Outcome outcome =
      run_script({"--hosts", "a,b"}, "[ $ROPEWALK_RANK = 0 ] && exit 0; sleep 0.1; exit 6");
  EXPECT_EQ(outcome.status, 6);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("rank 1 (pid "), HasSubstr(", host b) exited")));
}

TEST_F(HostsTest, KillingTheLauncherEndsRemoteRanks) {
  const pid_t launcher = start({"--hosts", "a,b", "--", "sh", "-c",
                                "setsid sleep 62 & echo $! >> " + path("pids") + "; echo $$ >> " +
                                    path("pids") + "; sleep 60"});
  const auto pids = pids_in("pids", 4);
  kill(launcher, SIGKILL);
  wait(launcher);
  for (const pid_t pid : pids) EXPECT_TRUE(eventually([&] { return has_ended(pid); }));
}

TEST_F(HostsTest, ALostConnectionEndsTheJobAndTheRanksBehindIt) {
  // What comes in passes through a `cat`: killing it cuts the line.
  make_ssh("while [ \"$1\" != -- ]; do shift; done\nmkfifo " + path("in.$$") +
           "; exec 3<&0; cat <&3 > " + path("in.$$") + " & echo $! >> " + path("ssh_pids") +
           "; sh -c \"$2\" 3<&- < " + path("in.$$") + "\nexit 255\n");
  const pid_t launcher =
      start({"--hosts", "a,b", "--", "sh", "-c", "echo $$ >> " + path("pids") + "; sleep 60"});
  const auto pids = pids_in("pids", 2);
  const auto ssh_pids = pids_in("ssh_pids", 2);
  kill(ssh_pids[0], SIGKILL);
  const Outcome outcome = wait(launcher);
  EXPECT_EQ(outcome.status, 255);
  EXPECT_THAT(outcome.err, HasSubstr("is lost: ssh exited with status 255"));
  for (const pid_t pid : pids) EXPECT_TRUE(eventually([&] { return has_ended(pid); }));
}

// A newcomer found no job once the first host had gone.
TEST_F(HostsTest, ANewcomerIsToldTheListenersOfAllHosts) {
  const Outcome outcome =
      run_script({"--hosts", "a,b", "--elastic", "1:2", "--restart", "1"},
                 "cd " + path(".") +
                     "; case ${ROPEWALK_RANK-again} in"
                     " 0) until [ -e joined ]; do sleep 0.01; done;;"
                     " 1) exit 1;;"
                     " again) echo $ROPEWALK_COORDINATOR; echo >/proc/self/fd/$ROPEWALK_JOINED_FD;"
                     " touch joined;; esac");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ContainsRegex("^\\[1.1\\] a:[0-9]+,b:[0-9]+\n$"));
}

// Only ssh's end told of a host that was lost, and ssh waits for hours.
TEST_F(HostsTest, AHostThatFallsSilentIsNamed) {
  const Outcome outcome = run_script({"--hosts", "a,b", "--grace", "1"},
                                     "[ $ROPEWALK_RANK = 0 ] || kill -STOP $PPID; sleep 60");
  EXPECT_EQ(outcome.status, 255);
  EXPECT_THAT(outcome.err,
              AllOf(ContainsRegex("host b: nothing has come from its agent for [0-9]+ s; is it up"),
                    ContainsRegex("host b is lost: nothing has come from its agent for [0-9]+ s")));
}

TEST_F(HostsTest, AHostThatSaysNothingForLongIsNotLost) {
  const Outcome outcome = run_script({"--hosts", "a,b"}, "sleep 10");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_F(HostsTest, AHostThatCannotBeReachedEndsTheJobWithAdvice) {
  make_ssh("echo 'ssh: connect to host nowhere: No route to host' >&2; exit 255\n");
  const Outcome outcome = run({"--hosts", "nowhere:2", "true"});
  EXPECT_EQ(outcome.status, 255);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("No route to host"), HasSubstr("host nowhere is lost"),
                                 HasSubstr("try: ssh -o BatchMode=yes nowhere true")));
}

TEST_F(HostsTest, AHostWithoutRopewalkSaysHowToPointAtIt) {
  const Outcome outcome = run({"--hosts", "a", "--remote-ropewalk", "/no/ropewalk", "true"});
  EXPECT_EQ(outcome.status, 255);
  EXPECT_THAT(outcome.err, HasSubstr("--remote-ropewalk"));
}

TEST_F(HostsTest, BadHostListsAreRefusedBeforeAnythingStarts) {
  for (const char* hosts : {"", "a:0", "a:x", "a,,b", "-oProxyCommand=x", "a:1:2", "a b"}) {
    const Outcome outcome = run({"--hosts", hosts, "true"});
    EXPECT_EQ(outcome.status, 2) << hosts;
  }
  EXPECT_EQ(read("calls"), "");
}

}  // namespace
}  // namespace ropewalk::tools
