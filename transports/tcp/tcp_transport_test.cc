#include "transports/tcp/tcp_transport.h"

#include <gtest/gtest.h>

#include <cstring>

#include "transports/tcp/test_node.h"

namespace ropewalk::tcp {
namespace {

// ---- Every kind of socket and number of streams ----

class Links : public testing::TestWithParam<std::tuple<Kind, int, bool, bool>> {
 protected:
  Kind kind() const { return std::get<0>(GetParam()); }
  TcpTransport::Options options() const {
    return {.streams = std::get<1>(GetParam()), .secure = std::get<3>(GetParam())};
  }
  // Tiny: what the kernel at least gives; over loopback one segment, as with less TCP's timers
  // rule.
  int socket_buffer_bytes() const {
    if (!std::get<2>(GetParam())) return 0;
    return kind() == Kind::unix_sockets ? 1 : 64 << 10;
  }
};

TEST_P(Links, CarryPutsOfEverySizeBothWaysAtOnce) {
  const std::vector<size_t> sizes = {
      0, 1, 7, 215, 216, 217, 4095, 0, 65536, 65537, 256 << 10, 1000003, size_t{5} << 20, 3, 0};
  const size_t total = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
  Job job(2, kind(), options(), total, socket_buffer_bytes());
  job.link_all();
  const std::array sources = {pattern(total, 1), pattern(total, 2)};
  std::array<size_t, 2> next{}, offset{}, immediate{};
  ASSERT_TRUE(until([&] {
    for (int rank = 0; rank < 2; ++rank) {
      const auto r = static_cast<size_t>(rank);
      if (next[r] < sizes.size()) {
        const size_t bytes = sizes[next[r]];
        const Posted posted =
            job[rank].put(1 - rank, std::span(sources[r]).subspan(offset[r], bytes), offset[r],
                          static_cast<uint32_t>(next[r] + 100), next[r]);
        if (posted == Posted::done) ++immediate[r];
        if (posted == Posted::done || posted == Posted::posted) {
          ++next[r];
          offset[r] += bytes;
        }
      }
      job[rank].poll();
    }
    return job[0].notices.size() == sizes.size() && job[1].notices.size() == sizes.size() &&
           job[0].finished.size() + immediate[0] == sizes.size() &&
           job[1].finished.size() + immediate[1] == sizes.size();
  }));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(job[rank].region == sources[static_cast<size_t>(1 - rank)]);
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(job[rank].notices[i].notice, i + 100);
      EXPECT_EQ(job[rank].notices[i].peer, 1 - rank);
    }
    EXPECT_TRUE(std::is_sorted(job[rank].finished.begin(), job[rank].finished.end()));
    EXPECT_TRUE(job[rank].lost.empty());
  }
}

// A notice that comes means that its bytes, and those of all puts before it, are there.
TEST_P(Links, GiveNoticesInOrderAndNotBeforeTheBytes) {
  constexpr size_t kLarge = 700'001, kSmall = 16, kRounds = 12;
  constexpr size_t kStep = kLarge + kSmall;
  Job job(2, kind(), options(), kStep * kRounds, socket_buffer_bytes());
  job.link_all();
  const std::vector<std::byte> source = pattern(kStep * kRounds, 3);
  size_t posted = 0, seen = 0;
  ASSERT_TRUE(until([&] {
    if (posted < 2 * kRounds) {
      const size_t at = posted / 2 * kStep + posted % 2 * kLarge;
      const size_t bytes = posted % 2 == 0 ? kLarge : kSmall;
      const Posted result =
          job[0].put(1, std::span(source).subspan(at, bytes), at, static_cast<uint32_t>(posted));
      if (result != Posted::full) ++posted;
    }
    job[0].poll();
    job[1].poll(1);
    for (; seen < job[1].notices.size(); ++seen) {
      EXPECT_EQ(job[1].notices[seen].notice, seen);
      const size_t at = seen / 2 * kStep + seen % 2 * kLarge;
      const size_t bytes = seen % 2 == 0 ? kLarge : kSmall;
      EXPECT_EQ(std::memcmp(job[1].region.data() + at, source.data() + at, bytes), 0);
    }
    return seen == 2 * kRounds;
  }));
}

TEST_P(Links, HoldSmallPutsBackFromGatherToRelease) {
  Job job(2, kind(), options(), 4096, socket_buffer_bytes());
  job.link_all();
  const std::vector<std::byte> source = pattern(4096, 5);
  job[0].transport.set_batching(true);
  for (uint32_t i = 0; i < 4; ++i) {
    std::vector<std::byte> bytes(source.begin() + i * 100, source.begin() + (i + 1) * 100);
    const Posted posted = job[0].put(1, i == 2 ? std::span<std::byte>() : bytes, i * 100, i);
    if (options().streams > 1) continue;
    EXPECT_EQ(posted, Posted::done);
    std::fill(bytes.begin(), bytes.end(), std::byte{});  // `done`: the source is free
    job[1].poll();
    EXPECT_TRUE(job[1].notices.empty());
  }
  job[0].transport.set_batching(false);
  ASSERT_TRUE(until([&] {
    if (options().streams > 1) job[0].poll();
    job[1].poll();
    return job[1].notices.size() == 4;
  }));
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(job[1].notices[i].notice, i);
  if (options().streams == 1) {
    EXPECT_TRUE(std::equal(source.begin(), source.begin() + 200, job[1].region.begin()));
    EXPECT_TRUE(
        std::equal(source.begin() + 300, source.begin() + 400, job[1].region.begin() + 300));
  }
}

// Eight puts of 4 KiB left in one write of 33 KiB, and the peer began with the first when a network
// in software had taken all: an all_reduce of 64 KiB on 16 hosts took a quarter longer.
TEST(TcpTransport, ABatchOfUrgentPutsLeavesBeforeItIsLong) {
  Job job(2, Kind::loopback, {}, 1 << 20);
  job.link_all();
  std::vector<std::byte> source = pattern(4096, 9);
  uint32_t held = 0;
  const auto put = [&] {
    return job[0].transport.put({.peer = 1,
                                 .source = source.data(),
                                 .bytes = source.size(),
                                 .key = job[0].key_of(1),
                                 .offset = held * source.size(),
                                 .notice = held,
                                 .urgent = true});
  };
  job[0].transport.set_batching(true);
  while (held < 8 && put() == Posted::done) ++held;
  EXPECT_EQ(held, 3U);
  job[1].poll();
  EXPECT_TRUE(job[1].notices.empty());
  job[0].transport.set_batching(false);
  ASSERT_TRUE(until([&] {
    job[1].poll();
    return job[1].notices.size() == held;
  }));
  EXPECT_EQ(put(), Posted::done);
}

// Puts of every length between small and large while the socket takes them, takes a part, and takes
// nothing: the receiver looks only when the sender can do no more.
TEST_P(Links, KeepTheOrderOfHeldAndOtherPuts) {
  constexpr size_t kPuts = 600;
  const std::vector<std::byte> source = pattern(1 << 20, 6);
  const auto length = [](size_t i) { return i % 37 == 36 ? size_t{300'000} : i * 67 % 3000; };
  size_t total = 0;
  for (size_t i = 0; i < kPuts; ++i) total += length(i);
  Job job(2, kind(), options(), total, socket_buffer_bytes());
  job.link_all();
  size_t posted = 0, at = 0, done = 0;
  ASSERT_TRUE(until([&] {
    job[0].transport.set_batching(true);
    bool full = false;
    for (size_t i = 0; i < 5 && posted < kPuts && !full; ++i) {
      const Posted result = job[0].put(1, std::span(source).first(length(posted)), at,
                                       static_cast<uint32_t>(posted), posted);
      full = result == Posted::full;
      if (result == Posted::done) ++done;
      if (!full) at += length(posted++);
    }
    job[0].transport.set_batching(false);
    job[0].poll();
    if (full || posted == kPuts) job[1].poll();
    return job[1].notices.size() == kPuts && done + job[0].finished.size() == kPuts;
  }));
  at = 0;
  for (size_t i = 0; i < kPuts; at += length(i++)) {
    ASSERT_EQ(job[1].notices[i].notice, i);
    ASSERT_EQ(std::memcmp(job[1].region.data() + at, source.data(), length(i)), 0);
  }
  EXPECT_TRUE(std::is_sorted(job[0].finished.begin(), job[0].finished.end()));
}

// More puts than the sender's queue and the receiver's window hold, and a receiver that does not
// look for a while.
TEST_P(Links, AreFullAndThenGoOn) {
  Job job(2, kind(), options(), 1 << 20, socket_buffer_bytes());
  job.link_all();
  const std::vector<std::byte> source = pattern(1 << 20, 4);
  uint32_t posted = 0;
  ASSERT_TRUE(until([&] {
    const Posted result = job[0].put(1, source, 0, posted);
    if (result != Posted::full) ++posted;
    return result == Posted::full;
  }));
  ASSERT_GE(posted, 128u);
  constexpr uint32_t kNotices = 1500;
  for (; posted < kNotices;) {
    if (job[0].put(1, {}, 0, posted) != Posted::full) {
      ++posted;
    } else {
      job[0].poll();
      job[1].poll(1);
    }
  }
  ASSERT_TRUE(until([&] {
    job.poll_all();
    return job[1].notices.size() == kNotices;
  }));
  for (uint32_t i = 0; i < kNotices; ++i) ASSERT_EQ(job[1].notices[i].notice, i);
  EXPECT_TRUE(job[1].region == source);
}

TEST_P(Links, DeliverWhatCameBeforeTheEnd) {
  Job job(2, kind(), options(), 1 << 20, socket_buffer_bytes());
  job.link_all();
  const std::vector<std::byte> source = pattern(1 << 20, 5);
  size_t under_way = 0;
  for (uint32_t i = 0; i < 20; ++i)
    if (job[0].put(1, source, 0, i) == Posted::posted) ++under_way;
  ASSERT_TRUE(until([&] {
    job[0].poll();
    const bool all_sent = !job[0].transport.has_unsent();
    if (!all_sent || under_way > job[0].finished.size()) job[1].poll();
    return all_sent && under_way == job[0].finished.size();
  }));
  job.nodes[0].reset();
  ASSERT_TRUE(until([&] {
    job[1].poll();
    return !job[1].lost.empty();
  }));
  EXPECT_EQ(job[1].notices.size(), 20u);
  EXPECT_EQ(job[1].lost, std::vector{0});
  EXPECT_EQ(job[1].transport.why_lost(0).text, "connection closed by the peer");
  EXPECT_EQ(job[1].transport.put({.peer = 0}), Posted::lost);
  for (int i = 0; i < 10; ++i) job[1].poll();
  EXPECT_EQ(job[1].lost.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Tcp, Links,
    testing::Combine(testing::Values(Kind::unix_sockets, Kind::loopback),
                     testing::Values(1, 2, 3, 4), testing::Bool(), testing::Bool()),
    [](const auto& tested) {
      return std::string(std::get<0>(tested.param) == Kind::loopback ? "Loopback" : "Unix") +
             std::to_string(std::get<1>(tested.param)) +
             (std::get<2>(tested.param) ? "TinyBuffers" : "") +
             (std::get<3>(tested.param) ? "Sealed" : "");
    });

// ---- Several peers ----

TEST(TcpTransport, InterleavesPeers) {
  constexpr int kRanks = 7;  // more sockets than are read in turn
  constexpr size_t kBytes = 300'000;
  Job job(kRanks, Kind::unix_sockets, {}, kRanks * kBytes);
  job.link_all();
  std::vector<std::vector<std::byte>> sources;
  for (int rank = 0; rank < kRanks; ++rank)
    sources.push_back(pattern(kBytes, static_cast<unsigned>(rank)));
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      EXPECT_NE(job[rank].put(peer, sources[r], r * kBytes, 1), Posted::full);
      EXPECT_NE(job[rank].put(peer, {}, 0, 2), Posted::full);
    }
  }
  ASSERT_TRUE(until([&] {
    job.poll_all();
    return std::all_of(job.nodes.begin(), job.nodes.end(),
                       [](auto& node) { return node->notices.size() == 2 * (kRanks - 1); });
  }));
  for (int rank = 0; rank < kRanks; ++rank)
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      const auto p = static_cast<size_t>(peer);
      EXPECT_EQ(std::memcmp(job[rank].region.data() + p * kBytes, sources[p].data(), kBytes), 0);
    }
}

TEST(TcpTransport, UrgentPutsOvertakeThoseThatWait) {
  for (const int streams : {1, 3}) {
    constexpr size_t kBytes = 4'000'000;
    constexpr uint32_t kPuts = 4, kUrgent = 1000;
    Job job(2, Kind::unix_sockets, {.streams = streams}, kPuts * kBytes + 8);
    job.link_all();
    const auto source = pattern(kBytes, 1), word = pattern(8, 2);
    // Nobody reads: the first put fills the sockets, the others wait.
    for (uint32_t i = 0; i < kPuts; ++i)
      ASSERT_EQ(job[0].put(1, source, i * kBytes, i), Posted::posted);
    for (uint32_t i = 0; i < 2; ++i)
      ASSERT_EQ(job[0].transport.put({.peer = 1,
                                      .source = word.data(),
                                      .bytes = i * word.size(),
                                      .key = job[0].key_of(1),
                                      .offset = kPuts * kBytes,
                                      .notice = kUrgent + i,
                                      .urgent = true}),
                Posted::done);
    ASSERT_TRUE(until([&] {
      job.poll_all();
      return job[1].notices.size() == kPuts + 2;
    }));
    std::vector<uint32_t> order;
    for (const Completion& c : job[1].notices) order.push_back(c.notice);
    const auto urgent = std::find(order.begin(), order.end(), kUrgent);
    EXPECT_LE(urgent - order.begin(), 1) << streams << " streams";
    EXPECT_EQ(*(urgent + 1), kUrgent + 1);
    for (uint32_t i = 0; i < kPuts; ++i)
      EXPECT_EQ(std::memcmp(job[1].region.data() + i * kBytes, source.data(), kBytes), 0);
    EXPECT_EQ(std::memcmp(job[1].region.data() + kPuts * kBytes, word.data(), 8), 0);
  }
}

