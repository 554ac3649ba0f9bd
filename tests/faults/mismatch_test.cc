// Ranks that call different things: an error on every rank that says who called what.
#include <gtest/gtest.h>

#include <mutex>

#include "tests/local_world.h"

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
          body(comm);
          for (int i = 0; i < 100; ++i) comm.barrier();  // whoever got through learns it here
        } catch (const Error& error) {
          outcome = {true, error.code(), error.what()};
        }
      },
      [](int, Options& options) { options.timeout = std::chrono::seconds(10); });
  return outcomes;
}

class Mismatch : public ::testing::TestWithParam<const char*> {
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

INSTANTIATE_TEST_SUITE_P(Transports, Mismatch, ::testing::Values("tcp", "shm"));

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
