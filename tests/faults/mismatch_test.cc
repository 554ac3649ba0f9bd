// Ranks that call different things: an error on every rank that says who called what.
#include <gtest/gtest.h>

#include <mutex>

#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

struct Outcome {
  bool failed = false;
  ErrorCode code = ErrorCode::ok;
  std::string text;
};

/// Runs `body` on 3 ranks; gives what each ended with.
std::vector<Outcome> outcomes(const std::string& transport,
                              const std::function<void(Communicator&)>& body) {
  std::vector<Outcome> outcomes(3);
  run_ranks(
      3, transport,
      [&](Communicator& comm) {
        Outcome& outcome = outcomes[static_cast<size_t>(comm.rank())];
        try {
          comm.barrier();  // nobody fails while others still join
          body(comm);
          for (int i = 0; i < 100; ++i) comm.barrier();  // whoever got through learns it here
        } catch (const Error& error) {
          outcome = {true, error.code(), error.what()};
        }
      },
      [](int, Options& options) { options.timeout = std::chrono::seconds(10); });
  return outcomes;
}

class Mismatch : public ::testing::TestWithParam<std::string> {
 protected:
  void expect_named(const std::function<void(Communicator&)>& body, const std::string& one,
                    const std::string& other) {
    for (const Outcome& outcome : outcomes(GetParam(), body)) {
      ASSERT_TRUE(outcome.failed);
      EXPECT_EQ(outcome.code, ErrorCode::mismatch) << outcome.text;
      EXPECT_NE(outcome.text.find(one), std::string::npos) << outcome.text;
      EXPECT_NE(outcome.text.find(other), std::string::npos) << outcome.text;
    }
  }
};

