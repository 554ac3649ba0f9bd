#include "tests/faults/forked_job.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "memory/memfd.h"
#include "tests/local_world.h"
#include "tests/support/sanitized.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {

/// At most PIPE_BUF bytes: written at once.
struct ForkedJob::Message {
  double at_s = 0;
  int peer = -1;
  int code = 0;
  char kind = 0;  // 'j': joined, 'v': the verdict
  char text[500] = {};
};

double now_s() {
  return static_cast<double>(MonotonicClock().now_ns()) / 1e9;
}

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

std::vector<std::string> transports_of_jobs() {
  auto transports = transports_under_test();
  if (transports.size() > 1 && !kHasThreadSanitizer) transports.emplace_back(kMixed);
  return transports;
}

namespace {

/// A new user namespace, held open.
int new_user_namespace() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::unshare(CLONE_NEWUSER) != 0) ::_exit(1);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, WUNTRACED);
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/user";
  const int fd = WIFSTOPPED(status) ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : -1;
  if (WIFSTOPPED(status)) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  if (fd < 0) throw Error(ErrorCode::system, "test", "no user namespaces here");
  return fd;
}

}  // namespace

ForkedJob::ForkedJob(int ranks, const Options& options,
                     const std::function<void(Communicator&)>& body) {
  listener_ = listen_on_loopback(coordinator_);
  if (options.transport == kMixed) second_host_ = new_user_namespace();
  for (int rank = 0; rank < ranks; ++rank)
    start([&](int pipe_fd) {
      Options own = options;
      own.rank = rank;
      own.coordinator = coordinator_;
      own.key = "test";
      if (rank == 0 || own.elastic.value_or(false)) own.coordinator_fd = listener_;
      enter_host(own, rank);
      run_rank(own, body, pipe_fd);
    });
  if (!options.elastic.value_or(false)) ::close(std::exchange(listener_, -1));
  for (int fd : pipes_) {
    Message message;
    pollfd wait{fd, POLLIN, 0};
    if (::poll(&wait, 1, 20'000) != 1 || ::read(fd, &message, sizeof(message)) <= 0 ||
        message.kind != 'j')
      throw Error(ErrorCode::system, "test", std::string("a rank did not join: ") + message.text);
  }
}

void ForkedJob::start(const std::function<void(int pipe_fd)>& run) {
  int ends[2];
  if (::pipe(ends) != 0) throw Error(ErrorCode::system, "test", "pipe failed");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int fd : pipes_) ::close(fd);
    ::close(ends[0]);
    run(ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  pids_.push_back(pid);
  pipes_.push_back(ends[0]);
}

void ForkedJob::enter_host(Options& options, int number) const {
  if (second_host_ < 0) return;
  options.transport = "auto";
  if (number % 2 != 0 && ::setns(second_host_, CLONE_NEWUSER) != 0) ::_exit(1);
}

int ForkedJob::add_newcomer(const Options& options,
                            const std::function<void(Communicator&)>& body) {
  start([&](int pipe_fd) {
    Options own = options;
    own.coordinator = coordinator_;
    own.key = "test";
    own.coordinator_fd = listener_;
    own.join_running = true;
    enter_host(own, static_cast<int>(pids_.size()));
    run_rank(own, body, pipe_fd);
  });
  return static_cast<int>(pids_.size()) - 1;
}

ForkedJob::~ForkedJob() {
  for (pid_t pid : pids_) ::kill(pid, SIGKILL);
  for (pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
  for (int fd : pipes_) ::close(fd);
  if (listener_ >= 0) ::close(listener_);
  if (second_host_ >= 0) ::close(second_host_);
}

void ForkedJob::run_rank(const Options& options, const std::function<void(Communicator&)>& body,
                         int pipe_fd) {
  const auto tell = [&](char kind, const Error* error) {
    Message message;
    message.at_s = now_s();
    message.kind = kind;
    if (error != nullptr) {
      message.peer = error->peer();
      message.code = static_cast<int>(error->code());
      std::strncpy(message.text, error->what(), sizeof(message.text) - 1);
    }
    [[maybe_unused]] const ssize_t written = ::write(pipe_fd, &message, sizeof(message));
  };
  try {
    const auto comm = Communicator::create(options);
    tell('j', nullptr);
    try {
      body(*comm);
      tell('v', nullptr);
    } catch (const Error& error) {
      tell('v', &error);
    }
  } catch (const Error& error) {
    tell('e', &error);
  } catch (const std::exception& exception) {  // or this process would run the tests that follow
    const Error error(ErrorCode::system, "test", exception.what());
    tell('v', &error);
  }
}

void ForkedJob::signal(int rank, int number) const {
  ::kill(pid(rank), number);
}

double ForkedJob::closed_after_s(int rank) const {
  pollfd pipe{pipes_[static_cast<size_t>(rank)], POLLIN, 0};
  ::poll(&pipe, 1, 60'000);
  return now_s() - marked_s_;
}

void ForkedJob::mark() {
  marked_s_ = now_s();
}

/// Of a rank that has closed its pipe.
std::string ForkedJob::end_of(size_t rank) const {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pids_[rank]), &info, WEXITED | WNOWAIT) != 0)
    return "it cannot be waited for";
  if (info.si_code == CLD_EXITED) return "it exited with " + std::to_string(info.si_status);
  return std::string("it died without a word: ") + ::strsignal(info.si_status);
}

