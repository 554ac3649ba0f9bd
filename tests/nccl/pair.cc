#include "tests/nccl/pair.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "base/unique_fd.h"

namespace ropewalk::testing {

void Side::tell(const void* data, size_t bytes) const {
  ASSERT_EQ(::send(fd, data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
}

void Side::hear(void* data, size_t bytes) const {
  ASSERT_EQ(::recv(fd, data, bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
}

void Side::meet() const {
  char byte = 0;
  tell(&byte, 1);
  hear(&byte, 1);
}

namespace {

int fork_role(int version, const Role& role, const std::function<void()>& prepare, UniqueFd mine,
              UniqueFd& other) {
  const int child = ::fork();
  if (child != 0) return child;
  other.reset();
  try {
    prepare();
    Net net(version);
    EXPECT_EQ(net.init_result(), Result::success) << Net::warnings();
    Side side{.net = net, .fd = mine.get()};
    role(side);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  std::fflush(nullptr);
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

Pair::Pair(int version, const Role& sender, const Role& receiver,
           const std::function<void(bool)>& prepare) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw std::runtime_error("socketpair");
  UniqueFd first(ends[0]), second(ends[1]);
  std::fflush(nullptr);
  const auto prepare_as = [&](bool is_sender) {
    return [&prepare, is_sender] {
      if (prepare) prepare(is_sender);
    };
  };
  // Each keeps its own end alone, so that it hears of the other's.
  children_.push_back(
      fork_role(version, sender, prepare_as(true), UniqueFd(::dup(first.get())), second));
  first.reset();
  children_.push_back(
      fork_role(version, receiver, prepare_as(false), UniqueFd(::dup(second.get())), first));
}

Pair::~Pair() {
  join();
}

void Pair::kill_child(size_t number) {
  killed_ = number;
  ::kill(children_[number], SIGKILL);
}

void Pair::join() {
  for (size_t number = 0; number < children_.size(); ++number) {
    if (children_[number] == 0) continue;
    int status = 0;
    ASSERT_EQ(::waitpid(children_[number], &status, 0), children_[number]);
    children_[number] = 0;
    if (number == killed_) continue;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << (number == 0 ? "the sender" : "the receiver") << " ended with status " << status;
  }
}

void link_sender(Side& side) {
  Handle handle;
  side.hear(handle.data(), handle.size());
  side.comm = side.net.connect_now(handle);
  ASSERT_NE(side.comm, nullptr);
}

void link_receiver(Side& side) {
  Handle handle;
  void* listen_comm = nullptr;
  ASSERT_EQ(side.net.listen(0, handle.data(), &listen_comm), Result::success) << Net::warnings();
  side.tell(handle.data(), handle.size());
  side.comm = side.net.accept_now(listen_comm);
  ASSERT_NE(side.comm, nullptr);
  // As NCCL does: what is connected needs no listener.
  EXPECT_EQ(side.net.calls().close_listen(listen_comm), Result::success);
}

void run_linked(int version, const Role& sender, const Role& receiver) {
  Pair pair(
      version,
      [&](Side& side) {
        ASSERT_NO_FATAL_FAILURE(link_sender(side));
        sender(side);
        EXPECT_EQ(side.net.calls().close_send(side.comm), Result::success);
      },
      [&](Side& side) {
        ASSERT_NO_FATAL_FAILURE(link_receiver(side));
        receiver(side);
        EXPECT_EQ(side.net.calls().close_receive(side.comm), Result::success);
      });
  pair.join();
}

}  // namespace ropewalk::testing
