// A forked child that called its parent's communicator changed its parent's sums; one that merely
// ended waited for 30 s and aborted. In a child every call is an error, and destructors do nothing.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "ropewalk/policies.h"
#include "tests/faults/forked_job.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

void require(bool condition, const char* what) {
  if (!condition) throw Error(ErrorCode::protocol, "test", what);
}

template <class Call>
bool is_refused(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == ErrorCode::invalid_argument &&
           std::string(error.what()).find("forked") != std::string::npos;
  }
  return false;
}

/// All that a rank may have when it forks.
struct Belongings {
  explicit Belongings(Communicator& whole)
      : comm(whole.split(0)), buffer(comm->allocate<float>(1000)), plain(1000, 1.0f) {
    plan = comm->plan(Call::all_reduce(buffer));
    ended = comm->start(Call::all_reduce(plain));
    while (!ended.test()) continue;
    const std::span<float> tensor(plain);
    async.emplace(*comm, 1, 0.5);
    async->synchronize_parameters({&tensor, 1});
  }

  std::unique_ptr<Communicator> comm;
  Buffer<float> buffer;
  std::vector<float> plain;
  Plan plan;
  Work ended;
  std::optional<AsyncEa<float>> async;
};

/// Number of the first call that was not refused; 0: all were.
int call_everything(Belongings& own) {
  Communicator& comm = *own.comm;
  std::vector<float>& data = own.plain;
  const std::span<float> tensor(data);
  const std::function<void()> calls[] = {
      [&] { comm.all_reduce(data); },
      [&] { comm.run(Call::broadcast(data)); },
      [&] { (void)comm.start(Call::all_reduce(data)); },
      [&] { (void)comm.start_group({}); },
      [&] { (void)comm.plan(Call::all_reduce(data)); },
      [&] { comm.barrier(); },
      [&] { (void)comm.allocate<float>(10); },
      [&] { (void)comm.next_sender(std::chrono::milliseconds(1)); },
      [&] { comm.interrupt_next_sender(); },
      [&] { comm.abort("the child"); },
      [&] { (void)comm.split(0); },
      [&] { comm.leave(); },
      [&] { own.plan.run(); },
      [&] { own.plan.start(); },
      [&] { (void)own.plan.test(); },
      [&] { own.plan.wait(); },
      [&] { (void)own.ended.test(); },
      [&] { own.ended.wait(); },
      [&] { (void)own.ended.wait_for(std::chrono::milliseconds(1)); },
      [&] {
        own.async->average_parameters({&tensor, 1});
      },
      [&] {
        own.async->synchronize_center({&tensor, 1});
      },
      [&] { own.async->leave(); },
      [&] { own.async->abort("the child"); },
  };
  int number = 0;
  for (const auto& call : calls) {
    ++number;
    if (!is_refused(call)) return number;
  }
  return 0;
}

void wait_for_child(pid_t child, double limit_s) {
  const double deadline_s = now_s() + limit_s * slowness();
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (now_s() > deadline_s) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      throw Error(ErrorCode::timeout, "test", "the child did not end");
    }
    sleep_s(0.01);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  throw Error(ErrorCode::protocol, "test",
              "the child ended with wait status " + std::to_string(status));
}

class CommunicatorInAForkedChild : public ::testing::TestWithParam<std::string> {
 protected:
  /// Two ranks of which each forks a child that runs `in_child`, while they go on.
  void fork_in_a_job(const std::function<int(Belongings&)>& in_child) {
    Options options;
    options.size = 2;
    options.transport = GetParam();
    const auto body = [&](Communicator& whole) {
      auto own = std::make_unique<Belongings>(whole);
      whole.barrier();
      const pid_t child = fork();
      if (child == 0) {
        const int status = in_child(*own);
        own.reset();
        _exit(status);
      }
      for (int i = 0; i < 200; ++i) {
        std::vector<float> data(i % 2 == 0 ? 4 : 10000, 1.0f);
        own->comm->all_reduce(data);
        require(data.front() == 2 && data.back() == 2, "a sum is wrong");
        for (float& value : own->buffer) value = 1;
        own->plan.run();
        require(own->buffer[999] == 2, "a plan's sum is wrong");
      }
      wait_for_child(child, 20);
      whole.barrier();
    };
    ForkedJob job(2, options, body);
    job.mark();
    for (const Verdict& verdict : job.verdicts(-1, 60)) {
      EXPECT_TRUE(verdict.told) << verdict.text;
      EXPECT_EQ(verdict.code, 0) << verdict.text;
    }
  }
};

TEST_P(CommunicatorInAForkedChild, RefusesEveryCall) {
  fork_in_a_job(call_everything);
}

TEST_P(CommunicatorInAForkedChild, EndsAtOnce) {
  fork_in_a_job([](Belongings&) { return 0; });
}

TEST_P(CommunicatorInAForkedChild, MayMakeItsOwn) {
  fork_in_a_job([](Belongings& own) {
    Options alone;
    alone.rank = 0;
    alone.size = 1;
    const auto comm = Communicator::create(alone);
    comm->all_reduce(own.plain);
    return 0;
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, CommunicatorInAForkedChild,
                         ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing
