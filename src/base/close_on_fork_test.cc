#include "base/close_on_fork.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace ropewalk {
namespace {

UniqueFd opened() {
  return UniqueFd(::open("/dev/null", O_RDONLY));
}

bool child_has(int fd) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(::fcntl(fd, F_GETFD) >= 0 ? 1 : 0);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WEXITSTATUS(status) == 1;
}

TEST(CloseOnFork, OnlyWhatIsNamedAndOnlyInChildren) {
  const UniqueFd named = opened(), other = opened();
  close_on_fork(named.get());
  EXPECT_FALSE(child_has(named.get()));
  EXPECT_TRUE(child_has(other.get()));
  EXPECT_GE(::fcntl(named.get(), F_GETFD), 0);
}

TEST(CloseOnFork, GoesWithTheDescriptorAndNotWithItsNumber) {
  UniqueFd first = opened();
  const int number = first.get();
  close_on_fork(number);
  UniqueFd moved = std::move(first);
  EXPECT_FALSE(child_has(number));
  moved.reset();
  const UniqueFd next = opened();
  ASSERT_EQ(next.get(), number);
  EXPECT_TRUE(child_has(number));
}

TEST(CloseOnFork, NothingWhereThereIsNoDescriptor) {
  close_on_fork(-1);
  close_on_fork(1 << 30);
  EXPECT_TRUE(child_has(0));
}

}  // namespace
}  // namespace ropewalk
