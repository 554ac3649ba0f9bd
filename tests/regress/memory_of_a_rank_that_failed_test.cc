// A rank that failed gave its registered memory up before the others knew. One of them, which was
// waiting, unmapped that memory when it went to sleep, and when it was woken read or wrote there.
#include <gtest/gtest.h>

#include <cstdlib>

#include "bootstrap/monitor_testing.h"
#include "tests/support/lone_engine.h"
#include "transports/shm/shm_transport.h"

namespace ropewalk::testing {
namespace {

/// Three ranks in one thread, each with some registered memory.
class MemoryOfARankThatFailed : public ::testing::Test {
 protected:
  static constexpr size_t kCount = 10'000;

  MemoryOfARankThatFailed() {
    std::vector<std::string> infos;
    for (Rank& rank : ranks_) infos.push_back(rank.transport.info());
    for (int r = 0; r < 3; ++r) {
      Rank& rank = at(r);
      rank.transport.set_peers(infos);
      rank.engine =
          std::make_unique<LoneEngine>(r, 3, std::vector<Transport*>{&rank.transport},
                                       std::vector<int>(3, 0), rank.memories, monitor_, clock_);
      rank.memory = std::make_shared<RegisteredMemory>(kCount * sizeof(int));
      rank.memory->register_with(rank.transport);
      rank.memories.add(rank.memory);
      std::fill_n(reinterpret_cast<int*>(rank.memory->data()), kCount, 1);
    }
  }

  struct Rank {
    explicit Rank(int rank) : transport(rank, 3) {}
    ShmTransport transport;
    MemoryRegistry memories;
    std::shared_ptr<RegisteredMemory> memory;
    std::unique_ptr<LoneEngine> engine;
    std::vector<std::shared_ptr<Operation>> operations;
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  void start(int rank, Collective collective, size_t count) {
    Call call;
    call.collective = collective;
    call.in = call.out = at(rank).memory->data();
    call.count = count;
    call.type = DataType::int32;
    const Schedule schedule = build_schedule({collective, Algorithm::direct, 3, 0, {}}, rank);
    at(rank).operations.push_back(
        at(rank).engine->prepare(call, schedule, Algorithm::direct, 4096));
    at(rank).engine->start(*at(rank).operations.back());
  }
  void progress(std::initializer_list<int> ranks) {
    for (int turn = 0; turn < 20; ++turn)
      for (int rank : ranks) at(rank).engine->progress();
  }
  bool is_done(int rank) { return at(rank).operations.back()->state == Operation::State::done; }

  void link_up() {
    for (int rank : {0, 1, 2}) start(rank, Collective::broadcast, 2);
    progress({0, 1, 2});
    ASSERT_TRUE(is_done(0) && is_done(1) && is_done(2));
  }
  /// Rank 1 goes without a word, and rank 0, which waits, to sleep.
  void fail_while_rank_0_sleeps() {
    at(1).engine.reset();
    at(1).operations.clear();
    at(1).memory.reset();
    at(0).transport.arm();
  }

  const MonotonicClock clock_;
  NothingFails monitor_;
  std::array<Rank, 3> ranks_{Rank(0), Rank(1), Rank(2)};
};

TEST_F(MemoryOfARankThatFailed, IsReadAsLongAsItIsInUse) {
  link_up();
  for (int rank : {0, 1}) start(rank, Collective::reduce, kCount);
  progress({0, 1});  // rank 1's descriptor is accepted; rank 2's is missing
  fail_while_rank_0_sleeps();
  start(2, Collective::reduce, kCount);
  progress({2, 0});
  EXPECT_TRUE(is_done(0));
  EXPECT_EQ(reinterpret_cast<int*>(at(0).memory->data())[kCount - 1], 3);
}

TEST_F(MemoryOfARankThatFailed, IsWrittenAsLongAsTheLinkStands) {
  link_up();
  start(0, Collective::reduce, 2);  // waits for rank 2
  progress({0});
  fail_while_rank_0_sleeps();
  start(0, Collective::broadcast, 2);
  progress({0});
  SUCCEED();
}

TEST_F(MemoryOfARankThatFailed, IsGivenBackInTheEnd) {
  link_up();
  fail_while_rank_0_sleeps();
  start(0, Collective::broadcast, 2);  // nothing is under way: forgets, and prepares
  progress({0});
  EXPECT_FALSE(is_done(0));  // rank 1 cannot be sent to
}

}  // namespace
}  // namespace ropewalk::testing
