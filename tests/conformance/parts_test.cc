// Communicators of some ranks of another one: they share what it has, and nothing that goes wrong.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/local_world.h"
#include "tests/support/descriptors.h"
#include "tests/support/sanitized.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

using namespace std::chrono_literals;

class PartsOver : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, PartsOver, ::testing::ValuesIn(transports_under_test()));

TEST_P(PartsOver, AreNumberedByKeyAndRank) {
  run_ranks(5, GetParam(), [](Communicator& comm) {
    const auto part = comm.split(comm.rank() % 2, -comm.rank());
    EXPECT_EQ(part->size(), comm.rank() % 2 == 0 ? 3 : 2);
    EXPECT_EQ(part->rank(), (4 - comm.rank()) / 2);
    EXPECT_EQ(part->local_size(), part->size());
    expect_sum_of_ranks(*part, 10);
    const auto nothing = comm.split(comm.rank() == 3 ? 7 : -1);
    EXPECT_EQ(nothing == nullptr, comm.rank() != 3);
    if (nothing) expect_sum_of_ranks(*nothing, 10);
  });
}

TEST_P(PartsOver, AHundredCostNoDescriptors) {
  std::atomic<int> before{0};
  run_ranks(4, GetParam(), [&](Communicator& comm) {
    std::vector<std::unique_ptr<Communicator>> parts;
    for (int i = 0; i < 102; ++i) {
      // Two of each kind first, so that all links stand.
      comm.barrier();
      if (i == 6 && comm.rank() == 0) before = open_descriptors();
      comm.barrier();
      const int color = i % 3 == 0 ? 0 : i % 3 == 1 ? comm.rank() / 2 : comm.rank() % 2;
      parts.push_back(comm.split(color));
      expect_sum_of_ranks(*parts.back(), 8);
    }
    comm.barrier();
    if (comm.rank() == 0) {
      EXPECT_EQ(open_descriptors(), before);
    }
    comm.barrier();
    for (const auto& part : parts) expect_sum_of_ranks(*part, 8);
  });
}

TEST_P(PartsOver, MoveManyLengthsSideBySide) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    const auto pairs = comm.split(comm.rank() / 2), others = comm.split(comm.rank() % 2);
    for (const size_t count : {size_t{1}, size_t{5'000}, size_t{300'000}}) {
      std::vector<float> a(count, 1), b(count, 2), c(count, 3);
      Work works[] = {pairs->start(Call::all_reduce(a)), others->start(Call::all_reduce(b)),
                      comm.start(Call::all_reduce(c))};
      for (Work& work : works) work.wait();
      EXPECT_EQ(a, std::vector<float>(count, 2));
      EXPECT_EQ(b, std::vector<float>(count, 4));
      EXPECT_EQ(c, std::vector<float>(count, 12));
    }
  });
}

TEST_P(PartsOver, MayBeUsedByThreadsOfTheirOwn) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    std::vector<std::unique_ptr<Communicator>> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(comm.split(i % 2 == 0 ? 0 : comm.rank() % 2));
    std::vector<std::thread> threads;
    for (const auto& part : parts)
      threads.emplace_back([&part] {
        for (int i = 0; i < 50; ++i) expect_sum_of_ranks(*part, i % 5 == 0 ? 20'000 : 3);
        // Parts that are split at the same time agree on numbers by themselves.
        for (int i = 0; i < 5; ++i) expect_sum_of_ranks(*part->split(0), 5);
      });
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(PartsOver, OutliveTheWhole) {
  std::string coordinator;
  const int fd = listen_on_loopback(coordinator);
  std::vector<std::future<void>> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      Options options;
      options.rank = rank;
      options.size = 3;
      options.coordinator = coordinator;
      if (rank == 0) options.coordinator_fd = fd;
      options.transport = GetParam();
      auto whole = Communicator::create(options);
      const auto all = whole->split(0), pair = whole->split(rank == 0 ? -1 : 1);
      whole->barrier();
      whole.reset();
      expect_sum_of_ranks(*all, 30'000);
      if (pair) expect_sum_of_ranks(*pair, 30'000);
      expect_sum_of_ranks(*all->split(0), 30);
    }));
  for (auto& rank : ranks) rank.get();
}

TEST_P(PartsOver, OneThatIsAbortedLeavesTheOthers) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    const auto bad = comm.split(0), good = comm.split(0);
    expect_sum_of_ranks(*bad, 10);
    comm.barrier();
    if (comm.rank() == 1) bad->abort("as the test wants it");
    try {
      for (;;) expect_sum_of_ranks(*bad, 10);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
      EXPECT_EQ(error.peer(), 1) << error.what();
    }
    for (int i = 0; i < 20; ++i) expect_sum_of_ranks(*good, 1'000);
    expect_sum_of_ranks(comm, 100'000);
    expect_sum_of_ranks(*comm.split(0), 10);
  });
}

