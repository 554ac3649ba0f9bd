// Lanes over two adapters.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/local_world.h"
#include "tests/rdma/machine.h"
#include "tests/rdma/verbs_group.h"

namespace ropewalk::testing {
namespace {

[[maybe_unused]] const auto* const second = ::testing::AddGlobalTestEnvironment(new SecondAdapter);

/// The bytes of the source arrive in order where the target begins; false after five seconds.
bool put_arrives(VerbsGroup& group, size_t bytes) {
  const Piece source(group.at(0), bytes), target(group.at(1), bytes);
  for (size_t i = 0; i < bytes; ++i) source.memory.data()[i] = static_cast<std::byte>(1 + i % 251);
  EXPECT_EQ(group.at(0).put({.peer = 1,
                             .source = source.memory.data(),
                             .source_memory = source.registration(),
                             .bytes = bytes,
                             .key = target.registration()->key(),
                             .notice = 1}),
            Posted::posted);
  size_t there = 0, done = 0;
  std::array<Completion, 8> into;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (there == 0 || done == 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    there += group.at(1).poll(into);
    done += group.at(0).poll(into);
  }
  return std::memcmp(source.memory.data(), target.memory.data(), bytes) == 0;
}

TEST(VerbsRails, LongPutsUseBothAdapters) {
  VerbsGroup group(2, 2);
  group.link(0, 1);
  const long before[] = {packets_sent_by("rxe0"), packets_sent_by("rxe1")};
  EXPECT_TRUE(put_arrives(group, 400'000)) << group.at(0).why_lost(1).text;
  // 50 packets of 4 KiB each, and answers.
  EXPECT_GE(packets_sent_by("rxe0") - before[0], 45);
  EXPECT_GE(packets_sent_by("rxe1") - before[1], 45);
}

// What is the first adapter of the one may be the second of the other, and so are their keys.
TEST(VerbsRails, EachLaneUsesTheKeyOfThePeersAdapter) {
  VerbsGroup group(2, 2, [](int rank, auto& ports, VerbsTransport::Options& options) {
    if (rank == 0) return;
    std::swap(ports.at(0), ports.at(1));
    for (auto& lanes : options.lanes) std::swap(lanes.at(0), lanes.at(1));
  });
  group.link(0, 1);
  EXPECT_TRUE(put_arrives(group, 1000)) << group.at(0).why_lost(1).text;
  EXPECT_TRUE(put_arrives(group, 400'000)) << group.at(0).why_lost(1).text;
}

TEST(VerbsRails, OneOfTwoPortsThatStaysDownIsNamed) {
  for (const std::string number : {"0", "1"}) {
    VerbsGroup group(2, 2);
    group.link(0, 1);
    const Unplugged unplugged("link" + number);
    EXPECT_TRUE(group.until(
        {0, 1}, [&] { return !group.at(0).connected(1) && !group.at(1).connected(0); }));
    for (const int rank : {0, 1})
      EXPECT_EQ(group.at(rank).why_lost(1 - rank).text,
                "rank " + std::to_string(rank) + "'s rxe" + number + " port 1 is down");
  }
}

TEST(VerbsRails, JobsTakeBoth) {
  const long before = packets_sent_by("rxe1");
  run_ranks(3, "verbs", [](Communicator& comm) {
    auto values = comm.allocate<int>(300'000);
    for (int round = 0; round < 3; ++round) {
      std::iota(values.begin(), values.end(), comm.rank());
      comm.all_reduce(values.span());
      for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<int>(3 * i + 3));
    }
  });
  EXPECT_GT(packets_sent_by("rxe1") - before, 100);
}

TEST(VerbsRails, JobsTakeTheOneThatIsUp) {
  const Unplugged unplugged("link1");
  run_ranks(2, "verbs", [](Communicator& comm) {
    auto values = comm.allocate<int>(300'000);
    std::fill(values.begin(), values.end(), 1);
    comm.all_reduce(values.span());
    EXPECT_EQ(std::count(values.begin(), values.end(), 2), 300'000);
  });
}

}  // namespace
}  // namespace ropewalk::testing
