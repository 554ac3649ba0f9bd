// What goes wrong between two verbs transports has a name, and costs that peer only.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "tests/rdma/machine.h"
#include "tests/rdma/verbs_group.h"

namespace ropewalk::testing {
namespace {

using namespace std::chrono_literals;

TEST(VerbsFaults, AWrongKeyIsRefusedAndNamed) {
  VerbsGroup group(3, 1);
  group.link(0, 1);
  group.link(0, 2);
  const Piece source(group.at(0), 8192), target(group.at(1), 8192);
  RemoteKey key = target.registration()->key();
  key.id ^= 0xff;
  ASSERT_NE(group.at(0).put({.peer = 1,
                             .source = source.memory.data(),
                             .source_memory = source.registration(),
                             .bytes = 8192,
                             .key = key,
                             .notice = 7}),
            Posted::lost);
  ASSERT_TRUE(group.until({0, 1, 2}, [&] { return !group.at(0).connected(1); }));
  EXPECT_NE(group.at(0).why_lost(1).text.find("remote key"), std::string::npos)
      << group.at(0).why_lost(1).text;
  EXPECT_NE(group.at(0).why_lost(1).text.find(kAdapter), std::string::npos)
      << group.at(0).why_lost(1).text;
  ASSERT_TRUE(group.until({0, 1, 2}, [&] { return !group.at(1).connected(0); }));
  EXPECT_TRUE(group.at(0).connected(2));
  EXPECT_EQ(std::count(target.memory.data(), target.memory.data() + 8192, std::byte{0}), 8192);
}

TEST(VerbsFaults, ARegionThatHasGoneIsNotWritten) {
  VerbsGroup group(2, 1);
  group.link(0, 1);
  const Piece source(group.at(0), 8192);
  auto target = std::make_unique<Piece>(group.at(1), 8192);
  const RemoteKey key = target->registration()->key();
  target.reset();
  group.at(0).put({.peer = 1,
                   .source = source.memory.data(),
                   .source_memory = source.registration(),
                   .bytes = 8192,
                   .key = key,
                   .notice = 7});
  ASSERT_TRUE(group.until({0, 1}, [&] { return !group.at(0).connected(1); }));
}

TEST(VerbsFaults, GarbageInTheHandshakeIsRefused) {
  for (const size_t garbage_bytes : {size_t{1}, size_t{19}, size_t{20}, size_t{4096}}) {
    VerbsGroup group(2, 1);
    group.at(0).connect(1, {});
    ConnectedSocket connected;
    while (!connected) connected = group.sockets(1).take(0, 0);
    const int socket = connected.fd.get();
    const std::vector<std::byte> garbage(garbage_bytes, std::byte{0x5a});
    ASSERT_EQ(::send(socket, garbage.data(), garbage.size(), 0),
              static_cast<ssize_t>(garbage.size()));
    ::shutdown(socket, SHUT_WR);
    ASSERT_TRUE(group.until({0}, [&] { return !group.at(0).why_lost(1).text.empty(); }));
    EXPECT_FALSE(group.at(0).connected(1));
  }
}

/// What a rank would say whose queue pair 17 lies on the adapter's port.
verbs::Handshake handshake_of(uint32_t rank) {
  verbs::Handshake handshake;
  handshake.rank = rank;
  handshake.notices = 64;
  handshake.lanes = {{verbs::address_of(verbs::find_ports({}).ports.at(0), {}), 17, 0, 0}};
  return handshake;
}

/// Takes `rank`'s end of the socket to rank 0, and says that there.
UniqueFd say_to_rank_0(VerbsGroup& group, int rank, const std::vector<std::byte>& bytes) {
  ConnectedSocket socket;
  while (!socket) socket = group.sockets(rank).take(0, 0);
  std::vector<std::byte> sealed;
  SecureChannel(socket.keys).seal(bytes, sealed);
  EXPECT_EQ(::send(socket.fd.get(), sealed.data(), sealed.size(), 0),
            static_cast<ssize_t>(sealed.size()));
  return std::move(socket.fd);
}

// The kernel looks for each for a second or longer. Once all such were looked for in one poll.
TEST(VerbsFaults, PeersToWhichThereIsNoWayAreNamedOneByOne) {
  VerbsGroup group(4, 1);
  std::vector<UniqueFd> sockets;
  for (const int peer : {1, 2}) {
    group.at(0).connect(peer, {});
    verbs::Handshake handshake = handshake_of(static_cast<uint32_t>(peer));
    handshake.lanes[0].port.gid.back() = std::byte{77};  // 10.99.0.77
    sockets.push_back(say_to_rank_0(group, peer, verbs::encode(handshake)));
  }
  std::array<Completion, 8> into;
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  for (int lost = 0; lost < 2;) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    const auto given_out = group.at(0).poll(into);
    ASSERT_LE(given_out, 1u);
    lost += static_cast<int>(given_out);
    if (given_out == 0) group.at(0).arm();
  }
  for (const int peer : {1, 2})
    EXPECT_NE(group.at(0).why_lost(peer).text.find("no route to it"), std::string::npos)
        << group.at(0).why_lost(peer).text;
  group.link(0, 3);
}

TEST(VerbsFaults, BytesAfterTheHandshakeAreRefused) {
  VerbsGroup group(2, 1);
  group.at(0).connect(1, {});
  auto bytes = verbs::encode(handshake_of(1));
  bytes.push_back(verbs::kReady);
  bytes.push_back(verbs::kReady);
  const UniqueFd socket = say_to_rank_0(group, 1, bytes);
  ASSERT_TRUE(group.until({0}, [&] { return !group.at(0).why_lost(1).text.empty(); }));
  EXPECT_EQ(group.at(0).why_lost(1).text, "it sent bytes after its handshake");
}

// Once that was thrown, also at the thread that makes progress, and so ended the process.
TEST(VerbsFaults, ASocketThatCannotBeWatchedCostsItsPeerOnly) {
  VerbsGroup group(3, 1);
  group.link(0, 1);
  const std::string limit = output_of("cat /proc/sys/fs/epoll/max_user_watches");
  const long watches = std::atol(output_of("cat /proc/[0-9]*/fdinfo/* | grep -c tfd:").c_str());
  shell(fmt::format("echo {} >/proc/sys/fs/epoll/max_user_watches", watches + 1));  // for sockets
  group.at(0).connect(2, {});
  EXPECT_TRUE(group.until({0, 1}, [&] { return !group.at(0).why_lost(2).text.empty(); }));
  shell("echo " + limit.substr(0, limit.find('\n')) + " >/proc/sys/fs/epoll/max_user_watches");
  EXPECT_EQ(group.at(0).why_lost(2).text, "cannot watch its socket: No space left on device");
  EXPECT_EQ(group.at(0).why_lost(2).advice, "raise the limit: sysctl fs.epoll.max_user_watches");
  EXPECT_TRUE(group.at(0).connected(1));
}

TEST(VerbsFaults, AnotherNumberOfLanesIsRefused) {
  VerbsGroup group(2, 2, [](int rank, auto&, VerbsTransport::Options& options) {
    if (rank == 1) options.lanes[0].pop_back();
  });
  group.at(0).connect(1, {});
  group.at(1).connect(0, {});
  ASSERT_TRUE(group.until({0, 1}, [&] {
    return !group.at(0).why_lost(1).text.empty() && !group.at(1).why_lost(0).text.empty();
  }));
  EXPECT_NE(group.at(0).why_lost(1).text.find("ROPEWALK_IB_LANES"), std::string::npos);
}

TEST(VerbsFaults, DifferentLimitsOfTheMtuWorkTogether) {
  VerbsGroup group(2, 1, [](int rank, auto&, VerbsTransport::Options& options) {
    options.settings.mtu_max = rank == 0 ? IBV_MTU_1024 : IBV_MTU_4096;
  });
  group.link(0, 1);
  constexpr size_t kBytes = 100'000;
  const Piece a(group.at(0), kBytes), b(group.at(1), kBytes);
  for (const int from : {0, 1}) {
    const Piece& source = from == 0 ? a : b;
    const Piece& target = from == 0 ? b : a;
    std::memset(source.memory.data(), 7 + from, kBytes);
    std::array<Completion, 8> into;
    ASSERT_NE(group.at(from).put({.peer = 1 - from,
                                  .source = source.memory.data(),
                                  .source_memory = source.registration(),
                                  .bytes = kBytes,
                                  .key = target.registration()->key(),
                                  .notice = 1}),
              Posted::lost);
    const auto deadline = std::chrono::steady_clock::now() + 5s;
    while (group.at(1 - from).poll(into) == 0)
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    EXPECT_EQ(std::memcmp(source.memory.data(), target.memory.data(), kBytes), 0);
    ASSERT_TRUE(group.until({0, 1}, [&] { return true; }));
  }
}

// Once the last bytes of a put were in no lane's piece where a piece was a whole number of packets.
TEST(VerbsFaults, NoLengthLosesBytesBetweenLanes) {
  constexpr size_t kStripe = verbs::kStripeBytes;
  for (const size_t lanes : {size_t{2}, size_t{3}, size_t{8}}) {
    VerbsGroup group(2, lanes);
    group.link(0, 1);
    const size_t even = lanes * 40960;
    const Piece source(group.at(0), even + lanes), target(group.at(1), even + lanes);
    for (size_t i = 0; i < even + lanes; ++i)
      source.memory.data()[i] = static_cast<std::byte>(1 + i % 251);
    for (const size_t bytes : {kStripe - 1, kStripe, kStripe + 1, 2 * kStripe + 1, even - 1, even,
                               even + 1, even + lanes - 1, even + lanes}) {
      std::memset(target.memory.data(), 0, even + lanes);
      ASSERT_EQ(group.at(0).put({.peer = 1,
                                 .source = source.memory.data(),
                                 .source_memory = source.registration(),
                                 .bytes = bytes,
                                 .key = target.registration()->key(),
                                 .notice = 1}),
                Posted::posted);
      std::array<Completion, 8> into;
      size_t there = 0, done = 0;
      const auto deadline = std::chrono::steady_clock::now() + 5s;
      while (there == 0 || done == 0) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline) << bytes << " over " << lanes;
        there += group.at(1).poll(into);
        done += group.at(0).poll(std::span(into).last(1));
      }
      EXPECT_EQ(std::memcmp(source.memory.data(), target.memory.data(), bytes), 0)
          << bytes << " over " << lanes;
    }
  }
}

