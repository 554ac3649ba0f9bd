// Ranks whose arguments differed went on with their own data where a short call ended before the
// others were heard of: two roots of one broadcast, for instance. Every rank must get
// Error(mismatch), at the latest when it leaves.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "schedule/collective.h"
#include "schedule/schedule.h"
#include "tests/local_world.h"
#include "tests/support/cases.h"
#include "tests/support/sanitized.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

constexpr int kCallers = 3;

enum class Argument { root, count, type, op, algorithm, collective, counts };
constexpr Argument kArguments[] = {Argument::root,  Argument::count,     Argument::type,
                                   Argument::op,    Argument::algorithm, Argument::collective,
                                   Argument::counts};
constexpr const char* kArgumentNames[] = {"root",      "count",      "type",  "op",
                                          "algorithm", "collective", "counts"};

struct Case {
  Collective collective;
  Algorithm algorithm;
  size_t count;
  Argument differs;
  int odd;  // the rank that differs

  std::string text() const {
    return std::string(name_of(collective)) + ", " + std::string(name_of(algorithm)) + ", " +
           std::to_string(count) + " elements, other " + kArgumentNames[static_cast<int>(differs)] +
           " on rank " + std::to_string(odd);
  }
};

/// Whether the collective has this argument, and another value of it.
bool applies(const Case& c) {
  switch (c.differs) {
    case Argument::root:
      return traits_of(c.collective).is_rooted();
    case Argument::op:
      return is_reduction(c.collective);
    case Argument::algorithm:
      return algorithms_for(c.collective).size() > 1;
    case Argument::counts:
      return traits_of(c.collective).has_parts() && c.count > 0;
    default:
      return true;
  }
}

Algorithm another_algorithm(const Case& c) {
  for (Algorithm algorithm : algorithms_for(c.collective))
    if (algorithm != c.algorithm) return algorithm;
  return c.algorithm;
}

/// What `rank` calls, on buffers of enough elements for each rank.
Call call_of(const Case& c, int rank, float* in, float* out) {
  Call call;
  call.collective = c.collective;
  call.algorithm = c.algorithm;
  call.in = in;
  call.out = c.collective == Collective::broadcast ? in : out;
  call.count = c.count;
  if (traits_of(c.collective).has_parts() && c.differs == Argument::counts)
    call.counts = {c.count, c.count, c.count};
  if (rank != c.odd) return call;
  switch (c.differs) {
    case Argument::root:
      call.root = 1;
      break;
    case Argument::count:
      ++call.count;
      break;
    case Argument::type:
      call.type = DataType::int32;
      break;
    case Argument::op:
      call.op = kMax;
      break;
    case Argument::algorithm:
      call.algorithm = another_algorithm(c);
      break;
    case Argument::collective:
      call.collective =
          c.collective == Collective::all_gather ? Collective::all_to_all : Collective::all_gather;
      call.algorithm = Algorithm::direct;
      call.out = out;
      break;
    case Argument::counts:
      call.counts = {c.count + 1, c.count - 1, c.count};
      break;
  }
  return call;
}

void expect_mismatch(const Case& c, const std::string& transport, bool registered) {
  std::array<std::string, kCallers> ends;
  run_ranks(kCallers, transport, [&](Communicator& comm) {
    std::string& end = ends[static_cast<size_t>(comm.rank())];
    end = "no error";
    try {
      comm.barrier();  // nobody fails while others still join
      const size_t elements = kCallers * (c.count + 2);
      std::vector<float> plain(registered ? 0 : 2 * elements);
      const auto own = comm.allocate<float>(registered ? 2 * elements : 0);
      float* memory = registered ? own.data() : plain.data();
      comm.run(call_of(c, comm.rank(), memory, memory + elements));
      comm.leave();
    } catch (const Error& error) {
      end = error.code() == ErrorCode::mismatch ? "" : error.what();
    }
  });
  for (int rank = 0; rank < kCallers; ++rank)
    EXPECT_EQ(ends[static_cast<size_t>(rank)], "")
        << c.text() << ", over " << transport << (registered ? ", registered" : ", plain")
        << " memory, rank " << rank;
}

class RanksThatCallDifferentThings : public ::testing::TestWithParam<std::string> {};

/// Every pair of arguments that differ x algorithm x length: lengths at which each way to run a
/// schedule is taken.
TEST_P(RanksThatCallDifferentThings, AllHearOfIt) {
  std::vector<Case> cases;
  for (Collective collective : kMovingCollectives)
    for (Algorithm algorithm : algorithms_for(collective))
      for (size_t count :
           kIsSanitized ? std::vector<size_t>{1, 3000} : std::vector<size_t>{0, 1, 100, 3000})
        for (Argument argument : kArguments)
          cases.push_back(
              {collective, algorithm, count, argument, static_cast<int>(cases.size()) % kCallers});
  std::erase_if(cases, [](const Case& c) { return !applies(c); });
  // A job mostly waits: several at a time.
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&] {
      for (size_t i; (i = next++) < cases.size();)
        expect_mismatch(cases[i], GetParam(), i % 2 == 0);
    });
  for (std::thread& thread : threads) thread.join();
}

/// Nothing that follows has them hear from each other, except leaving.
TEST_P(RanksThatCallDifferentThings, TwoRootsOfAShortBroadcast) {
  std::array<std::string, 2> ends;
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    try {
      std::vector<float> data(4, static_cast<float>(comm.rank()));
      comm.broadcast(data, comm.rank());
      comm.leave();
    } catch (const Error& error) {
      ends[static_cast<size_t>(comm.rank())] = error.what();
    }
  });
  for (const std::string& end : ends) {
    EXPECT_NE(end.find("broadcast(4 float32, root 0"), std::string::npos) << end;
    EXPECT_NE(end.find("broadcast(4 float32, root 1"), std::string::npos) << end;
  }
}

/// The first call in which they do hear from each other tells which call differed.
TEST_P(RanksThatCallDifferentThings, NextCallNamesTheOneThatDiffered) {
  std::array<std::string, 2> ends;
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    try {
      std::vector<float> data(4, static_cast<float>(comm.rank())), all(8);
      comm.broadcast(data, comm.rank());
      comm.broadcast(data, comm.rank());
      comm.all_gather(data, all);
    } catch (const Error& error) {
      ends[static_cast<size_t>(comm.rank())] = error.what();
    }
  });
  for (const std::string& end : ends) {
    EXPECT_NE(end.find("broadcast(4 float32, root 0"), std::string::npos) << end;
    EXPECT_NE(end.find("broadcast(4 float32, root 1"), std::string::npos) << end;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, RanksThatCallDifferentThings,
                         ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing
