// No byte of output is lost but with its reader, and then it is told.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "tests/support/sanitized.h"
#include "tools/launcher/launcher_fixture.h"

namespace ropewalk::tools {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class OutputTest : public LauncherTest {
 protected:
  /// The launcher's standard output is a pipe, whose reading end is `reader_`.
  pid_t start_with_pipe(const std::vector<std::string>& arguments, int pipe_bytes = 0) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reader_ = UniqueFd(ends[0]);
    if (pipe_bytes > 0) fcntl(ends[0], F_SETPIPE_SZ, pipe_bytes);
    const UniqueFd writer(ends[1]);
    stdout_fd_ = writer.get();
    return start(arguments);
  }
  std::string read_pipe(size_t bytes_max = ~size_t{0}) {
    std::string text;
    char bytes[64 << 10];
    for (ssize_t n;
         text.size() < bytes_max && (n = ::read(reader_.get(), bytes, sizeof bytes)) > 0;) {
      text.append(bytes, static_cast<size_t>(n));
    }
    return text;
  }
  bool has_said(const std::string& text) {
    return eventually([&] { return read("stderr").find(text) != std::string::npos; });
  }

  UniqueFd reader_;
};

int64_t lines_in(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

TEST_F(OutputTest, TheEndOfALargeOutputIsNotLost) {
  for (int run = 0; run < (kIsSanitized ? 3 : 10); ++run) {
    const Outcome outcome = run_script({"-n", "1"}, "yes '' | head -c 1000000");
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(lines_in(outcome.out), 1000000);
  }
  EXPECT_EQ(lines_in(run_script({"-n", "2"}, "seq 500000 >&2").err), 1000000);
}

TEST_F(OutputTest, WhatARankLeavesBehindStillPrintsToASlowReader) {
  const pid_t launcher = start_with_pipe({"-n", "1", "--", "sh", "-c", "seq 500000 & exit 0"});
  std::this_thread::sleep_for(milliseconds(1000));
  EXPECT_EQ(lines_in(read_pipe()), 500000);
  EXPECT_EQ(wait(launcher).status, 0);
}

TEST_F(OutputTest, WhatARankLeavesBehindMayPrintLate) {
  EXPECT_EQ(run_script({"-n", "1", "--grace", "20"}, "(sleep 1; echo late) & exit 0").out,
            "[0] late\n");
}

TEST_F(OutputTest, WhatIsLeftBehindAndEndedWhileItCouldPrintIsTold) {
  const Outcome outcome = run_script({"-n", "2", "--grace", "0.3"},
                                     "[ $ROPEWALK_RANK = 0 ] || (sleep 60; echo late) & exit 0");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("processes that ranks 1 had left"), HasSubstr("--grace")));
}

TEST_F(OutputTest, AFailureIsNoticedWhileTheReaderStandsStill) {
  const pid_t launcher =
      start_with_pipe({"-n", "2", "--grace", "0.2", "--", "sh", "-c",
                       "if [ $ROPEWALK_RANK = 0 ]; then exec yes; fi; sleep 1; exit 3"});
  EXPECT_TRUE(has_said("exited with status 3"));
  EXPECT_TRUE(has_said("still running: ranks 0"));
  read_pipe();
  EXPECT_EQ(wait(launcher).status, 3);
}

// The status of a process: "VmHWM", its largest resident memory, in KiB.
long peak_kib(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string word; file >> word;) {
    long kib = 0;
    if (word == "VmHWM:" && file >> kib) return kib;
  }
  return -1;
}

