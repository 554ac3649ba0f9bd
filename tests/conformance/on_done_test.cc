// Work::on_done: who is told of an operation's end, when, and what it may do then.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <future>
#include <latch>
#include <mutex>
#include <thread>

#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

using namespace std::chrono_literals;
constexpr auto kLong = 30s;

class OnDone : public ::testing::TestWithParam<std::string> {};

/// Holds what `done` got, and fails the test where it is called twice.
class Told {
 public:
  auto callback() {
    return [this](const Failure* failure) {
      promise_.set_value(failure == nullptr ? ErrorCode::ok : failure->code);
    };
  }
  /// Nobody waits for the operation meanwhile.
  ErrorCode code() {
    if (future_.wait_for(kLong) != std::future_status::ready) return ErrorCode::timeout;
    return future_.get();
  }

 private:
  std::promise<ErrorCode> promise_;
  std::future<ErrorCode> future_ = promise_.get_future();
};

Call receive(std::array<float, 1>& data, Communicator& comm) {
  return Call::recv(data, 1 - comm.rank());
}

TEST_P(OnDone, IsToldWhileNobodyWaits) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    for (const size_t count : {size_t{1}, size_t{100'000}}) {
      std::vector<float> data(count, 1);
      Told told;
      Work work = comm.start(Call::all_reduce(data));
      work.on_done(told.callback());
      EXPECT_EQ(told.code(), ErrorCode::ok);
      EXPECT_EQ(data.front(), 3);
      EXPECT_EQ(data.back(), 3);
      EXPECT_TRUE(work.test());
    }
  });
}

TEST_P(OnDone, IsToldAtOnceOfWhatHasEnded) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::array<float, 1> data{1};
    Work work = comm.start(Call::all_reduce(data));
    work.wait();
    int called = 0;
    const auto done = [&, self = std::this_thread::get_id()](const Failure* failure) {
      EXPECT_EQ(failure, nullptr);
      EXPECT_EQ(std::this_thread::get_id(), self);
      ++called;
    };
    work.on_done(done);
    work.on_done(done);
    EXPECT_EQ(called, 2);
    Work nothing = comm.start_group({});
    nothing.on_done(done);
    EXPECT_EQ(called, 3);
  });
}

TEST_P(OnDone, MayCallAndWait) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<float> first(8, 1), second(100'000, 2);
    Told told;
    Work work = comm.start(Call::all_reduce(first));
    work.on_done([&, done = told.callback()](const Failure* failure) {
      comm.all_reduce(second);
      done(failure);
    });
    EXPECT_EQ(told.code(), ErrorCode::ok);
    EXPECT_EQ(second.back(), 4);
  });
}

TEST_P(OnDone, HoldsUpNobodyElse) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<float> first(8, 1), second(100'000, 2);
    Told told_first, told_second;
    Work works[] = {comm.start(Call::all_reduce(first)), comm.start(Call::all_reduce(second))};
    works[1].on_done(told_second.callback());
    works[0].on_done([&, done = told_first.callback()](const Failure*) {
      EXPECT_EQ(told_second.code(), ErrorCode::ok);
      done(nullptr);
    });
    EXPECT_EQ(told_first.code(), ErrorCode::ok);
  });
}

/// The waiting thread may hold a lock that `done` takes.
TEST_P(OnDone, DoesNotRunInAThreadThatWaitsForAnother) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<float> first(8, 1), second(100'000, 2);
    if (comm.rank() == 1) std::this_thread::sleep_for(100ms);
    Told told;
    std::mutex mutex;
    Work work = comm.start(Call::all_reduce(first));
    {
      std::unique_lock lock(mutex);
      const auto done = [&, done = told.callback()](const Failure* failure) {
        { std::lock_guard same(mutex); }
        done(failure);  // the mutex may go now
      };
      if (comm.rank() == 0) work.on_done(done);
      comm.all_reduce(second);
    }
    if (comm.rank() == 0) {
      EXPECT_EQ(told.code(), ErrorCode::ok);
    }
  });
}