// Their buffers are the caller's again, and then others': nothing may be written there any more.
TEST_P(PartsOver, OneThatFailsInTheMidstOfACallLetsGoOfItsMemory) {
  constexpr size_t kCount = kIsSanitized ? 500'000 : 2'000'000;
  for (int round = 0; round < 5; ++round)
    run_ranks(4, GetParam(), [round](Communicator& comm) {
      const auto part = comm.split(0);
      auto data = comm.allocate<float>(kCount);
      std::vector<float> plain(kCount, 1);
      comm.barrier();
      const bool aborts = comm.rank() == round % 4;
      try {
        if (aborts) std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
        if (aborts && round % 2 == 0) part->abort("as the test wants it");
        Work works[] = {part->start(Call::all_reduce(data)), part->start(Call::all_reduce(plain))};
        if (aborts) part->abort("as the test wants it");
        for (Work& work : works) work.wait();
        for (;;) part->all_reduce(plain);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
      }
      std::ranges::fill(data, 7.0f);
      std::ranges::fill(plain, 7.0f);
      expect_sum_of_ranks(comm, 300'000);
      comm.barrier();
      EXPECT_EQ(std::ranges::count(data, 7.0f), static_cast<ptrdiff_t>(kCount));
      EXPECT_EQ(std::ranges::count(plain, 7.0f), static_cast<ptrdiff_t>(kCount));
    });
}

// Probes of all communicators go through one place: one was compared with the calls of another.
TEST_P(PartsOver, ProbesAreComparedWithTheirOwnCalls) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const auto part = comm.split(0);
    for (int i = 0; i < 5; ++i) comm.barrier();
    std::vector<float> a(10, 1), b(20, 1);
    if (comm.rank() == 1) std::this_thread::sleep_for(600ms);
    Work works[] = {part->start(Call::all_reduce(a)), part->start(Call::all_reduce(a)),
                    comm.start(Call::all_reduce(b)), comm.start(Call::all_reduce(b))};
    for (Work& work : works) work.wait();
    if (comm.rank() == 1) std::this_thread::sleep_for(300ms);
    comm.barrier();
    part->barrier();
  });
}

// A program that only waits to be called back.
TEST_P(PartsOver, CallbacksHearOfTheJobsFailure) {
  std::array<std::promise<ErrorCode>, 3> told;
  try {
    run_ranks(3, GetParam(), [&](Communicator& comm) {
      const auto part = comm.split(0);
      std::vector<float> data(100'000, 1);
      if (comm.rank() != 1) {
        Work work = part->start(Call::all_reduce(data));
        auto& own = told[static_cast<size_t>(comm.rank())];
        work.on_done([&](const Failure* failure) {
          own.set_value(failure == nullptr ? ErrorCode::ok : failure->code);
        });
        EXPECT_EQ(own.get_future().get(), ErrorCode::aborted);
      } else {
        std::this_thread::sleep_for(100ms);
        comm.abort("as the test wants it");
      }
      comm.barrier();
    });
    ADD_FAILURE() << "the job has not failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
  }
}

TEST_P(PartsOver, OneMayBeLeftWithAReceiveUnderWay) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::vector<float> data(100'000, 5);
    Work work;
    {
      const auto part = comm.split(0);
      expect_sum_of_ranks(*part, 10);
      if (comm.rank() != 0) work = part->start(Call::recv(data, 0));
    }
    if (comm.rank() != 0) {
      EXPECT_THROW(work.wait(), Error);
    }
    expect_sum_of_ranks(comm, 1'000);
    EXPECT_EQ(std::ranges::count(data, 5.0f), 100'000);
  });
}

// Who waits for it in the whole is told, though its parts live on.
TEST_P(PartsOver, WhoLeavesTheWholeAloneIsMissedThere) {
  std::string coordinator;
  const int fd = listen_on_loopback(coordinator);
  std::vector<std::future<void>> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      Options options;
      options.rank = rank;
      options.size = 2;
      options.coordinator = coordinator;
      if (rank == 0) options.coordinator_fd = fd;
      options.transport = GetParam();
      auto whole = Communicator::create(options);
      const auto part = whole->split(0);
      whole->barrier();
      if (rank == 0) {
        whole.reset();
        std::this_thread::sleep_for(3s);
        EXPECT_THROW(part->barrier(), Error);
      } else {
        try {
          whole->barrier();
          ADD_FAILURE() << "rank 0 has left it";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
          EXPECT_EQ(error.peer(), 0) << error.what();
        }
      }
    }));
  for (auto& rank : ranks) rank.get();
}

TEST(PartsOfAJobOfOne, HearOfItsFailure) {
  Options options;
  options.rank = 0;
  options.size = 1;
  const auto whole = Communicator::create(options);
  const auto part = whole->split(0);
  expect_sum_of_ranks(*part, 10);
  whole->abort("as the test wants it");
  try {
    part->barrier();
    ADD_FAILURE() << "the job has failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
  }
}

/// Rank 1 aborts `part` in a call; rank 2 computes until `ended`, and is in none.
void abort_while_one_computes(Communicator& comm, Communicator& part, std::latch& ended) {
  comm.barrier();
  if (comm.rank() == 2) {
    ended.wait();
  } else {
    std::vector<float> data(200'000, 1);
    try {  // all of it: rank 0 may start only after rank 1 has aborted
      Work work = part.start(Call::all_reduce(data));
      std::this_thread::sleep_for(50ms);
      if (comm.rank() == 1) part.abort("as the test wants it");
      work.wait();
      ADD_FAILURE() << "without rank 2";
    } catch (const Error& error) {  // not that rank 2 was waited for in vain
      EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
    }
    ended.count_down();
  }
  expect_sum_of_ranks(comm, 10);
}

TEST_P(PartsOver, OneThatFailsWaitsForNobodysNextCall) {
  std::latch ended(2);
  run_ranks(3, GetParam(), [&](Communicator& comm) {
    const auto part = comm.split(0);
    expect_sum_of_ranks(*part, 200'000);
    abort_while_one_computes(comm, *part, ended);
  });
}

// That rank has to say that it is done with the part unasked.
TEST_P(PartsOver, OneThatFailsWaitsForNobodyWhoHasNotCalledIt) {
  std::latch ended(2);
  run_ranks(3, GetParam(), [&](Communicator& comm) {
    expect_sum_of_ranks(comm, 100'000);  // all are connected
    const auto part = comm.split(0);
    abort_while_one_computes(comm, *part, ended);
  });
}

TEST_P(PartsOver, CallbacksHearOfTheirFailure) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    const auto part = comm.split(0);
    std::vector<float> data(100'000, 1);
    std::promise<ErrorCode> told;
    if (comm.rank() != 1) {
      Work work = part->start(Call::all_reduce(data));
      work.on_done([&](const Failure* failure) {
        told.set_value(failure == nullptr ? ErrorCode::ok : failure->code);
      });
      comm.barrier();
      EXPECT_EQ(told.get_future().get(), ErrorCode::aborted);
      EXPECT_THROW(work.wait(), Error);
    } else {
      comm.barrier();
      std::this_thread::sleep_for(100ms);
      part->abort("as the test wants it");
    }
    expect_sum_of_ranks(comm, 10);
  });
}

TEST_P(PartsOver, OneThatWaitsTooLongNamesWhoIsLate) {
  const auto adjust = [](int, Options& options) { options.timeout = 1500ms; };
  run_ranks(
      3, GetParam(),
      [](Communicator& comm) {
        const auto part = comm.split(0, -comm.rank());  // where rank 1 is 1, and rank 0 is 2
        expect_sum_of_ranks(*part, 10);
        if (comm.rank() != 0) {
          try {
            part->barrier();
            ADD_FAILURE() << "nobody is missed";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
            EXPECT_EQ(error.peers(), std::vector{2}) << error.what();
          }
        } else {
          std::this_thread::sleep_for(2500ms);
          EXPECT_THROW(part->barrier(), Error);
        }
        expect_sum_of_ranks(comm, 10);
      },
      adjust);
}

TEST_P(PartsOver, OneWhoseRanksMakeDifferentCallsFailsAlone) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    const auto part = comm.split(comm.rank() / 2);
    std::vector<float> data(comm.rank() == 3 ? 20 : 10, 1);
    if (comm.rank() / 2 == 1) {
      try {
        part->all_reduce(data);
        part->barrier();
        ADD_FAILURE() << "it has not failed";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
      }
    } else {
      part->all_reduce(data);
    }
    expect_sum_of_ranks(comm, 10);
  });
}

TEST_P(PartsOver, MessagesAndWhoSendsNextAreTheirOwn) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    const auto part = comm.split(0);
    std::array<int, 1> data{comm.rank()};
    if (comm.rank() == 1) comm.send(data, 0);
    if (comm.rank() == 2) part->send(data, 0);
    if (comm.rank() == 0) {
      EXPECT_EQ(part->next_sender(10s), 2);
      EXPECT_EQ(comm.next_sender(10s), 1);
      part->recv(data, 2);
      EXPECT_EQ(data[0], 2);
      comm.recv(data, 1);
      EXPECT_EQ(data[0], 1);
    }
  });
}

}  // namespace
}  // namespace ropewalk::testing
