#include "transport_choice/transport_choice.h"

#include <gtest/gtest.h>

#include "fabric/port_info.h"
#include "ropewalk/status.h"

namespace ropewalk {
namespace {

using verbs::LinkLayer;
using verbs::PortInfo;

enum Ports { none, ib, eth, both };

PeerRecord rank_on(int host, Ports ports, std::string why = "there is no RDMA adapter") {
  std::vector<PortInfo> infos;
  if (ports == ib || ports == both)
    infos.push_back({"mlx5_0", 1, LinkLayer::infiniband, {"fe80::/64"}, 100});
  if (ports == eth || ports == both)
    infos.push_back({"mlx5_1", 1, LinkLayer::ethernet, {"10.0.0.0/8"}, 100});
  PeerRecord record;
  record.host_id = record.host_name = std::string(1, static_cast<char>('a' + host));
  record.transport_infos["verbs"] =
      ports == none ? verbs::no_ports_text(std::move(why)) : verbs::port_list_text(infos);
  return record;
}

std::vector<PeerRecord> numbered(std::vector<PeerRecord> ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank].rank = static_cast<int>(rank);
  return ranks;
}

TransportChoice choose(const char* wish, const std::vector<PeerRecord>& ranks,
                       const char* require = "", bool secure = false) {
  return choose_transports(wish, require, PeerTable(numbered(ranks)), secure);
}

std::string refusal(const char* wish, const std::vector<PeerRecord>& ranks,
                    const char* require = "", bool secure = false) {
  try {
    const TransportChoice choice = choose(wish, ranks, require, secure);
    return "took " + text_of(choice);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_FALSE(error.failure().advice.empty());
    return error.failure().reason;
  }
}

void expect(const TransportChoice& choice, const TransportProvider* within,
            const TransportProvider* between) {
  EXPECT_EQ(name_of(choice.within), name_of(within)) << choice.reason;
  EXPECT_EQ(name_of(choice.between), name_of(between)) << choice.reason;
}

const std::vector<PeerRecord> kOneHost = {rank_on(0, none), rank_on(0, none)};
const std::vector<PeerRecord> kTwoHosts = {rank_on(0, none), rank_on(1, none)};
const std::vector<PeerRecord> kTwoByTwo = {rank_on(0, eth), rank_on(0, eth), rank_on(1, eth),
                                           rank_on(1, eth)};

TEST(TransportChoice, AJobOfOneNeedsNone) {
  for (const char* require : {"", "rdma", "shm", "tcp"}) {
    const TransportChoice choice = choose("auto", {rank_on(0, none)}, require);
    expect(choice, nullptr, nullptr);
    EXPECT_EQ(text_of(choice), "none: the job has one rank");
  }
}

TEST(TransportChoice, AutoOnOneHostIsSharedMemory) {
  expect(choose("auto", kOneHost), &shm_provider(), nullptr);
  expect(choose("auto", {rank_on(0, ib), rank_on(0, ib)}), &shm_provider(), nullptr);
  EXPECT_EQ(text_of(choose("auto", kOneHost)), "shm between all ranks");
}

TEST(TransportChoice, AutoBetweenHostsIsVerbsWhereAllCan) {
  const TransportChoice choice = choose("auto", kTwoByTwo);
  expect(choice, &shm_provider(), &verbs_provider());
  EXPECT_FALSE(choice.is_fallback);
  EXPECT_EQ(text_of(choice), "shm within hosts, verbs between them");
  expect(choose("auto", {rank_on(0, ib), rank_on(1, ib)}), nullptr, &verbs_provider());
}

TEST(TransportChoice, AutoFallsBackToTcpAndSaysWhy) {
  const std::string why = "mlx5_0 port 1: is DOWN; sudo ip link set eth2 up";
  const TransportChoice choice =
      choose("auto", {rank_on(0, eth), rank_on(0, eth), rank_on(1, eth), rank_on(1, none, why)});
  expect(choice, &shm_provider(), &tcp_provider());
  EXPECT_EQ(choice.reason, "rank 3 (host b): " + why);
  EXPECT_TRUE(choice.is_fallback);
}

TEST(TransportChoice, NobodyHavingPortsIsNoFallback) {
  const TransportChoice choice = choose("auto", kTwoHosts);
  expect(choice, nullptr, &tcp_provider());
  EXPECT_FALSE(choice.is_fallback);
  EXPECT_EQ(choice.reason,
            "rank 0 (host a): there is no RDMA adapter; 1 other rank too can use no RDMA port");
}

// One host: RDMA would not have been used anyway.
TEST(TransportChoice, OneHostWithPartOfThePortsIsNoFallback) {
  EXPECT_FALSE(choose("auto", {rank_on(0, eth), rank_on(0, none)}).is_fallback);
}

TEST(TransportChoice, OneLinkLayerMustBeCommonToAll) {
  expect(choose("auto", {rank_on(0, both), rank_on(1, ib), rank_on(2, both)}), nullptr,
         &verbs_provider());
  expect(choose("auto", {rank_on(0, both), rank_on(1, eth), rank_on(2, both)}), nullptr,
         &verbs_provider());
  const TransportChoice choice =
      choose("auto", {rank_on(0, both), rank_on(1, eth), rank_on(2, ib)});
  expect(choice, nullptr, &tcp_provider());
  EXPECT_TRUE(choice.is_fallback);
  EXPECT_EQ(
      choice.reason,
      "the ranks' ports have no link layer in common: rank 1 (host b) has no InfiniBand, rank "
      "2 (host c) no Ethernet (RoCE)");
}

TEST(TransportChoice, VerbsIsForAllPairs) {
  expect(choose("verbs", kTwoByTwo), &verbs_provider(), &verbs_provider());
  expect(choose("verbs", {rank_on(0, ib), rank_on(0, ib)}), &verbs_provider(), nullptr);
  EXPECT_EQ(refusal("verbs", {rank_on(0, ib), rank_on(0, none)}),
            "verbs was asked for, but rank 1 (host a): there is no RDMA adapter");
  EXPECT_NE(refusal("verbs", {rank_on(0, ib), rank_on(1, eth)}).find("no link layer in common"),
            std::string::npos);
}

PeerRecord with_ucx(PeerRecord record, const std::string& fabric, std::string version = "1.13.1") {
  record.transport_infos["ucx"] = version + (fabric.empty() ? "" : " " + fabric);
  return record;
}

TEST(TransportChoice, UcxIsTakenWhereItAloneReachesAFabric) {
  const PeerRecord here = with_ucx(rank_on(0, none), "dc_mlx5/mlx5_0:1");
  const PeerRecord there = with_ucx(rank_on(1, none), "dc_mlx5/mlx5_0:1");
  const TransportChoice choice = choose("auto", {here, here, there});
  expect(choice, &shm_provider(), &ucx_provider());
  EXPECT_FALSE(choice.is_fallback);
  EXPECT_EQ(text_of(choice), "shm within hosts, ucx between them");
  EXPECT_NE(choice.reason.find("there is no RDMA adapter"), std::string::npos) << choice.reason;
  expect(choose("auto", {here, there}, "rdma"), nullptr, &ucx_provider());
  expect(choose("auto", {rank_on(0, ib), rank_on(1, ib)}), nullptr, &verbs_provider());
  expect(choose("auto", {here, with_ucx(rank_on(1, none), "")}), nullptr, &tcp_provider());
  expect(choose("auto", {here, rank_on(1, none)}), nullptr, &tcp_provider());
}

TEST(TransportChoice, UcxSharesMemoryWhereAllNeighboursCan) {
  PeerRecord here = with_ucx(rank_on(0, none), "");
  here.transport_infos["ucx/shm"] = "ucx/shm3:1:2:0000000000000000:3";
  PeerRecord there = here;
  there.host_id = there.host_name = "b";
  const PeerRecord without = with_ucx(rank_on(1, none), "");
  expect(choose("ucx", {here, here}), ucx_provider().within_host, nullptr);
  EXPECT_TRUE(choose("ucx", {here, here}).maps());
  EXPECT_EQ(text_of(choose("ucx", {here, here})), "ucx/shm between all ranks");
  EXPECT_EQ(names_of(choose("ucx", {here, here})), "ucx/shm");
  EXPECT_EQ(text_of(choose("ucx", {here, here, there, there})),
            "ucx/shm within hosts, ucx between them");
  EXPECT_EQ(names_of(choose("ucx", {here, here, there, there})), "ucx/shm+ucx");
  EXPECT_EQ(names_of(choose("tcp", {here, here, there})), "tcp");
  EXPECT_EQ(names_of(choose("auto", {here})), "self");
  const TransportChoice whole = choose("ucx", {here, here, there, there});
  EXPECT_EQ(names_of(choice_of_part(whole, {0, 0})), "ucx/shm");
  EXPECT_EQ(names_of(choice_of_part(whole, {0, 1})), "ucx");
  EXPECT_EQ(names_of(choice_of_part(whole, {0, 0, 1})), "ucx/shm+ucx");
  EXPECT_EQ(names_of(choice_of_part(whole, {1})), "self");
  // One that is alone on its host needs none there.
  expect(choose("ucx", {here, here, without}), ucx_provider().within_host, &ucx_provider());
  expect(choose("ucx", {here, here, there, without}), &ucx_provider(), &ucx_provider());
  expect(choose("ucx", {here, there}), nullptr, &ucx_provider());
  // A mailbox of Ropewalk's own is for the automatic choice.
  expect(choose("tcp", {here, here}), &tcp_provider(), nullptr);
  expect(choose("ucx", {here, here}, "shm"), ucx_provider().within_host, nullptr);
}

TEST(TransportChoice, UcxIsForAllPairs) {
  const PeerRecord sockets_only = with_ucx(rank_on(0, none), "");
  expect(choose("ucx", {sockets_only, sockets_only}), &ucx_provider(), nullptr);
  expect(choose("ucx", {sockets_only, with_ucx(rank_on(1, none), "")}), nullptr, &ucx_provider());
  EXPECT_EQ(refusal("ucx", {sockets_only, rank_on(1, ib)}),
            "ucx was asked for, but rank 1 (host b) has no UCX");
  PeerRecord older = with_ucx(rank_on(1, none), "", "1.13.0");
  expect(choose("ucx", {sockets_only, older}), nullptr, &ucx_provider());
  older = with_ucx(rank_on(1, none), "", "1.12.1");
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
  expect(choose("shm", kOneHost), &shm_provider(), nullptr);
  EXPECT_NE(refusal("shm", kTwoHosts).find("several hosts"), std::string::npos);
}

TEST(TransportChoice, TcpIsForAllPairs) {
  expect(choose("tcp", kOneHost), &tcp_provider(), nullptr);
  expect(choose("tcp", kTwoByTwo), &tcp_provider(), &tcp_provider());
}

TEST(TransportChoice, RequireRdma) {
  expect(choose("auto", kTwoByTwo, "rdma"), &shm_provider(), &verbs_provider());
  expect(choose("verbs", kTwoByTwo, "rdma"), &verbs_provider(), &verbs_provider());
  // Within a host nothing slower than RDMA is taken.
  expect(choose("auto", kOneHost, "rdma"), &shm_provider(), nullptr);
  EXPECT_EQ(
      refusal("auto", {rank_on(0, eth), rank_on(1, none, "mlx5_0 port 1: is DOWN; fix")}, "rdma"),
      "ROPEWALK_REQUIRE=rdma, but rank 1 (host b): mlx5_0 port 1: is DOWN; fix");
  EXPECT_EQ(refusal("tcp", kTwoByTwo, "rdma"), "ROPEWALK_REQUIRE=rdma, but ROPEWALK_TRANSPORT=tcp");
  EXPECT_EQ(refusal("tcp", kOneHost, "rdma"), "ROPEWALK_REQUIRE=rdma, but ROPEWALK_TRANSPORT=tcp");
}

TEST(TransportChoice, SecureTakesWhatIsSealed) {
  expect(choose("auto", kTwoByTwo, "", true), &shm_provider(), &tcp_provider());
  expect(choose("tcp", kTwoByTwo, "", true), &tcp_provider(), &tcp_provider());
  expect(choose("shm", kOneHost, "", true), &shm_provider(), nullptr);
  for (const std::string name : {"verbs", "ucx"}) {
    const std::string reason = "ROPEWALK_SECURE=1, and what " + name + " sends cannot be sealed";
    EXPECT_EQ(refusal(name.c_str(), kTwoByTwo, "", true), name + " was asked for, but " + reason);
  }
  EXPECT_EQ(refusal("auto", kTwoByTwo, "rdma", true),
            "ROPEWALK_REQUIRE=rdma, but ROPEWALK_SECURE=1, and what verbs sends cannot be sealed");
}

TEST(TransportChoice, RequireShm) {
  expect(choose("auto", kOneHost, "shm"), &shm_provider(), nullptr);
  EXPECT_EQ(refusal("auto", kTwoByTwo, "shm"),
            "ROPEWALK_REQUIRE=shm, but the job would take shm within hosts, verbs between them");
  EXPECT_NE(refusal("tcp", kOneHost, "shm").find("tcp between all"), std::string::npos);
}

TEST(TransportChoice, RequireTcpIsAlwaysMet) {
  expect(choose("auto", kTwoHosts, "tcp"), nullptr, &tcp_provider());
  expect(choose("auto", kTwoByTwo, "tcp"), &shm_provider(), &verbs_provider());
}

// What the providers read is what ranks tell: anything else is refused, on every rank alike.
TEST(TransportChoice, NonsenseIsRefused) {
  const PeerRecord sound = with_ucx(rank_on(0, none), "rc_mlx5/mlx5_0:1");
  for (const char* text : {"x", "!", "rxe0:1|ethernet||1,", "!a\nb"}) {
    PeerRecord record = sound;
    record.transport_infos["verbs"] = text;
    EXPECT_THROW(choose("auto", {sound, record}), Error) << text;
  }
  for (const char* text :
       {" ", "1.13 ", " x", "1.13  x", "1.13 a,b", "v 1 2 3 4 5 6 7 8 9", "1.13;x"}) {
    PeerRecord record = sound;
    record.transport_infos["ucx"] = text;
    EXPECT_THROW(choose("ucx", {sound, record}), Error) << text;
  }
}

TEST(TransportChoice, ARankThatToldNothingDidNotLook) {
  PeerRecord silent = rank_on(1, none);
  silent.transport_infos.clear();
  EXPECT_EQ(choose("auto", {rank_on(0, eth), silent}).reason,
            "rank 1 (host b): it did not look for RDMA ports");
}

TEST(FindTransports, WhatIsAskedForIsLookedAt) {
  Config config;
  config.transport = "tcp";
  std::vector<TransportOffer> offers = find_transports(config, 0, 2);
  ASSERT_EQ(offers.size(), 1u);
  EXPECT_EQ(offers[0].provider, &tcp_provider());
  EXPECT_TRUE(offers[0].make);
  config.transport = "auto";
  offers = find_transports(config, 0, 2);
  ASSERT_GE(offers.size(), 3u);
  EXPECT_EQ(offers.front().provider, &shm_provider());
  EXPECT_FALSE(offers.front().info.empty());
  EXPECT_EQ(offers.back().provider, &tcp_provider()) << "whatever else there is";
}

// Whether built in or not, a transport that cannot be used says why.
TEST(FindTransports, WhatCannotBeUsedSaysWhy) {
  Config config;
  config.ib_hca = "=none";
  for (const TransportProvider* provider : transport_providers()) {
    config.transport = provider->name;
    const TransportOffer offer = std::move(find_transports(config, 0, 2).front());
    EXPECT_EQ(offer.provider, provider);
    EXPECT_EQ(!offer.make, !offer.why_not.empty()) << provider->name;
    if (provider == &verbs_provider()) {
      EXPECT_EQ(verbs::parse_no_ports(offer.info), offer.why_not);
    }
  }
}

}  // namespace
}  // namespace ropewalk
