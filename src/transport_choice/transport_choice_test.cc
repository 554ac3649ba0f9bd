#include "transport_choice/transport_choice.h"

#include <gtest/gtest.h>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

using verbs::LinkLayer;

enum Ports { none, ib, eth, both };

RankTransports rank_on(int host, Ports ports, std::string why = "there is no RDMA adapter") {
  RankTransports report;
  report.info.transport = "auto";
  report.host = host;
  report.host_name = std::string(1, static_cast<char>('a' + host));
  if (ports == ib || ports == both)
    report.info.ports.push_back({"mlx5_0", 1, LinkLayer::infiniband, {"fe80::/64"}, 100});
  if (ports == eth || ports == both)
    report.info.ports.push_back({"mlx5_1", 1, LinkLayer::ethernet, {"10.0.0.0/8"}, 100});
  if (ports == none) report.info.no_ports = std::move(why);
  return report;
}

TransportChoice choose(const char* wish, const std::vector<RankTransports>& ranks,
                       const char* require = "") {
  return choose_transports(wish, require, ranks);
}

std::string refusal(const char* wish, const std::vector<RankTransports>& ranks,
                    const char* require = "") {
  try {
    const TransportChoice choice = choose_transports(wish, require, ranks);
    return "took " + text_of(choice);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_FALSE(error.failure().advice.empty());
    return error.failure().reason;
  }
}

void expect(const TransportChoice& choice, TransportKind within, TransportKind between) {
  EXPECT_EQ(name_of(choice.within), name_of(within)) << choice.reason;
  EXPECT_EQ(name_of(choice.between), name_of(between)) << choice.reason;
}

const std::vector<RankTransports> kOneHost = {rank_on(0, none), rank_on(0, none)};
const std::vector<RankTransports> kTwoHosts = {rank_on(0, none), rank_on(1, none)};
const std::vector<RankTransports> kTwoByTwo = {rank_on(0, eth), rank_on(0, eth), rank_on(1, eth),
                                               rank_on(1, eth)};

TEST(TransportChoice, AJobOfOneNeedsNone) {
  for (const char* require : {"", "rdma", "shm", "tcp"}) {
    const TransportChoice choice = choose("auto", {rank_on(0, none)}, require);
    expect(choice, TransportKind::none, TransportKind::none);
    EXPECT_EQ(text_of(choice), "none: the job has one rank");
  }
}

TEST(TransportChoice, AutoOnOneHostIsSharedMemory) {
  expect(choose("auto", kOneHost), TransportKind::shm, TransportKind::none);
  expect(choose("auto", {rank_on(0, ib), rank_on(0, ib)}), TransportKind::shm, TransportKind::none);
  EXPECT_EQ(text_of(choose("auto", kOneHost)), "shm between all ranks");
}

TEST(TransportChoice, AutoBetweenHostsIsVerbsWhereAllCan) {
  const TransportChoice choice = choose("auto", kTwoByTwo);
  expect(choice, TransportKind::shm, TransportKind::verbs);
  EXPECT_FALSE(choice.is_fallback);
  EXPECT_EQ(text_of(choice), "shm within hosts, verbs between them");
  expect(choose("auto", {rank_on(0, ib), rank_on(1, ib)}), TransportKind::none,
         TransportKind::verbs);
}

TEST(TransportChoice, AutoFallsBackToTcpAndSaysWhy) {
  const std::string why = "mlx5_0 port 1: is DOWN; sudo ip link set eth2 up";
  const TransportChoice choice =
      choose("auto", {rank_on(0, eth), rank_on(0, eth), rank_on(1, eth), rank_on(1, none, why)});
  expect(choice, TransportKind::shm, TransportKind::tcp);
  EXPECT_EQ(choice.reason, "rank 3 (host b): " + why);
  EXPECT_TRUE(choice.is_fallback);
}

TEST(TransportChoice, NobodyHavingPortsIsNoFallback) {
  const TransportChoice choice = choose("auto", kTwoHosts);
  expect(choice, TransportKind::none, TransportKind::tcp);
  EXPECT_FALSE(choice.is_fallback);
  EXPECT_EQ(choice.reason,
            "rank 0 (host a): there is no RDMA adapter; 1 other rank too can use no RDMA port");
}

