// How ranks wait for their transports, and are woken.
#include <gtest/gtest.h>

#include <thread>

#include "transports/tcp/test_node.h"

namespace ropewalk::tcp {
namespace {

class Waiting : public testing::TestWithParam<int> {};

TEST_P(Waiting, EventFdWakes) {
  const int ranks = GetParam();
  Job job(ranks, Kind::loopback, {}, 1 << 20, 64 << 10);
  job.link_all();
  Node& a = job[0];
  Node& b = job[1];
  const auto quiet = [](Node& node) {
    for (int i = 0; i < 3; ++i) node.poll();
    return node.transport.arm() && !readable(node.transport.capabilities().event_fd, 0);
  };
  ASSERT_TRUE(until([&] { return quiet(b); }));
  // A message.
  ASSERT_EQ(a.put(1, {}, 0, 7), Posted::done);
  ASSERT_TRUE(readable(b.transport.capabilities().event_fd, 2000));
  ASSERT_TRUE(until([&] {
    b.poll();
    return b.notices.size() == 1;
  }));
  ASSERT_TRUE(until([&] { return quiet(b); }));
  // Room to write: wakes again and again until all is written, and then no more.
  const auto source = pattern(1 << 20, 6);
  ASSERT_EQ(a.put(1, source, 0, 8, 42), Posted::posted);
  ASSERT_TRUE(until([&] {
    b.poll();
    if (a.transport.arm()) {
      EXPECT_TRUE(readable(a.transport.capabilities().event_fd, 2000));
    }
    a.poll();
    return a.finished.size() == 1;
  }));
  ASSERT_TRUE(until([&] {
    b.poll();
    return b.notices.size() == 2;
  }));
  ASSERT_TRUE(until([&] { return quiet(a); }));
  // Completions that did not fit into `poll`'s span.
  ASSERT_EQ(a.put(1, {}, 0, 9), Posted::done);
  ASSERT_EQ(a.put(1, {}, 0, 10), Posted::done);
  ASSERT_TRUE(until([&] {
    b.poll(1);
    return b.notices.size() == 3;
  }));
  if (b.transport.arm()) {
    EXPECT_TRUE(readable(b.transport.capabilities().event_fd, 2000));
  }
  ASSERT_TRUE(until([&] {
    b.poll(1);
    return b.notices.size() == 4;
  }));
  // The end.
  ASSERT_TRUE(until([&] { return quiet(a); }));
  job.nodes[1].reset();
  ASSERT_TRUE(readable(a.transport.capabilities().event_fd, 2000));
  ASSERT_TRUE(until([&] {
    a.poll();
    return !a.lost.empty();
  }));
}

INSTANTIATE_TEST_SUITE_P(Tcp, Waiting, testing::Values(2, 6));

TEST(TcpTransport, EventFdWakesForNewSockets) {
  LocalNetwork network(3, Kind::loopback);
  Node a(0, 3, network.source(0), {}, 64), b(1, 3, network.source(1), {}, 64);
  network.source(2).request(0, 0);  // a socket that nobody here asked for
  ASSERT_TRUE(a.transport.arm());
  EXPECT_FALSE(readable(a.transport.capabilities().event_fd, 0));
  b.link(0);
  a.link(1);
  ASSERT_TRUE(until([&] {
    if (a.transport.arm()) {
      EXPECT_TRUE(readable(a.transport.capabilities().event_fd, 2000));
    }
    a.poll();
    b.poll();
    return a.transport.connected(1) && b.transport.connected(0);
  }));
  for (int i = 0; i < 3; ++i) a.poll();
  ASSERT_TRUE(a.transport.arm());
  EXPECT_FALSE(readable(a.transport.capabilities().event_fd, 0));
}

// ---- Threads: each owns a transport ----

TEST(TcpTransport, RunsInTwoThreads) {
  constexpr uint32_t kRounds = 300;
  constexpr size_t kBytes = 50'000;
  LocalNetwork network(2, Kind::loopback);
  const auto run = [&](int rank) {
    Node node(rank, 2, network.source(rank), {.streams = 2}, kBytes);
    const int peer = 1 - rank;
    node.link(peer);
    ASSERT_TRUE(until([&] {
      node.poll();
      return node.transport.connected(peer);
    }));
    const auto source = pattern(kBytes, static_cast<unsigned>(rank));
    for (uint32_t round = 0; round < kRounds; ++round) {
      ASSERT_NE(node.put(peer, source, 0, round), Posted::lost);
      ASSERT_TRUE(until([&] {
        if (node.transport.arm()) readable(node.transport.capabilities().event_fd, 1);
        node.poll();
        return node.notices.size() > round;
      }));
    }
    EXPECT_TRUE(node.region == pattern(kBytes, static_cast<unsigned>(peer)));
    // Nobody leaves before both have all.
    Posted last = Posted::full;
    ASSERT_TRUE(until([&] {
      if (last == Posted::full) last = node.put(peer, {}, 0, kRounds);
      node.poll();
      return last == Posted::done && node.notices.size() > kRounds;
    }));
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
}

}  // namespace
}  // namespace ropewalk::tcp
