#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ropewalk/status.h"
#include "transports/shm/sharing.h"

namespace ropewalk::shm {
namespace {

TEST(MailboxAddress, SurvivesTheJourneyAsText) {
  const MailboxAddress info{3, "shm", 4711, 6, 0x00c0ffee00c0ffee, {{5, 0, 0x3c1}}};
  EXPECT_EQ(info.text(), "shm3:4711:6:00c0ffee00c0ffee:5.0.3c1");
  const MailboxAddress parsed = MailboxAddress::parse(3, "shm", info.text());
  EXPECT_EQ(parsed.rank, 3);
  EXPECT_EQ(parsed.pid, 4711);
  EXPECT_EQ(parsed.doorbell_fd, 6);
  EXPECT_EQ(parsed.nonce, info.nonce);
  EXPECT_EQ(parsed.mailbox, info.mailbox);
}

TEST(MailboxAddress, CarriesEveryWord) {
  MailboxAddress info{0, "ucx/shm", 1, 2, 3, {}};
  EXPECT_EQ(info.text(), "ucx/shm3:1:2:0000000000000003:0");
  info.mailbox.words.fill(~uint64_t{0});
  EXPECT_EQ(MailboxAddress::parse(0, "ucx/shm", info.text()).mailbox, info.mailbox);
}

class BadInfo : public testing::TestWithParam<const char*> {};

TEST_P(BadInfo, IsRefusedByName) {
  try {
    MailboxAddress::parse(7, "shm", GetParam());
    ADD_FAILURE() << "accepted " << GetParam();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::protocol);
    EXPECT_EQ(error.peer(), 7);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BadInfo,
    testing::Values("", "shm3:", "shm1:1:2:0000000000000000:3", "ucx2:1:2:0000000000000000:3",
                    "shm3:1:2:000000000000000:3", "shm3:1:2:00000000000000000:3",
                    "shm3:1:2:000000000000000g:3", "shm3:1:2:-000000000000001:3",
                    "shm3:-1:2:0000000000000000:3", "shm3:0:2:0000000000000000:3",
                    "shm3:1:-2:0000000000000000:3", "shm3:1:0000000000000000:3",
                    "shm3:99999999999:2:0000000000000000:3", "shm3: 1:2:0000000000000000:3",
                    "shm3:1:2:0000000000000000:3\n", "shm3:1:2x:0000000000000000:3",
                    "shm3:1/../1:2:0000000000000000:3", "shm3:1:2:0000000000000000",
                    "shm3:1:2:0000000000000000:", "shm3:1:2:0000000000000000:3.",
                    "shm3:1:2:0000000000000000:.3", "shm3:1:2:0000000000000000:-3",
                    "shm3:1:2:0000000000000000:3g", "shm3:1:2:0000000000000000:10000000000000000",
                    "shm3:1:2:0000000000000000:1.2.3.4.5.6.7.8.9",
                    "shm3:1:2:0000000000000000:3:0"));

/// A child that waits until it is told to end.
class Child {
 public:
  explicit Child(bool dumpable) {
    int ready[2], stop[2];
    if (pipe(ready) != 0 || pipe(stop) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      close(stop[1]);
      if (!dumpable) prctl(PR_SET_DUMPABLE, 0);
      char byte = 1;
      _exit(write(ready[1], &byte, 1) == 1 && read(stop[0], &byte, 1) == 0 ? 0 : 1);
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1) pid_ = -1;
    for (const int fd : {ready[0], ready[1], stop[0]}) close(fd);
    stop_ = UniqueFd(stop[1]);
  }
  ~Child() {
    stop_ = UniqueFd();
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  UniqueFd stop_;
};

Failure failure_of_opening(pid_t pid, int fd) {
  try {
    open_descriptor_of({2, "shm", pid, fd, 0, {}}, fd, "open the mailbox of");
  } catch (const Error& error) {
    return error.failure();
  }
  return {};
}

TEST(OpenDescriptorOf, SaysThatTheProcessIsGone) {
  pid_t dead = 0;
  {
    const Child child(true);
    dead = child.pid();
    EXPECT_EQ(failure_of_opening(dead, 0).code, ErrorCode::ok);
  }
  const Failure failure = failure_of_opening(dead, 0);
  EXPECT_EQ(failure.code, ErrorCode::unavailable);
  EXPECT_EQ(failure.peer, 2);
  EXPECT_NE(failure.reason.find("no such process"), std::string::npos) << failure.text();
  EXPECT_NE(failure.advice.find("ROPEWALK_TRANSPORT=tcp"), std::string::npos);
}

TEST(OpenDescriptorOf, SaysThatTheKernelForbidsIt) {
  const Child child(/*dumpable=*/false);
  // As root the kernel forbids nothing; so another user, in a process of its own, tries.
  const pid_t tester = fork();
  if (tester == 0) {
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(2);
    const Failure failure = failure_of_opening(child.pid(), 0);
    _exit(failure.code == ErrorCode::unavailable &&
                  failure.reason.find("forbids") != std::string::npos
              ? 0
              : 1);
  }
  int status = 0;
  waitpid(tester, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace ropewalk::shm