TEST(TcpTransport, LosesOnlyThePeerThatWent) {
  Job job(6, Kind::loopback, {}, 64);
  job.link_all();
  job.nodes[3].reset();
  ASSERT_TRUE(until([&] {
    job[0].poll();
    return !job[0].lost.empty();
  }));
  EXPECT_EQ(job[0].lost, std::vector{3});
  EXPECT_TRUE(job[0].transport.connected(1));
  EXPECT_FALSE(job[0].transport.connected(3));
  EXPECT_EQ(job[0].put(5, {}, 0, 9), Posted::done);
  ASSERT_TRUE(until([&] {
    job[5].poll();
    return !job[5].notices.empty();
  }));
}

TEST(TcpTransport, DropsAPeerInSilence) {
  Job job(2, Kind::loopback, {}, 64);
  job.link_all();
  EXPECT_EQ(job[0].put(1, {}, 0, 1), Posted::done);
  job[1].transport.drop(0);
  EXPECT_EQ(job[1].transport.put({.peer = 0}), Posted::lost);
  for (int i = 0; i < 10; ++i) job[1].poll();
  EXPECT_TRUE(job[1].lost.empty());
  EXPECT_TRUE(job[1].notices.empty());
  ASSERT_TRUE(until([&] {
    job[0].poll();
    return !job[0].lost.empty();
  }));
}

// It took the first fence for the second, and what lay between them for what came after.
TEST(TcpTransport, RestartsAgainBeforeItHasReadOfTheFirstTime) {
  Job job(2, Kind::loopback, {}, 64);
  job.link_all();
  const auto restart = [](TcpTransport& transport) {
    transport.set_stopped(true);
    transport.set_stopped(false);
  };
  restart(job[0].transport);
  EXPECT_EQ(job[0].put(1, pattern(16, 1), 0, 1), Posted::done);
  restart(job[0].transport);
  EXPECT_EQ(job[0].put(1, pattern(16, 2), 16, 2), Posted::done);
  restart(job[1].transport);
  restart(job[1].transport);
  ASSERT_TRUE(until([&] {
    job.poll_all();
    return !job[1].notices.empty();
  }));
  ASSERT_EQ(job[1].notices.size(), 1u);
  EXPECT_EQ(job[1].notices[0].notice, 2u);
  EXPECT_EQ(job[1].region[0], std::byte{0});
  EXPECT_TRUE(job[1].lost.empty());
}

// ---- Set-up ----

TEST(TcpTransport, RefusesNonsense) {
  LocalNetwork network(2, Kind::unix_sockets);
  EXPECT_THROW(TcpTransport(0, 2, network.source(0), {.streams = 0}), Error);
  EXPECT_THROW(TcpTransport(0, 2, network.source(0), {.streams = 17}), Error);
  EXPECT_THROW(TcpTransport(2, 2, network.source(0), {}), Error);
  TcpTransport transport(0, 2, network.source(0), {});
  EXPECT_THROW(transport.connect(0, {}), Error);
  EXPECT_THROW(transport.connect(2, {}), Error);
  EXPECT_THROW(transport.connect(1, std::vector<std::byte>(257)), Error);
  EXPECT_THROW(transport.register_memory({}), Error);
  EXPECT_FALSE(transport.connected(1));
}

TEST(TcpTransport, CarriesTheLargestHello) {
  LocalNetwork network(2, Kind::loopback);
  TcpTransport a(0, 2, network.source(0), {.streams = 2});
  TcpTransport b(1, 2, network.source(1), {.streams = 2});
  const auto hello = pattern(kHelloBytesMax, 8);
  a.connect(1, hello);
  a.connect(1, {});  // does nothing
  b.connect(0, {});
  ASSERT_TRUE(until([&] {
    std::array<Completion, 1> none;
    EXPECT_EQ(a.poll(none) + b.poll(none), 0u);
    return a.connected(1) && b.connected(0);
  }));
  EXPECT_TRUE(std::ranges::equal(*b.hello_of(0), hello));
  EXPECT_TRUE(a.hello_of(1)->empty());
}

TEST(TcpTransport, NamesDifferentNumbersOfStreams) {
  LocalNetwork network(2, Kind::loopback);
  Node a(0, 2, network.source(0), {}, 64), b(1, 2, network.source(1), {.streams = 3}, 64);
  a.link(1);
  b.link(0);
  ASSERT_TRUE(until([&] {
    a.poll();
    b.poll();
    return !a.lost.empty() && !b.lost.empty();
  }));
  const std::string why = a.transport.why_lost(1).text + b.transport.why_lost(0).text;
  EXPECT_NE(why.find("ROPEWALK_TCP_STREAMS"), std::string::npos) << why;
}

}  // namespace
}  // namespace ropewalk::tcp