TEST_F(OutputTest, TheAgentKeepsNoOutputThatItHasSent) {
  const pid_t launcher = start_with_pipe({"-n", "1", "--", "yes", std::string(80, 'x')});
  for (int i = 0; i < 1500; ++i) {  // more slowly than it comes
    read_pipe(64 << 10);
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  if (!kIsSanitized) {  // AddressSanitizer keeps what was freed for a while
    EXPECT_LT(peak_kib(agent_of(launcher)), 32 << 10);
    EXPECT_LT(peak_kib(launcher), 64 << 10);
  }
  reader_.reset();
  wait(launcher);
}

TEST_F(OutputTest, AClosedOutputEndsTheJobAndTheLossIsTold) {
  const pid_t launcher =
      start_with_pipe({"-n", "1", "--", "sh", "-c", "echo $$ > " + path("pids") + "; exec yes"});
  const auto pids = pids_in("pids", 1);
  reader_.reset();
  const Outcome outcome = wait(launcher);
  EXPECT_EQ(outcome.status, 128 + SIGPIPE);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("standard output was closed"),
                                 HasSubstr("bytes of standard output were lost")));
  EXPECT_TRUE(eventually([&] { return has_ended(pids[0]); }));
}

TEST_F(OutputTest, AReaderThatHasStoppedReadingDoesNotHoldTheEndUp) {
  constexpr int kPipeBytes = 4096;
  const pid_t launcher = start_with_pipe(
      {"-n", "1", "--", "sh", "-c", "echo $$ > " + path("pids") + "; exec yes"}, kPipeBytes);
  const auto pids = pids_in("pids", 1);
  EXPECT_TRUE(eventually([&] {
    int bytes = 0;
    return ioctl(reader_.get(), FIONREAD, &bytes) == 0 && bytes >= kPipeBytes;
  }));
  kill(launcher, SIGTERM);
  const Outcome outcome = wait(launcher);
  EXPECT_EQ(outcome.status, 128 + SIGTERM);
  EXPECT_THAT(outcome.err, HasSubstr("bytes of standard output were lost"));
  EXPECT_TRUE(eventually([&] { return has_ended(pids[0]); }));
}

TEST_F(OutputTest, AnInterruptAfterTheRanksEndsTheWaitForAReader) {
  const pid_t launcher = start_with_pipe(
      {"-n", "1", "--", "sh", "-c", "seq 100000; echo $$ > " + path("pids") + "; exit 0"});
  const auto pids = pids_in("pids", 1);
  EXPECT_TRUE(eventually([&] { return has_ended(pids[0]); }));
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_FALSE(has_ended(launcher));
  kill(launcher, SIGINT);
  const Outcome outcome = wait(launcher);
  EXPECT_EQ(outcome.status, 128 + SIGINT);
  EXPECT_THAT(outcome.err, HasSubstr("bytes of standard output were lost: its reader did not"));
}

TEST_F(OutputTest, AFullDiskDoesNotEndTheJobAndTheLossIsTold) {
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  stdout_fd_ = full.get();
  const std::string script = "seq 1000; sleep 0.3; echo 'goes on' >&2";
  const Outcome outcome = run_script({"-n", "1"}, script);
  EXPECT_EQ(outcome.status, 74);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("[0] goes on"), HasSubstr("No space left on device"),
                                 HasSubstr(" 7893 bytes of standard output were lost")));
  EXPECT_EQ(run_script({"-n", "1"}, script + "; exit 3").status, 3);
}

TEST_F(OutputTest, AFileThatMayNotGrowDoesNotEndTheJob) {
  before_ = "ulimit -f 8";
  const Outcome outcome = run_script({"-n", "1", "--no-prefix"}, "seq 10000; echo 'goes on' >&2");
  EXPECT_EQ(outcome.status, 74);
  EXPECT_FALSE(outcome.out.empty());
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("goes on"), HasSubstr("File too large"),
                                 HasSubstr("bytes of standard output were lost")));
}

TEST_F(OutputTest, AClosedStandardOutputDoesNotHangTheJob) {
  before_ = "exec >&-";
  const Outcome outcome = run({"-n", "1", "--", "echo", "hello"});
  EXPECT_EQ(outcome.status, 74);
  EXPECT_THAT(outcome.err, HasSubstr("10 bytes of standard output were lost"));
}

TEST_F(OutputTest, WithoutLossNothingIsSaid) {
  EXPECT_THAT(run_script({"-n", "2"}, "seq 100000").err, Not(HasSubstr("ropewalk")));
}

}  // namespace
}  // namespace ropewalk::tools