TEST_P(Mismatch, OfSizes) {
  for (size_t count : {size_t{4}, size_t{100'000}})
    expect_named(
        [count](Communicator& comm) {
          std::vector<float> data(comm.rank() == 1 ? count + 1 : count);
          comm.all_reduce(std::span(data));
        },
        std::to_string(count) + " float32", std::to_string(count + 1) + " float32");
}

TEST_P(Mismatch, OfSmallAndLarge) {
  expect_named(
      [](Communicator& comm) {
        std::vector<float> data(comm.rank() == 2 ? 1 : 1'000'000);
        comm.all_reduce(std::span(data));
      },
      "all_reduce(1 float32", "all_reduce(1000000 float32");
}

TEST_P(Mismatch, OfTypes) {
  expect_named(
      [](Communicator& comm) {
        std::vector<float> floats(64);
        std::vector<int> ints(64);
        if (comm.rank() == 0)
          comm.all_reduce(std::span(ints));
        else
          comm.all_reduce(std::span(floats));
      },
      "int32", "float32");
}

TEST_P(Mismatch, OfOps) {
  expect_named(
      [](Communicator& comm) {
        std::vector<float> data(64);
        comm.all_reduce(std::span(data), comm.rank() == 2 ? kMax : kSum);
      },
      "max", "sum");
}

TEST_P(Mismatch, OfOrder) {
  expect_named(
      [](Communicator& comm) {
        std::vector<float> data(64);
        const auto reduce = [&] { comm.all_reduce(std::span(data)); };
        const auto broadcast = [&] { comm.broadcast(std::span(data)); };
        if (comm.rank() == 1)
          broadcast(), reduce();
        else
          reduce(), broadcast();
      },
      "all_reduce(64", "broadcast(64");
}

TEST_P(Mismatch, OfRootsWhereEveryoneWaits) {
  expect_named(
      [](Communicator& comm) {
        std::vector<float> data(64);
        comm.broadcast(std::span(data), (comm.rank() + 1) % 3);
      },
      "broadcast(64 float32, root", "root");
}

TEST_P(Mismatch, OfMessageLengths) {
  for (size_t count : {size_t{3}, size_t{50'000}})
    expect_named(
        [count](Communicator& comm) {
          std::vector<int> data(count + 1);
          if (comm.rank() == 0) comm.send(std::span<const int>(data.data(), count), 1);
          if (comm.rank() == 1) comm.recv(std::span(data), 0);
        },
        std::to_string(count), std::to_string(count + 1));
}

// --- calls long enough for owners (engine/owner_program.h), and calls of which only some are ---

constexpr size_t kLong = 50'000;

Call all_reduce_of(std::span<float> data, Algorithm algorithm = Algorithm::automatic) {
  Call call;
  call.in = call.out = data.data();
  call.count = data.size();
  call.algorithm = algorithm;
  return call;
}

TEST_P(Mismatch, OfLongTypesAndOps) {
  for (const bool types : {true, false})
    expect_named(
        [types](Communicator& comm) {
          std::vector<float> data(kLong);
          Call call = all_reduce_of(data);
          if (comm.rank() == 1 && types) call.type = DataType::int32;
          if (comm.rank() == 1 && !types) call.op = kMax;
          comm.run(call);
        },
        types ? "int32" : "max", types ? "float32" : "sum");
}

TEST_P(Mismatch, OfLongRoots) {
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::scattered})
    for (const Collective collective : {Collective::broadcast, Collective::reduce})
      expect_named(
          [=](Communicator& comm) {
            std::vector<float> in(kLong), out(kLong);
            Call call = all_reduce_of(in, algorithm);
            call.collective = collective;
            call.out = collective == Collective::broadcast ? in.data() : out.data();
            call.root = comm.rank() == 0 ? 1 : 2;
            comm.run(call);
          },
          "root 1", "root 2");
}

/// Which executor runs which algorithm differs.
TEST_P(Mismatch, OfAlgorithms) {
  constexpr std::pair<Algorithm, Algorithm> kPairs[] = {
      {Algorithm::direct, Algorithm::ring},
      {Algorithm::direct, Algorithm::one_shot},
      {Algorithm::direct, Algorithm::recursive_doubling},
      {Algorithm::tree, Algorithm::direct},
      {Algorithm::one_shot, Algorithm::ring},
  };
  for (const auto& [most, one] : kPairs)
    for (size_t count : {size_t{20}, size_t{600}, kLong})
      for (int odd = 0; odd < 3; ++odd)
        expect_named(
            [=, most = most, one = one](Communicator& comm) {
              // Registered on some ranks, plain on others.
              std::vector<float> plain(count);
              Buffer<float> registered = comm.allocate<float>(count);
              const auto data = comm.rank() == 0 ? std::span(plain) : registered.span();
              comm.run(all_reduce_of(data, comm.rank() == odd ? one : most));
            },
            std::string(name_of(most)), std::string(name_of(one)));
}

TEST_P(Mismatch, OfLongAndShortCollectives) {
  for (int odd = 0; odd < 3; ++odd)
    expect_named(
        [odd](Communicator& comm) {
          std::vector<float> in(3 * kLong), out(3 * kLong);
          if (comm.rank() == odd)
            comm.broadcast(std::span(in.data(), 2));
          else
            comm.all_to_all(std::span<const float>(in), std::span(out));
        },
        "broadcast(2", "all_to_all(50000");
}

TEST_P(Mismatch, OfALongCallAndABarrier) {
  for (int odd = 0; odd < 3; ++odd)
    expect_named(
        [odd](Communicator& comm) {
          std::vector<float> data(kLong);
          if (comm.rank() == odd)
            comm.barrier();
          else
            comm.all_reduce(std::span(data));
        },
        "barrier", "all_reduce(50000");
}

TEST_P(Mismatch, OfLongOrder) {
  expect_named(
      [](Communicator& comm) {
        std::vector<float> data(kLong), parts(3 * kLong);
        const auto reduce = [&] { comm.all_reduce(std::span(data)); };
        const auto gather = [&] {
          comm.all_gather(std::span<const float>(data), std::span(parts));
        };
        if (comm.rank() == 2)
          gather(), reduce();
        else
          reduce(), gather();
      },
      "all_reduce(50000", "all_gather(50000");
}

TEST_P(Mismatch, OfCountsOfParts) {
  for (size_t count : {size_t{10}, kLong})
    expect_named(
        [count](Communicator& comm) {
          std::vector<float> data(4 * count);
          Call call;
          call.collective = Collective::reduce_scatter;
          call.in = data.data();
          call.out = data.data() + 3 * count;
          call.counts = {count, count, count};
          if (comm.rank() == 1) call.counts = {count - 1, count, count + 1};
          comm.run(call);
        },
        "reduce_scatter", "reduce_scatter");
}

TEST_P(Mismatch, OfPartsBetweenPairs) {
  for (size_t count : {size_t{0}, size_t{10}, kLong})
    expect_named(
        [count](Communicator& comm) {
          std::vector<float> in(4 * count + 4), out(4 * count + 4);
          Call call;
          call.collective = Collective::all_to_all;
          call.in = in.data();
          call.out = out.data();
          call.counts = call.recv_counts = {count, count, count};
          if (comm.rank() == 1) ++call.counts[2];  // rank 2 does not know
          comm.run(call);
        },
        "rank 1 sends " + std::to_string(4 * count + 4) + " bytes",
        "rank 2 expects " + std::to_string(4 * count));
}

/// Of which one has counts, and runs on the owner executor: an error or none, not a hang.
TEST_P(Mismatch, OfEmptyAllToAlls) {
  for (const Outcome& outcome : outcomes(GetParam(), [](Communicator& comm) {
         Call call;
         call.collective = Collective::all_to_all;
         if (comm.rank() == 1) call.counts = {0, 0, 0};
         comm.run(call);
       }))
    EXPECT_TRUE(!outcome.failed || outcome.code == ErrorCode::mismatch) << outcome.text;
}

TEST_P(Mismatch, OfGroups) {
  expect_named(
      [](Communicator& comm) {
        std::vector<float> one(1000), two(1000);
        const Call calls[] = {all_reduce_of(one), all_reduce_of(two)};
        if (comm.rank() == 1) {
          comm.run(calls[0]);
          comm.run(calls[1]);
        } else {
          comm.start_group(calls).wait();  // fused
        }
      },
      "all_reduce(1000", "all_reduce(2000");
}

TEST_P(Mismatch, OfCallsStartedAtOnce) {
  expect_named(
      [](Communicator& comm) {
        std::vector<std::vector<float>> data;
        for (size_t i = 0; i < 8; ++i) data.emplace_back(i % 2 == 0 ? kLong : 4);
        std::vector<Work> works;
        for (size_t i = 0; i < 8; ++i) {
          // Rank 2 swaps the last two.
          const size_t k = comm.rank() == 2 && i >= 6 ? 13 - i : i;
          works.push_back(comm.start(all_reduce_of(data[k])));
        }
        for (Work& work : works) work.wait();
      },
      "all_reduce(4 ", "all_reduce(50000");
}

TEST_P(Mismatch, IsNotSeenWhereThereIsNone) {
  // Slow ranks, far apart in the sequence, with stalls long enough for probes.
  for (const Outcome& outcome : outcomes(GetParam(), [](Communicator& comm) {
         std::vector<float> data(64);
         for (int i = 0; i < 5; ++i) {
           if (i == comm.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(200));
           comm.broadcast(std::span(data), i % 3);
           comm.all_reduce(std::span(data));
         }
       }))
    EXPECT_FALSE(outcome.failed) << outcome.text;
}

INSTANTIATE_TEST_SUITE_P(Transports, Mismatch, ::testing::ValuesIn(transports_under_test()));

// --- calls that are wrong by themselves: an error here, and the job goes on ---

template <class Body>
void expect_rejected(const Body& body) {
  run_ranks(2, "shm", [&](Communicator& comm) {
    try {
      body(comm);
      ADD_FAILURE() << "was not rejected";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    }
    comm.barrier();
  });
}

TEST(BadCall, RootOutOfRange) {
  expect_rejected([](Communicator& comm) {
    std::vector<float> data(4);
    comm.broadcast(std::span(data), 2);
  });
}

TEST(BadCall, MessageToOneself) {
  expect_rejected([](Communicator& comm) {
    std::vector<float> data(4);
    comm.send(std::span<const float>(data), comm.rank());
  });
}

TEST(BadCall, ScaledSumOfIntegers) {
  expect_rejected([](Communicator& comm) {
    std::vector<int> data(4);
    comm.all_reduce(std::span(data), {ReduceKind::scaled_sum, 0.5});
  });
}

TEST(BadCall, BuffersOfDifferentSizes) {
  expect_rejected([](Communicator& comm) {
    std::vector<float> in(4), out(5);
    comm.all_reduce(std::span<const float>(in), std::span(out));
  });
}

TEST(BadCall, BuffersThatOverlap) {
  expect_rejected([](Communicator& comm) {
    std::vector<float> data(10);
    comm.all_reduce(std::span<const float>(data.data(), 8), std::span(data.data() + 2, 8));
  });
}

TEST(BadCall, CountsToOneselfThatDiffer) {
  expect_rejected([](Communicator& comm) {
    std::vector<int> data(2000), out(2000);
    Call call;
    call.collective = Collective::all_to_all;
    call.type = DataType::int32;
    call.in = data.data();
    call.out = out.data();
    call.counts = {1, 1};
    call.recv_counts = {1, 1};
    call.recv_counts[static_cast<size_t>(comm.rank())] = 1000;
    comm.run(call);
  });
}

TEST(BadCall, UnknownTransport) {
  Options options;
  options.transport = "carrier-pigeon";
  EXPECT_THROW(Communicator::create(options), Error);
}

TEST(BadCall, AlgorithmThatTheCollectiveLacks) {
  run_ranks(2, "shm", [](Communicator& comm) {
    float x = 0, y[2];
    Call call;
    call.collective = Collective::gather;
    call.algorithm = Algorithm::tree;
    call.in = &x;
    call.out = y;
    call.count = 1;
    try {
      comm.run(call);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable) << error.what();
    }
    comm.barrier();
  });
}

}  // namespace
}  // namespace ropewalk::testing