// The completion queue, of 4096 entries at first, must be longer for them.
TEST(VerbsFaults, ManyPeersMayPutAllThatTheyMayAtOnce) {
  constexpr int kPeers = 17;
  VerbsGroup group(1 + kPeers, 1);
  for (int peer = 1; peer <= kPeers; ++peer) group.link(0, peer);
  std::array<uint32_t, 1 + kPeers> put{}, got{};
  for (int peer = 1; peer <= kPeers; ++peer)
    while (group.at(peer).put({.peer = 0, .notice = 7}) != Posted::full)
      ++put[static_cast<size_t>(peer)];
  EXPECT_GT(std::accumulate(put.begin(), put.end(), 0u), 4096u);
  std::array<Completion, 64> into;
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  while (got != put && std::chrono::steady_clock::now() < deadline)
    for (const Completion& completion : std::span(into).first(group.at(0).poll(into))) {
      ASSERT_EQ(completion.kind, Completion::Kind::notice)
          << group.at(0).why_lost(completion.peer).text;
      ++got[static_cast<size_t>(completion.peer)];
    }
  EXPECT_EQ(got, put);
}

// Once who had been told `full` slept on: `poll` takes credits and says nothing.
TEST(VerbsFaults, CreditsEndASleep) {
  VerbsGroup group(2, 1);
  group.link(0, 1);
  std::array<Completion, 64> into;
  for (int round = 0; round < 5; ++round) {
    while (group.at(0).put({.peer = 1, .notice = 7}) == Posted::done) {
    }
    for (size_t taken = 0; taken < 100;) taken += group.at(1).poll(into);
    std::this_thread::sleep_for(50ms);  // the credits are there, except for a very slow machine
    while (group.at(0).put({.peer = 1, .notice = 7}) == Posted::full) {
      EXPECT_EQ(group.at(0).poll(into), 0U);
      pollfd event{group.at(0).capabilities().event_fd, POLLIN, 0};
      if (group.at(0).arm()) {
        ASSERT_EQ(::poll(&event, 1, 2000), 1);
      }
    }
  }
}