// One host: RDMA would not have been used anyway.
TEST(TransportChoice, OneHostWithPartOfThePortsIsNoFallback) {
  EXPECT_FALSE(choose("auto", {rank_on(0, eth), rank_on(0, none)}).is_fallback);
}

TEST(TransportChoice, OneLinkLayerMustBeCommonToAll) {
  expect(choose("auto", {rank_on(0, both), rank_on(1, ib), rank_on(2, both)}), TransportKind::none,
         TransportKind::verbs);
  expect(choose("auto", {rank_on(0, both), rank_on(1, eth), rank_on(2, both)}), TransportKind::none,
         TransportKind::verbs);
  const TransportChoice choice =
      choose("auto", {rank_on(0, both), rank_on(1, eth), rank_on(2, ib)});
  expect(choice, TransportKind::none, TransportKind::tcp);
  EXPECT_TRUE(choice.is_fallback);
  EXPECT_EQ(
      choice.reason,
      "the ranks' ports have no link layer in common: rank 1 (host b) has no InfiniBand, rank "
      "2 (host c) no Ethernet (RoCE)");
}

TEST(TransportChoice, VerbsIsForAllPairs) {
  expect(choose("verbs", kTwoByTwo), TransportKind::verbs, TransportKind::verbs);
  expect(choose("verbs", {rank_on(0, ib), rank_on(0, ib)}), TransportKind::verbs,
         TransportKind::none);
  EXPECT_EQ(refusal("verbs", {rank_on(0, ib), rank_on(0, none)}),
            "verbs was asked for, but rank 1 (host a): there is no RDMA adapter");
  EXPECT_NE(refusal("verbs", {rank_on(0, ib), rank_on(1, eth)}).find("no link layer in common"),
            std::string::npos);
}

RankTransports with_ucx(RankTransports report, std::vector<std::string> fabrics) {
  report.info.ucx = "1.13.1";
  report.info.fabrics = std::move(fabrics);
  return report;
}

TEST(TransportChoice, UcxIsTakenWhereItAloneReachesAFabric) {
  const RankTransports here = with_ucx(rank_on(0, none), {"dc_mlx5/mlx5_0:1"});
  const RankTransports there = with_ucx(rank_on(1, none), {"dc_mlx5/mlx5_0:1"});
  const TransportChoice choice = choose("auto", {here, here, there});
  expect(choice, TransportKind::shm, TransportKind::ucx);
  EXPECT_FALSE(choice.is_fallback);
  EXPECT_EQ(text_of(choice), "shm within hosts, ucx between them");
  EXPECT_NE(choice.reason.find("there is no RDMA adapter"), std::string::npos) << choice.reason;
  expect(choose("auto", {here, there}, "rdma"), TransportKind::none, TransportKind::ucx);
  expect(choose("auto", {rank_on(0, ib), rank_on(1, ib)}), TransportKind::none,
         TransportKind::verbs);
  expect(choose("auto", {here, with_ucx(rank_on(1, none), {})}), TransportKind::none,
         TransportKind::tcp);
  expect(choose("auto", {here, rank_on(1, none)}), TransportKind::none, TransportKind::tcp);
}

TEST(TransportChoice, UcxSharesMemoryWhereAllNeighboursCan) {
  RankTransports here = with_ucx(rank_on(0, none), {});
  here.info.mailbox = "ucx/shm2:1:2:0000000000000000:3";
  RankTransports there = here;
  there.host = 1;
  const RankTransports without = with_ucx(rank_on(1, none), {});
  expect(choose("ucx", {here, here}), TransportKind::ucx_shm, TransportKind::none);
  EXPECT_TRUE(choose("ucx", {here, here}).maps());
  EXPECT_EQ(text_of(choose("ucx", {here, here})), "ucx/shm between all ranks");
  EXPECT_EQ(text_of(choose("ucx", {here, here, there, there})),
            "ucx/shm within hosts, ucx between them");
  // One that is alone on its host needs none there.
  expect(choose("ucx", {here, here, without}), TransportKind::ucx_shm, TransportKind::ucx);
  expect(choose("ucx", {here, here, there, without}), TransportKind::ucx, TransportKind::ucx);
  expect(choose("ucx", {here, there}), TransportKind::none, TransportKind::ucx);
  // A mailbox of Ropewalk's own is for the automatic choice.
  expect(choose("tcp", {here, here}), TransportKind::tcp, TransportKind::none);
  expect(choose("ucx", {here, here}, "shm"), TransportKind::ucx_shm, TransportKind::none);
}

TEST(TransportChoice, UcxIsForAllPairs) {
  const RankTransports sockets_only = with_ucx(rank_on(0, none), {});
  expect(choose("ucx", {sockets_only, sockets_only}), TransportKind::ucx, TransportKind::none);
  expect(choose("ucx", {sockets_only, with_ucx(rank_on(1, none), {})}), TransportKind::none,
         TransportKind::ucx);
  EXPECT_EQ(refusal("ucx", {sockets_only, rank_on(1, ib)}),
            "ucx was asked for, but rank 1 (host b) has no UCX");
  RankTransports older = with_ucx(rank_on(1, none), {});
  older.info.ucx = "1.13.0";
  expect(choose("ucx", {sockets_only, older}), TransportKind::none, TransportKind::ucx);
  older.info.ucx = "1.12.1";
  EXPECT_EQ(refusal("ucx", {sockets_only, older}),
            "ucx was asked for, but rank 0 (host a) has UCX 1.13.1, rank 1 (host b) has 1.12.1");
  EXPECT_EQ(refusal("ucx", {sockets_only, sockets_only}, "rdma"),
            "ROPEWALK_REQUIRE=rdma, but rank 0 (host a): UCX reaches no fabric but sockets that "
            "UCX_TLS and "
            "UCX_NET_DEVICES allow");
  EXPECT_NE(refusal("ucx", {sockets_only, sockets_only}, "shm").find("ucx between all"),
            std::string::npos);
}

TEST(TransportChoice, ShmIsForOneHost) {
  expect(choose("shm", kOneHost), TransportKind::shm, TransportKind::none);
  EXPECT_NE(refusal("shm", kTwoHosts).find("several hosts"), std::string::npos);
}

TEST(TransportChoice, TcpIsForAllPairs) {
  expect(choose("tcp", kOneHost), TransportKind::tcp, TransportKind::none);
  expect(choose("tcp", kTwoByTwo), TransportKind::tcp, TransportKind::tcp);
}

TEST(TransportChoice, RequireRdma) {
  expect(choose("auto", kTwoByTwo, "rdma"), TransportKind::shm, TransportKind::verbs);
  expect(choose("verbs", kTwoByTwo, "rdma"), TransportKind::verbs, TransportKind::verbs);
  // Within a host nothing slower than RDMA is taken.
  expect(choose("auto", kOneHost, "rdma"), TransportKind::shm, TransportKind::none);
  EXPECT_EQ(
      refusal("auto", {rank_on(0, eth), rank_on(1, none, "mlx5_0 port 1: is DOWN; fix")}, "rdma"),
      "ROPEWALK_REQUIRE=rdma, but rank 1 (host b): mlx5_0 port 1: is DOWN; fix");
  EXPECT_EQ(refusal("tcp", kTwoByTwo, "rdma"), "ROPEWALK_REQUIRE=rdma, but ROPEWALK_TRANSPORT=tcp");
  EXPECT_EQ(refusal("tcp", kOneHost, "rdma"), "ROPEWALK_REQUIRE=rdma, but ROPEWALK_TRANSPORT=tcp");
}

TEST(TransportChoice, RequireShm) {
  expect(choose("auto", kOneHost, "shm"), TransportKind::shm, TransportKind::none);
  EXPECT_EQ(refusal("auto", kTwoByTwo, "shm"),
            "ROPEWALK_REQUIRE=shm, but the job would take shm within hosts, verbs between them");
  EXPECT_NE(refusal("tcp", kOneHost, "shm").find("tcp between all"), std::string::npos);
}

TEST(TransportChoice, RequireTcpIsAlwaysMet) {
  expect(choose("auto", kTwoHosts, "tcp"), TransportKind::none, TransportKind::tcp);
  expect(choose("auto", kTwoByTwo, "tcp"), TransportKind::shm, TransportKind::verbs);
}

}  // namespace
}  // namespace ropewalk
