// Ranks as processes, killed and stopped for real. No threads in the parent: it forks.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <cstring>

#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// What a child tells the test: once joined (peer -2), then what failure it saw.
struct Note {
  int rank, peer;
  std::array<char, 200> reason;
};

class Ranks {
 public:
  struct Odd {
    int leaving = -1;          // leaves as soon as all have joined
    int leave_late_from = -1;  // this and later ones leave after a second
    int accuser = -1;          // stops; then it finds `accused` lost, and ends at once
    int accused = 5;           // where it is the accuser itself, that aborts
    int impatient = -1;        // gives silent neighbours up after a second; the others after ten
  };
  explicit Ranks(const TestJob& job) : Ranks(job, Odd{}) {}
  Ranks(const TestJob& job, Odd odd) : odd_(odd) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    read_.reset(ends[0]);
    write_.reset(ends[1]);
    for (int rank = 0; rank < job.size; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) _exit(live(job, rank));
      pids_.push_back(pid);
    }
  }
  ~Ranks() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  void signal(int rank, int number) { kill(pids_[static_cast<size_t>(rank)], number); }
  std::optional<Note> next(std::chrono::milliseconds timeout) {
    pollfd p = {read_.get(), POLLIN, 0};
    Note note = {};
    if (poll(&p, 1, static_cast<int>(timeout.count())) != 1) return {};
    if (::read(read_.get(), &note, sizeof note) != ssize_t{sizeof note}) return {};
    return note;
  }
  bool has_gone(int rank) const {
    siginfo_t info;
    const auto pid = static_cast<id_t>(pids_[static_cast<size_t>(rank)]);
    return waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0;
  }
  void await_stopped(int rank) {
    int status = 0;
    ASSERT_GT(waitpid(pids_[static_cast<size_t>(rank)], &status, WUNTRACED), 0);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void await_joined() {
    for (size_t i = 0; i < pids_.size(); ++i) {
      const auto note = next(20s);
      ASSERT_TRUE(note) << "a rank did not join";
      ASSERT_EQ(note->peer, -2) << note->reason.data();
    }
  }

 private:
  void tell(int rank, int peer, const std::string& reason) {
    Note note = {rank, peer, {}};
    std::strncpy(note.reason.data(), reason.c_str(), note.reason.size() - 1);
    [[maybe_unused]] const ssize_t n = ::write(write_.get(), &note, sizeof note);
  }
  int live(const TestJob& job, int rank) {
    try {
      Config config = job.config;
      if (rank == odd_.impatient) config.timeout = 2s;
      const auto world = World::join(job.identity(rank), config, {});
      tell(rank, -2, "joined");
      if (rank == odd_.accuser) {
        ::raise(SIGSTOP);
        const bool aborts = odd_.accused == rank;
        world->monitor().report({aborts ? ErrorCode::aborted : ErrorCode::peer_lost,
                                 "test",
                                 aborts ? "it has aborted" : "it is lost",
                                 {},
                                 rank,
                                 odd_.accused});
        _exit(0);
      }
      const bool leaves_late = odd_.leave_late_from >= 0 && rank >= odd_.leave_late_from;
      if (leaves_late) std::this_thread::sleep_for(1s);
      if (rank == odd_.leaving || leaves_late) {
        world->leave();
        if (leaves_late) tell(rank, -5, "left");
        return 0;
      }
      const Failure* failure = await_failure(world->monitor(), 20'000);
      tell(rank, failure ? failure->peer : -3, failure ? failure->reason : "no failure");
      pause();  // the test ends it
    } catch (const Error& error) {
      tell(rank, -4, error.what());
    }
    return 0;
  }

  const Odd odd_;
  UniqueFd read_, write_;
  std::vector<pid_t> pids_;
};

/// All others must name `culprit` within `limit`.
void expect_culprit(Ranks& ranks, int survivors, int culprit, const char* how,
                    Clock::duration limit) {
  const auto start = Clock::now();
  for (int i = 0; i < survivors; ++i) {
    const auto note = ranks.next(20s);
    ASSERT_TRUE(note) << "a survivor learned nothing";
    EXPECT_EQ(note->peer, culprit) << "rank " << note->rank << ": " << note->reason.data();
    EXPECT_NE(std::strstr(note->reason.data(), how), nullptr) << note->reason.data();
  }
  EXPECT_LT(Clock::now() - start, limit);
}

TEST(Failure, AKilledInnerRankIsNamedByAllWithinASecond) {
  const TestJob job(11);
  Ranks ranks(job);
  ranks.await_joined();
  ranks.signal(1, SIGKILL);
  expect_culprit(ranks, 10, 1, "rank 1 (", 1s);
}

TEST(Failure, AKilledRootIsNamedByAllWithinASecond) {
  const TestJob job(3);
  Ranks ranks(job);
  ranks.await_joined();
  ranks.signal(0, SIGKILL);
  expect_culprit(ranks, 2, 0, "died", 1s);
}

// Whom a rank that had left and gone relayed for was cut off from the others.
TEST(Failure, AKilledRankIsNamedAfterTheRootHasGone) {
  for (const int size : {3, 12}) {
    TestJob job(size);
    job.config.timeout = 1s;  // of the root's leave
    Ranks ranks(job, {.leaving = 0});
    ranks.await_joined();
    ASSERT_TRUE(ranks.has_gone(0));
    std::this_thread::sleep_for(500ms);  // they find another
    ranks.signal(2, SIGKILL);
    expect_culprit(ranks, size - 2, 2, "rank 2 (", 5s);
  }
}

// A root that is killed may take with it that others have left. They are gone, and nobody else can
// tell: those behind it waited for them to the end of the timeout.
TEST(Failure, LeavesThatWereLostWithTheRootAreNotWaitedFor) {
  const TestJob job(7);
  Ranks ranks(job, {.leaving = 0, .leave_late_from = 2});
  ranks.await_joined();
  std::this_thread::sleep_for(300ms);  // all know of the root's
  ranks.signal(0, SIGSTOP);
  ranks.signal(1, SIGKILL);  // had left, for all that the others know
  ranks.signal(0, SIGKILL);
  const auto start = Clock::now();
  for (int i = 0; i < 5; ++i) {
    const auto note = ranks.next(20s);
    ASSERT_TRUE(note) << "a rank still waits";
    EXPECT_EQ(note->peer, -5) << note->reason.data();
  }
  EXPECT_LT(Clock::now() - start, job.config.timeout / 2);
}

// Once it came back it said "rank 0 died", which closed its link before the news was sent.
TEST(Failure, AStoppedRankIsNamedWithinTheTimeoutAndHearsOfItWhenItComesBack) {
  TestJob job(4);
  job.config.timeout = 4s;
  job.config.link_timeout = 400ms;
  Ranks ranks(job);
  ranks.await_joined();
  ranks.signal(2, SIGSTOP);
  expect_culprit(ranks, 3, 2, "stopped, or its host hangs", 4s);
  ranks.signal(2, SIGCONT);
  expect_culprit(ranks, 1, 2, " UTC rank 0 gave rank 2 (", 20s);
}

// Those on the other side of it in the tree heard of it only when they found it silent themselves.
// Meanwhile the others had ended, and were blamed for that.
TEST(Failure, WhatOneKnowsOfAStoppedRankReachesThoseBehindIt) {
  for (const auto& [stopped, impatient] : {std::pair{1, 0}, {1, 12}, {0, 5}, {0, 1}}) {
    TestJob job(20);
    job.config.link_timeout = 400ms;
    Ranks ranks(job, {.impatient = impatient});
    ranks.await_joined();
    ranks.signal(stopped, SIGSTOP);
    const std::string who = fmt::format("rank {} gave rank {} (", impatient, stopped);
    expect_culprit(ranks, 19, stopped, who.c_str(), 8s);
  }
}

// It was blamed itself by those who noticed its end before it had told anybody.
TEST(Failure, WhoEndsAsItHearsOfAFailureIsNotItsCause) {
  for (const int accuser : {1, 9}) {
    const TestJob job(11);
    Ranks ranks(job, {.accuser = accuser});
    ranks.await_joined();
    ranks.await_stopped(accuser);
    ranks.signal(5, SIGSTOP);  // it would say that the accuser died
    ranks.signal(accuser, SIGCONT);
    expect_culprit(ranks, 9, 5, "lost", 5s);
  }
}

TEST(Failure, WhoAbortsAndEndsAtOnceIsSaidToHaveAborted) {
  const TestJob job(11);
  Ranks ranks(job, {.accuser = 9, .accused = 9});
  ranks.await_joined();
  ranks.await_stopped(9);
  ranks.signal(9, SIGCONT);
  expect_culprit(ranks, 10, 9, "aborted", 5s);  // whether it could tell or not
}

// Whom both cut off from the others blamed one of those, who ended.
TEST(Failure, ADeathIsHeardOfBehindAStoppedRank) {
  for (const auto& [killed, stopped] : {std::pair{0, 1}, {5, 1}, {12, 0}, {1, 0}}) {
    TestJob job(20);
    job.config.link_timeout = 400ms;
    Ranks ranks(job);
    ranks.await_joined();
    ranks.signal(stopped, SIGSTOP);
    ranks.signal(killed, SIGKILL);
    const std::string who = fmt::format("rank {} (", killed);
    expect_culprit(ranks, 18, killed, who.c_str(), 8s);
  }
}

}  // namespace
}  // namespace ropewalk::bootstrap
