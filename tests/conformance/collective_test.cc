// Every collective, algorithm, type, op, rank count and size, in place or not, over real
// transports, against the right answer element by element.
#include <gtest/gtest.h>

#include <deque>
#include <mutex>

#include "tests/local_world.h"
#include "tests/support/cases.h"
#include "tests/support/reference.h"
#include "tests/support/sanitized.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

/// Memory of one rank, half of it registered, which cases share: to make it takes longer than most
/// of them.
class RankMemory {
 public:
  explicit RankMemory(Communicator& comm) : comm_(comm) {}
  /// For the next case: what was taken is given back.
  void begin_case() {
    taken_ = 0;
    plain_.clear();
  }
  std::byte* take(size_t bytes) {
    const size_t number = taken_++ / 2;
    if (taken_ % 2 == 0) return plain_.emplace_back(bytes + 1).data();
    if (number == registered_.size()) registered_.emplace_back();
    Buffer<uint8_t>& buffer = registered_[number];
    if (buffer.size() < bytes || buffer.data() == nullptr) buffer = comm_.allocate<uint8_t>(bytes);
    return reinterpret_cast<std::byte*>(buffer.data());
  }

 private:
  Communicator& comm_;
  size_t taken_ = 0;
  std::deque<std::vector<std::byte>> plain_;
  std::vector<Buffer<uint8_t>> registered_;
};

void run_case(Communicator& comm, RankMemory& memory, const Case& c) {
  memory.begin_case();
  RankBuffers buffers(c, comm.rank(), [&](size_t bytes) { return memory.take(bytes); });
  buffers.fill();
  comm.run(buffers.call());
  EXPECT_EQ(buffers.check(), "") << c.text();
}

class EveryCase : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(EveryCase, GivesTheRightAnswer) {
  const auto [transport, ranks] = GetParam();
  const std::vector<Case> cases = cases_of_every_kind(ranks);
  // Of more than five ranks every third kind, another third on every rank count.
  const size_t stride = ranks > 5 ? 3 : 1;
  run_ranks(ranks, transport, [&, ranks = ranks](Communicator& comm) {
    RankMemory memory(comm);
    for (size_t i = static_cast<size_t>(ranks) % stride; i < cases.size(); i += stride)
      run_case(comm, memory, cases[i]);
  });
}

INSTANTIATE_TEST_SUITE_P(Slow, EveryCase,
                         ::testing::Combine(::testing::ValuesIn(transports_under_test()),
                                            ::testing::ValuesIn(rank_counts_under_test())));

class Collectives : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(Collectives, GiveTheRightAnswer) {
  const auto [transport, ranks] = GetParam();
  const std::vector<Case> cases = cases_of_every_size(ranks);
  // What sanitizers look for does not depend on the rank count.
  const size_t stride = kIsSanitized && ranks > 2 ? 4 : 1;
  run_ranks(ranks, transport, [&, ranks = ranks](Communicator& comm) {
    RankMemory memory(comm);
    for (size_t i = static_cast<size_t>(ranks) % stride; i < cases.size(); i += stride)
      run_case(comm, memory, cases[i]);
  });
}

TEST_P(Collectives, RunAsPlansAgainAndAgain) {
  const auto [transport, ranks] = GetParam();
  run_ranks(ranks, transport, [&, n = ranks](Communicator& comm) {
    for (size_t count : {size_t{2}, size_t{50000}}) {
      const Case c{Collective::all_reduce,
                   Algorithm::automatic,
                   DataType::float32,
                   ReduceKind::avg,
                   n,
                   count,
                   0,
                   true,
                   false};
      RankMemory memory(comm);
      RankBuffers buffers(c, comm.rank(), [&](size_t bytes) { return memory.take(bytes); });
      Plan plan = comm.plan(buffers.call());
      for (int i = 0; i < (kIsSanitized ? 5 : 20); ++i) {
        buffers.fill();
        plan.run();
        ASSERT_EQ(buffers.check(), "") << c.text();
      }
    }
  });
}

TEST_P(Collectives, SeveralMayBeUnderWay) {
  const auto [transport, ranks] = GetParam();
  run_ranks(ranks, transport, [&, n = ranks](Communicator& comm) {
    RankMemory memory(comm);
    std::deque<RankBuffers> buffers;
    std::vector<Work> works;
    for (int i = 0; i < 12; ++i) {
      const Case c{kMovingCollectives[i % 8],
                   Algorithm::automatic,
                   DataType::int32,
                   ReduceKind::sum,
                   n,
                   static_cast<size_t>(i * 997),
                   i % n,
                   false,
                   false};
      buffers.emplace_back(c, comm.rank(), [&](size_t bytes) { return memory.take(bytes); });
      buffers.back().fill();
      works.push_back(comm.start(buffers.back().call()));
    }
    for (size_t i = works.size(); i-- > 0;) {
      works[i].wait();
      EXPECT_EQ(buffers[i].check(), "");
    }
    comm.barrier();
  });
}

TEST_P(Collectives, GroupsFuseSmallBuffers) {
  const auto [transport, ranks] = GetParam();
  run_ranks(ranks, transport, [&, n = ranks](Communicator& comm) {
    RankMemory memory(comm);
    std::deque<RankBuffers> buffers;
    std::vector<Call> calls;
    for (int i = 0; i < 40; ++i) {
      const Case c{i == 7 ? Collective::broadcast : Collective::all_reduce,
                   Algorithm::automatic,
                   i % 5 == 0 ? DataType::float64 : DataType::float32,
                   ReduceKind::sum,
                   n,
                   static_cast<size_t>(i * 13),
                   0,
                   i % 2 == 0,
                   false};
      buffers.emplace_back(c, comm.rank(), [&](size_t bytes) { return memory.take(bytes); });
      calls.push_back(buffers.back().call());
    }
    for (int round = 0; round < 3; ++round) {
      for (RankBuffers& b : buffers) b.fill();
      comm.start_group(calls).wait();
      for (RankBuffers& b : buffers) EXPECT_EQ(b.check(), "");
    }
  });
}

TEST_P(Collectives, MessagesBetweenPairsArriveInOrder) {
  const auto [transport, ranks] = GetParam();
  if (ranks == 1) return;
  run_ranks(ranks, transport, [n = ranks](Communicator& comm) {
    const int to = (comm.rank() + 1) % n, from = (comm.rank() + n - 1) % n;
    for (size_t count : {size_t{0}, size_t{3}, size_t{1000}, size_t{300000}}) {
      std::vector<std::vector<int>> sent, got;
      std::vector<Work> works;
      for (int i = 0; i < 5; ++i) {
        sent.emplace_back(count, comm.rank() * 100 + i);
        got.emplace_back(count, -1);
      }
      for (int i = 0; i < 5; ++i) {
        const auto k = static_cast<size_t>(i);
        Call call;
        call.type = DataType::int32;
        call.count = count;
        call.collective = Collective::send;
        call.in = sent[k].data();
        call.root = to;
        works.push_back(comm.start(call));
        call.collective = Collective::recv;
        call.in = nullptr;
        call.out = got[k].data();
        call.root = from;
        works.push_back(comm.start(call));
      }
      for (Work& work : works) work.wait();
      for (int i = 0; i < 5; ++i)
        EXPECT_EQ(got[static_cast<size_t>(i)], std::vector<int>(count, from * 100 + i));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Collectives,
                         ::testing::Combine(::testing::ValuesIn(transports_under_test()),
                                            ::testing::ValuesIn(rank_counts_under_test())));

}  // namespace
}  // namespace ropewalk::testing