TEST(VerbsFaults, WhatCameBeforeALossIsGivenOut) {
  VerbsGroup group(2, 1);
  group.link(0, 1);
  constexpr uint32_t kNotices = 5;
  for (uint32_t i = 0; i < kNotices; ++i)
    ASSERT_EQ(group.at(1).put({.peer = 0, .notice = i}), Posted::done);
  group.end(1);
  EXPECT_FALSE(group.at(0).arm());  // sees all of it at once
  std::vector<uint32_t> got;
  bool lost = false;
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  while (!lost && std::chrono::steady_clock::now() < deadline) {
    std::array<Completion, 1> one;
    if (group.at(0).poll(one) == 0) {
      group.at(0).arm();
      continue;
    }
    lost = one[0].kind == Completion::Kind::lost;
    if (!lost) got.push_back(one[0].notice);
  }
  EXPECT_TRUE(lost);
  EXPECT_EQ(got, (std::vector<uint32_t>{0, 1, 2, 3, 4}));
}

TEST(VerbsFaults, AnUnpluggedPortLosesItsPeers) {
  VerbsGroup group(2, 1);
  group.link(0, 1);
  const Unplugged unplugged;
  ASSERT_TRUE(
      group.until({0, 1}, [&] { return !group.at(0).connected(1) && !group.at(1).connected(0); }));
  EXPECT_NE(group.at(0).why_lost(1).text.find("rank 0's rxe0 port 1 is down"), std::string::npos)
      << group.at(0).why_lost(1).text;
}

TEST(VerbsFaults, ALinkMadeWhileAPortFlapsStands) {
  VerbsGroup group(4, 1, [](int, auto&, VerbsTransport::Options& options) {
    options.port_down_max_ns = 20'000'000'000;
  });
  {
    const Unplugged unplugged;
    for (const int peer : {1, 2, 3}) group.at(0).connect(peer, {});
    group.at(1).connect(0, {});
    std::array<Completion, 8> none;
    for (const int rank : {0, 1}) EXPECT_EQ(group.at(rank).poll(none), 0u);
    EXPECT_FALSE(group.at(0).arm());  // no event would tell when the wait is over
    group.at(0).drop(2);
    EXPECT_EQ(group.at(0).put({.peer = 3, .notice = 1}), Posted::full);
  }
  group.link(0, 1);
}

TEST(VerbsFaults, ALinkOverAPortThatStaysDownNamesIt) {
  VerbsGroup group(2, 1);
  const Unplugged unplugged;
  group.at(0).connect(1, {});
  ASSERT_TRUE(group.until({0}, [&] { return !group.at(0).why_lost(1).text.empty(); }));
  EXPECT_EQ(group.at(0).why_lost(1).text, "rank 0's rxe0 port 1: is DOWN");
  EXPECT_EQ(group.at(0).why_lost(1).advice, "sudo ip link set link0 up");
}

// Keys' addresses begin where the memory begins within 2 MiB.
TEST(VerbsFaults, PlainMemoryIsReachedWhereverItBegins) {
  constexpr size_t kHuge = 2 << 20, kBytes = 100'000;
  VerbsGroup group(2, 1);
  group.link(0, 1);
  const Piece source(group.at(0), kBytes);
  std::vector<std::byte> room(3 * kHuge);
  const auto begin = reinterpret_cast<uintptr_t>(room.data());
  std::byte* const huge = room.data() + (kHuge - begin % kHuge);
  uint8_t round = 1;
  for (std::byte* target : {huge, huge + 4096, huge + 5000, huge + kHuge - kBytes / 2}) {
    std::memset(source.memory.data(), ++round, kBytes);
    const auto memory = group.at(1).register_memory({target, kBytes});
    const RemoteKey key = memory->key();
    EXPECT_GE(memory->base() + key.bytes, target + kBytes);
    const auto offset = static_cast<uint64_t>(target - memory->base());
    ASSERT_NE(group.at(0).put({.peer = 1,
                               .source = source.memory.data(),
                               .source_memory = source.registration(),
                               .bytes = kBytes,
                               .key = key,
                               .offset = offset,
                               .notice = 1}),
              Posted::lost);
    ASSERT_TRUE(group.until(
        {0, 1}, [&] { return std::memcmp(target, source.memory.data(), kBytes) == 0; }));
    EXPECT_TRUE(group.at(0).connected(1)) << group.at(0).why_lost(1).text;
  }
}

TEST(VerbsFaults, APortThatIsDownCannotBeUsed) {
  const Unplugged unplugged;
  const auto [ports, infos, why_not] = verbs::find_ports({});
  EXPECT_TRUE(ports.empty());
  ASSERT_FALSE(why_not.empty());
  EXPECT_NE(why_not[0].find(kAdapter), std::string::npos) << why_not[0];
}

TEST(VerbsFaults, AGidThatIsNotThereIsNamed) {
  const auto [ports, infos, why_not] = verbs::find_ports({.hca = "", .gid_index = 77});
  EXPECT_TRUE(ports.empty());
  ASSERT_FALSE(why_not.empty());
  EXPECT_NE(why_not[0].find("77"), std::string::npos) << why_not[0];
}

TEST(VerbsFaults, NoRegistrationIsLeftBehind) {
  const std::string before = objects_in_use();
  {
    VerbsGroup group(2, 2);
    group.link(0, 1);
    const Piece piece(group.at(0), 1 << 20);
    EXPECT_NE(objects_in_use(), before);
  }
  EXPECT_EQ(objects_in_use(), before);
}

}  // namespace
}  // namespace ropewalk::testing