std::vector<Verdict> ForkedJob::verdicts(int except, double limit_s) {
  const double end_s = now_s() + limit_s;
  std::vector<Verdict> verdicts(pids_.size());
  for (size_t rank = 0; rank < pids_.size(); ++rank) {
    if (static_cast<int>(rank) == except) continue;
    pollfd wait{pipes_[rank], POLLIN, 0};
    Message message;
    do {  // a newcomer may not have told yet that it has joined
      const int left_ms = std::max(0, static_cast<int>((end_s - now_s()) * 1000));
      message.kind = 0;
      if (::poll(&wait, 1, left_ms) != 1)
        verdicts[rank].text = "it hangs";
      else if (::read(pipes_[rank], &message, sizeof(message)) <= 0)
        verdicts[rank].text = end_of(rank);
      else
        verdicts[rank] = {true, message.peer, message.code, message.at_s - marked_s_, message.text};
    } while (message.kind == 'j');
  }
  return verdicts;
}

void expect_success(const std::vector<Verdict>& verdicts, const std::vector<int>& except) {
  for (int rank = 0; rank < static_cast<int>(verdicts.size()); ++rank) {
    if (std::ranges::count(except, rank) != 0) continue;
    const Verdict& verdict = verdicts[static_cast<size_t>(rank)];
    EXPECT_TRUE(verdict.told && verdict.code == 0) << "rank " << rank << ": " << verdict.text;
  }
}

void expect_named(const std::vector<Verdict>& verdicts, int victim, double limit_s) {
  for (int rank = 0; rank < static_cast<int>(verdicts.size()); ++rank) {
    if (rank == victim) continue;
    const Verdict& verdict = verdicts[static_cast<size_t>(rank)];
    ASSERT_TRUE(verdict.told) << "rank " << rank << ": " << verdict.text;
    EXPECT_EQ(verdict.peer, victim) << "rank " << rank << ": " << verdict.text;
    EXPECT_EQ(verdict.code, static_cast<int>(ErrorCode::peer_lost)) << verdict.text;
    EXPECT_LT(verdict.after_s, limit_s * slowness()) << verdict.text;
  }
}

void reduce_for_ever(Communicator& comm) {
  auto large = comm.allocate<float>(300'000);
  auto small = comm.allocate<float>(16);
  while (true) {
    comm.all_reduce(large.span());
    comm.all_reduce(small.span());
    comm.all_reduce(std::span<float>(large.data(), 5000));
    for (float& x : large) x = 1;
  }
}

void map_much() {
  constexpr size_t kBytes = size_t{64} << 20, kTimes = 64;
  const UniqueFd file = create_memfd("test", "much", kBytes);
  for (size_t i = 0; i < kTimes; ++i) {
    void* const at =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
    require(at != MAP_FAILED, "cannot map much");
  }
}

}  // namespace ropewalk::testing