TEST_P(OnDone, MayLeave) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    if (comm.rank() == 1) std::this_thread::sleep_for(100ms);
    auto part = comm.split(0);
    std::vector<float> data(100'000, 1);
    Told told;
    Work work = part->start(Call::all_reduce(data));
    work.on_done([&, done = told.callback()](const Failure* failure) {
      part.reset();
      done(failure);
    });
    EXPECT_EQ(told.code(), ErrorCode::ok);
    EXPECT_EQ(part, nullptr);
  });
}

TEST_P(OnDone, NeedsNoProgressThreadToBeAskedFor) {
  const auto body = [](Communicator& comm) {
    std::vector<float> data(100'000, 1);
    Told told;
    Work work = comm.start(Call::all_reduce(data));
    work.on_done(told.callback());
    EXPECT_EQ(told.code(), ErrorCode::ok);
  };
  run_ranks(2, GetParam(), body, [](int, Options& options) { options.progress_thread = false; });
}

/// Each may wait for another's.
TEST_P(OnDone, IsToldInThreadsOfTheirOwnWhenThisRankLeaves) {
  std::latch both_leave(2);  // who is late would be told that the other has left
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    std::array<float, 1> data[2] = {};
    Told told[2];
    Work works[] = {comm.start(receive(data[0], comm)), comm.start(receive(data[1], comm))};
    for (const int i : {0, 1})
      works[i].on_done([&, i, done = told[i].callback()](const Failure* failure) {
        if (i == 0) {
          EXPECT_EQ(told[1].code(), ErrorCode::invalid_argument);
        }
        done(failure);
      });
    both_leave.arrive_and_wait();
    comm.leave();
    EXPECT_EQ(told[0].code(), ErrorCode::invalid_argument);
  });
}

TEST_P(OnDone, IsToldOfAFailure) {
  std::promise<void> waits;
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    std::array<float, 1> data{};
    Told told;
    if (comm.rank() == 0) {
      Work work = comm.start(receive(data, comm));
      work.on_done(told.callback());
      waits.set_value();
      EXPECT_EQ(told.code(), ErrorCode::aborted);
      EXPECT_THROW(work.wait(), Error);
      EXPECT_THROW(work.wait(), Error);
      Told late;
      work.on_done(late.callback());
      EXPECT_EQ(late.code(), ErrorCode::aborted);
    } else {
      waits.get_future().wait();
      comm.abort("enough");
    }
  });
}

TEST_P(OnDone, IsToldOfTheDeadline) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::array<float, 1> data{};
    Told told;
    Work work = comm.start(receive(data, comm));
    work.on_done(told.callback(), 100ms);
    EXPECT_EQ(told.code(), ErrorCode::timeout);
    EXPECT_THROW(comm.barrier(), Error);
  });
}

TEST_P(OnDone, LeavesTheDeadlineToAThreadThatWaits) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::array<float, 1> data{1};
    if (comm.rank() == 0) {
      Told told;
      Work work = comm.start(receive(data, comm));
      work.on_done(told.callback(), 50ms);
      work.wait(kLong);
      EXPECT_EQ(told.code(), ErrorCode::ok);
    } else {
      std::this_thread::sleep_for(200ms);
      comm.send(data, 0);
    }
  });
}

TEST_P(OnDone, IsToldThatThisRankLeaves) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::array<float, 1> data{};
    Told told;
    Work work = comm.start(receive(data, comm));
    work.on_done(told.callback());
    comm.leave();
    EXPECT_EQ(told.code(), ErrorCode::invalid_argument);
  });
}

TEST_P(OnDone, LetsAWorkBeWaitedForByManyAndAgain) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<float> data(100'000, 1);
    Work work = comm.start(Call::all_reduce(data));
    auto other = std::async(std::launch::async, [&] { work.wait(); });
    work.wait();
    work.wait();
    other.get();
    EXPECT_TRUE(work.test());
    EXPECT_EQ(data.back(), 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, OnDone, ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing
