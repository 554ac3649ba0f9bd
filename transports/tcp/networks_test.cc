#include "transports/tcp/networks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "ropewalk/status.h"
#include "transports/tcp/test_node.h"

namespace ropewalk::tcp {
namespace {

using Texts = std::vector<std::string>;

TEST(SharedNetworks, AreThoseOfOneSpeed) {
  EXPECT_EQ(shared_networks(
                {"10.77.0.1/24@10000 10.78.0.1/24@10000", "10.77.0.2/24@10000 10.78.0.2/24@10000"}),
            (Texts{"10.77.0.0/24", "10.78.0.0/24"}));
  EXPECT_EQ(shared_networks({"fd00:1::1/64@200000 fd00:2::1/64@200000",
                             "fd00:2::2/64@200000 fd00:1::2/64@200000"}),
            (Texts{"fd00:1::/64", "fd00:2::/64"}));
}

TEST(SharedNetworks, DoNotDependOnTheOrderOfRanks) {
  Texts infos = {"10.1.0.1/16@100 10.2.0.1/16@100", "10.2.0.2/16@100 10.1.0.2/16@100",
                 "10.1.0.1/16@100 10.2.0.1/16@100"};
  const Texts networks = shared_networks(infos);
  EXPECT_EQ(networks.size(), 2u);
  std::ranges::reverse(infos);
  EXPECT_EQ(shared_networks(infos), networks);
}

TEST(SharedNetworks, LeaveSlowOnesOut) {
  EXPECT_EQ(shared_networks({"10.9.0.1/16@1000 10.1.0.1/16@25000 10.2.0.1/16@25000",
                             "10.9.0.2/16@1000 10.1.0.2/16@25000 10.2.0.2/16@25000"}),
            (Texts{"10.1.0.0/16", "10.2.0.0/16"}));
  EXPECT_EQ(
      shared_networks({"10.1.0.1/16@25000 10.9.0.1/16@1000", "10.1.0.2/16@25000 10.9.0.2/16@1000"}),
      Texts());
  EXPECT_EQ(shared_networks(
                {"10.1.0.1/16@25000 10.2.0.1/16@25000", "10.1.0.2/16@25000 10.2.0.2/16@1000"}),
            Texts());
}

TEST(SharedNetworks, AreNoneWhereAnotherAdapterIsFaster) {
  EXPECT_EQ(shared_networks({"10.1.0.0/31@100000 10.8.0.1/16@1000 10.9.0.1/16@1000",
                             "10.1.0.2/31@100000 10.8.0.2/16@1000 10.9.0.2/16@1000"}),
            Texts());
}

// One host's card kept all from two networks of theirs.
TEST(SharedNetworks, HeedNoFasterAdapterThatSomeHostLacks) {
  const Texts infos = {"10.1.0.1/16@25000 10.2.0.1/16@25000 10.3.0.1/31@100000",
                       "10.1.0.2/16@25000 10.2.0.2/16@25000",
                       "10.1.0.3/16@25000 10.2.0.3/16@25000"};
  EXPECT_EQ(shared_networks(infos), (Texts{"10.1.0.0/16", "10.2.0.0/16"}));
  EXPECT_EQ(unused_networks(infos), (Texts{"10.3.0.0/31: 2 of 3 hosts have no adapter to it"}));
  EXPECT_EQ(host_bytes_per_s(infos), 6250e6);
  // Nor that it has a faster one to the same network.
  EXPECT_EQ(shared_networks(
                {"10.1.0.1/16@100000 10.2.0.1/16@25000", "10.1.0.2/16@25000 10.2.0.2/16@25000"}),
            (Texts{"10.1.0.0/16", "10.2.0.0/16"}));
}

TEST(UnusedNetworks, AreToldWithTheReason) {
  EXPECT_EQ(unused_networks({"10.9.0.1/16@1000 10.1.0.1/16@25000",
                             "10.9.0.2/16@1000 "
                             "10.1.0.2/16@25000"}),
            (Texts{"10.9.0.0/16: a host's adapter to it moves 1000 Mbit/s, others 25000"}));
  EXPECT_EQ(unused_networks({"10.1.0.1/16@100 10.2.0.1/16@100", "10.1.0.2/16@100"}),
            (Texts{"10.2.0.0/16: 1 of 2 hosts has no adapter to it"}));
  EXPECT_EQ(
      unused_networks({"10.1.0.1/16@100 172.17.0.1/16@100", "10.1.0.2/16@100 172.17.0.1/16@100"}),
      (Texts{"172.17.0.0/16: hosts have the same address there, as those of bridges for "
             "containers are"}));
  EXPECT_EQ(unused_networks({"10.1.0.1/16@100 10.1.0.3/16@100", "10.1.0.2/16@100"}),
            (Texts{"10.1.0.0/16: a host has several adapters to it"}));
  EXPECT_EQ(unused_networks({"10.1.0.1/16@0 10.2.0.1/16@100", "10.1.0.2/16@0 10.2.0.2/16@100"}),
            (Texts{"10.1.0.0/16: a host's adapter to it tells no speed"}));
  EXPECT_EQ(unused_networks({"10.1.0.1/16@100 10.2.0.1/16@100", "10.1.0.2/16@100 10.2.0.2/16@100"}),
            Texts());
  EXPECT_EQ(unused_networks({"10.1.0.1/16@100", "10.2.0.2/16@100"}), Texts());
}

TEST(SharedNetworks, LeaveBridgesOut) {
  EXPECT_EQ(shared_networks(
                {"10.1.0.1/16@10000 172.17.0.1/16@10000", "10.1.0.2/16@10000 172.17.0.1/16@10000"}),
            Texts());
}

TEST(SharedNetworks, MustReachAll) {
  EXPECT_EQ(shared_networks({"10.1.0.1/16@100 10.2.0.1/16@100", "10.1.0.2/16@100 10.2.0.2/16@100",
                             "10.1.0.3/16@100"}),
            Texts());
  EXPECT_EQ(shared_networks({"10.1.0.1/16@100 10.2.0.1/16@100", ""}), Texts());
}

TEST(SharedNetworks, AreNotAskedForOnOneHost) {
  const std::string info = "10.1.0.1/16@100 10.2.0.1/16@100";
  EXPECT_EQ(shared_networks({info, info}), Texts());
}

TEST(SharedNetworks, RefuseNonsense) {
  for (const char* word : {"10.1.0.1", "10.1.0.1/16", "10.1.0.1/33@100", "10.1.0.1/-1@100",
                           "host/16@100", "10.1.0.1@100/16", "10.1.0.1/16@fast", "/@", "/16@100"})
    EXPECT_THROW(shared_networks({word, ""}), Error) << word;
}

TEST(HostRate, IsThatOfTheSlowestHost) {
  EXPECT_EQ(host_bytes_per_s({"10.1.0.1/16@1000", "10.1.0.2/16@10000"}), 125e6);
  EXPECT_EQ(host_bytes_per_s({"10.1.0.1/16@1000", "10.1.0.2/16@10000 10.9.0.2/16@100"}), 0);
  EXPECT_EQ(host_bytes_per_s({"10.1.0.1/16@1000", "10.1.0.1/16@1000"}), 125e6);
  EXPECT_EQ(
      host_bytes_per_s({"10.1.0.1/16@1000 10.2.0.1/16@1000", "10.1.0.2/16@1000 10.2.0.2/16@1000"}),
      250e6);
  EXPECT_EQ(host_bytes_per_s({"10.1.0.1/16@1000", ""}), 0);
}

TEST(LocalAdapters, AreReadAgain) {
  const std::string text = find_adapters("").text;
  EXPECT_NO_THROW(shared_networks({text, ""})) << text;
  EXPECT_THROW(find_adapters("no-such-interface"), Error);
}

// A put of which the socket took a part went on as a shorter piece than its header said where the
// network had become slower meanwhile.
TEST(Network, PutsStayWholeWhereItBecomesSlower) {
  constexpr size_t kTotal = size_t{64} << 20, kPhase = 2 << 20, kPutMin = 150'000,
                   kPutMax = 400'000;
  Job job(2, Kind::network, {}, kTotal, 128 << 10);
  job.link_all();
  const std::vector<std::byte> source = pattern(kTotal, 1);
  std::mt19937 random(7);
  size_t put = 0, puts = 0, done = 0;
  ASSERT_TRUE(until(
      [&] {
        const size_t bytes = std::min(kPutMin + random() % (kPutMax - kPutMin), kTotal - put);
        if (bytes > 0 && done + job[0].finished.size() == puts) {
          done += job[0].put(1, std::span(source).subspan(put, bytes), put, 1) == Posted::done;
          put += bytes;
          ++puts;
        }
        job[0].poll();
        job[1].poll();
        if (put / kPhase % 2 == 1) std::this_thread::sleep_for(1ms);
        return (put == kTotal && job[1].notices.size() == puts) || !job[1].lost.empty();
      },
      60s));
  EXPECT_TRUE(job[1].lost.empty());
  EXPECT_TRUE(job[1].region == source);
}

// Of a path that is cut in one direction the other rank heard that the connection was closed, and
// where the first needed long to see what else it had lost, it took that rank for dead.
TEST(Network, WhoFindsAPeerSilentDoesNotLookDeadToIt) {
  Job job(2, Kind::network, {.streams = 2, .silence_max = 300ms}, 1 << 20);
  job.link_all();
  for (const int stream : {0, 1}) job.network.deafen(0, 1, stream);
  const std::vector<std::byte> source = pattern(1000, 1);
  ASSERT_NE(job[0].put(1, source, 0, 1), Posted::full);
  ASSERT_TRUE(until([&] {
    job.poll_all();
    job[0].transport.arm();
    return !job[0].lost.empty();
  }));
  EXPECT_TRUE(job[0].transport.why_lost(1).silent);
  EXPECT_EQ(job[1].notices.size(), 1u);
  const auto hears_of_an_end = [&] {
    job.poll_all();
    return !job[1].lost.empty() || job[1].transport.why_lost(0).closed;
  };
  EXPECT_FALSE(until(hears_of_an_end, 300ms));
  job[0].transport.drop(1);
  EXPECT_TRUE(until(hears_of_an_end));
}

}  // namespace
}  // namespace ropewalk::tcp
