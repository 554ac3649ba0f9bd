#include "synthesize/synthesize.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ropewalk/status.h"
#include "schedule/exchange_testing.h"

namespace ropewalk {
namespace {

constexpr double kRate = 12.5e9;  // bytes a second, of a template's links

Network slow_host() {
  Network network = network_of_template("flat:hosts=8", 0);
  network.links[7].s_per_byte *= 4;
  return network;
}
Network unequal_hosts() {
  Network network = network_of_template("flat:hosts=4", 0);
  for (int i = 0; i < 4; ++i) network.hosts[static_cast<size_t>(i)].ranks = i + 1;
  return network;
}
/// Four of eight hosts have a second adapter.
Network two_adapters() {
  Network network = network_of_template("flat:hosts=8:ranks=2", 0);
  for (int i = 0; i < 4; ++i) network.links.push_back(network.links[static_cast<size_t>(i)]);
  return network;
}
/// Without a ring of switches, or with one.
Network random_network(uint64_t seed) {
  std::mt19937_64 draw(seed);
  Network network;
  const int hosts = 2 + static_cast<int>(draw() % 6), switches = 1 + static_cast<int>(draw() % 4);
  for (int i = 0; i < hosts; ++i)
    network.hosts.push_back({fmt::format("h{}", i), 1 + static_cast<int>(draw() % 3)});
  for (int i = 0; i < switches; ++i) network.switches.push_back(fmt::format("s{}", i));
  const auto join = [&](int a, int b) {
    network.links.push_back({{a, b}, static_cast<double>(1 + draw() % 6) / kRate, 0, 50});
  };
  const auto any_switch = [&](int below) {
    return hosts + static_cast<int>(draw() % static_cast<uint64_t>(below));
  };
  for (int i = 1; i < switches; ++i) join(hosts + i, any_switch(i));
  if (switches > 2 && seed % 2 == 0) join(hosts, hosts + switches - 1);
  for (int i = 0; i < hosts; ++i) {
    join(i, any_switch(switches));
    if (draw() % 4 == 0) join(i, any_switch(switches));
  }
  check_network(network);
  return network;
}

struct NamedNetwork {
  std::string name;
  Network network;
};
std::vector<NamedNetwork> many_networks() {
  std::vector<NamedNetwork> all{{"slow host", slow_host()},
                                {"unequal hosts", unequal_hosts()},
                                {"two adapters", two_adapters()}};
  for (const char* words :
       {"flat:hosts=2", "flat:hosts=5", "flat:hosts=3:ranks=4", "racks:2x4:uplink=4",
        "racks:2x4:uplink=16", "racks:3x2:uplink=2:ranks=2", "rail:hosts=3:gpus=4",
        "fat-tree:k=4:uplink=4", "torus:3x2"})
    all.push_back({words, network_of_template(words, 0)});
  for (uint64_t seed = 0; seed < 12; ++seed)
    all.push_back({fmt::format("random {}", seed), random_network(seed)});
  return all;
}

constexpr Collective kMade[] = {Collective::all_reduce, Collective::all_gather,
                                Collective::reduce_scatter, Collective::broadcast,
                                Collective::reduce};

/// As the steps say, of the whole vector.
double busiest_s_per_byte(Routes& routes, const std::vector<Schedule>& schedules) {
  const auto& links = routes.network().links;
  std::vector<double> busy(2 * links.size());
  std::vector<LinkWay> path;
  for (const Schedule& schedule : schedules)
    for (const Step& step : schedule.steps) {
      if (!is_send(step.op)) continue;
      routes.find(schedule.rank, step.peer, path);
      for (const LinkWay way : path)
        busy[static_cast<size_t>(way)] +=
            links[static_cast<size_t>(way / 2)].s_per_byte / schedule.blocks;
    }
  return std::ranges::max(busy);
}

std::string text_of(const VerifyReport& report) {
  return report.ok() ? "" : report.findings.front().text;
}

TEST(LeastSPerByte, IsWhatClosedFormsSay) {
  const auto times = [](const Network& network, Collective collective) {
    return kRate * least_s_per_byte(network, collective, 0);
  };
  using enum Collective;
  const Network flat = network_of_template("flat:hosts=8", 0);
  const Network narrow = network_of_template("racks:2x4:uplink=16", 0);  // a quarter of a host's
  const Network wide = network_of_template("racks:2x4:uplink=4", 0);
  EXPECT_NEAR(times(flat, all_gather), 7.0 / 8, 1e-9);
  EXPECT_NEAR(times(flat, all_reduce), 7.0 / 4, 1e-9);
  EXPECT_NEAR(times(flat, broadcast), 1, 1e-9);
  EXPECT_NEAR(times(wide, all_gather), 7.0 / 8, 1e-9);
  EXPECT_NEAR(times(narrow, all_gather), 2, 1e-9);
  EXPECT_NEAR(times(narrow, reduce_scatter), 2, 1e-9);
  EXPECT_NEAR(times(narrow, all_reduce), 4, 1e-9);
  EXPECT_NEAR(times(slow_host(), all_gather), 3.5, 1e-9);
  EXPECT_NEAR(times(slow_host(), all_reduce), 4, 1e-9);
  EXPECT_NEAR(times(unequal_hosts(), all_gather), 0.9, 1e-9);
  EXPECT_NEAR(times(unequal_hosts(), all_reduce), 1.5, 1e-9);
  EXPECT_NEAR(times(two_adapters(), all_reduce), 14.0 / 12, 1e-9);
  EXPECT_EQ(times(flat, all_to_all), 0);
}

TEST(Synthesize, MakesWhatTheVerifierProves) {
  for (const auto& [name, network] : many_networks()) {
    Routes routes(network);
    const int root = network.ranks() - 1;
    for (const Collective collective : kMade) {
      const Synthesized made = synthesize(routes, collective, root);
      EXPECT_EQ(made.trees, made.schedules[0].blocks);
      EXPECT_EQ(check_exchange(made.schedules), "") << name << ", " << name_of(collective);
      for (const int credits : {0, 1, 3, kInListOrder}) {
        const VerifyReport report = verify(made.key, made.schedules, credits, made.promise);
        EXPECT_TRUE(report.ok()) << name << ", " << name_of(collective) << ", credits " << credits
                                 << ": " << text_of(report);
      }
    }
  }
}

TEST(Synthesize, NothingBeatsTheBound) {
  for (const auto& [name, network] : many_networks()) {
    Routes routes(network);
    for (const Collective collective : kMade) {
      const Synthesized made = synthesize(routes, collective, 0);
      EXPECT_GE(made.busy_s_per_byte, made.least_s_per_byte * (1 - 1e-6))
          << name << ", " << name_of(collective);
      EXPECT_NEAR(made.busy_s_per_byte, busiest_s_per_byte(routes, made.schedules),
                  1e-9 * made.busy_s_per_byte)
          << name << ", " << name_of(collective);
    }
  }
}

// Where there is one way between two hosts, and messages cannot take another than was planned.
TEST(Synthesize, LinksCarryWhatTheBoundSays) {
  for (const auto& [name, network] : many_networks()) {
    if (name.starts_with("random") || name.starts_with("torus") || name.starts_with("fat"))
      continue;
    Routes routes(network);
    for (const Collective collective : kMade) {
      const Synthesized made = synthesize(routes, collective, 0);
      EXPECT_LE(made.busy_s_per_byte, made.least_s_per_byte * 1.04)
          << name << ", " << name_of(collective) << ", " << made.trees << " trees";
    }
  }
}

// Of which no two hosts are alike to a plan. Switches that are split one by one, each with its
// questions, use the effort up before there are any trees.
TEST(Synthesize, TreesAreAsFlatAsLinksAllow) {
  // A slow host sends so little beside its own that most is sent by roots.
  Network network = network_of_template("flat:hosts=8", 0);
  for (size_t i = 0; i < 4; ++i) network.links[i].s_per_byte /= 2;
  Routes routes(network);
  EXPECT_EQ(synthesize(routes, Collective::all_reduce, 0).depth, 2);
}

TEST(Synthesize, FindsTreesWhereNoHostsAreAlike) {
  for (const auto& [words, most] : {std::pair("torus:8x8", 1.001), std::pair("torus:4x4x4", 1.1)}) {
    const Network network = network_of_template(words, 0);
    Routes routes(network);
    const Synthesized made = synthesize(routes, Collective::all_gather, 0);
    EXPECT_LE(made.busy_s_per_byte, most * made.least_s_per_byte) << words;
  }
}

TEST(Synthesize, IsTheSameEveryTime) {
  for (const auto& [name, network] : many_networks()) {
    Routes routes(network);
    Routes others(network);
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather}) {
      const Synthesized one = synthesize(routes, collective, 0);
      const Synthesized other = synthesize(others, collective, 0);
      for (size_t rank = 0; rank < one.schedules.size(); ++rank)
        EXPECT_EQ(one.schedules[rank].steps, other.schedules[rank].steps) << name;
    }
  }
}

// Each message of a block goes along an edge of its tree, once each way.
TEST(Synthesize, BlocksOfAnAllReduceMoveAlongTrees) {
  const Network network = network_of_template("racks:2x4:uplink=16", 0);
  Routes routes(network);
  const Synthesized made = synthesize(routes, Collective::all_reduce, 0);
  std::vector<int> sums(static_cast<size_t>(made.trees)), copies = sums;
  for (const Schedule& schedule : made.schedules)
    for (const Step& step : schedule.steps) {
      if (step.op == StepOp::send_reduce) ++sums[static_cast<size_t>(step.block)];
      if (step.op == StepOp::send_copy) ++copies[static_cast<size_t>(step.block)];
    }
  EXPECT_EQ(std::ranges::min(sums), 7);
  EXPECT_EQ(std::ranges::max(sums), 7);
  EXPECT_EQ(sums, copies);
}

TEST(Synthesize, WhatAChunkHandsOutStandsBeforeTheNextOne) {
  const Network network = slow_host();
  Routes routes(network);
  const Forest forest = make_forest(routes, Collective::all_reduce, 0);
  const Synthesized made = write_schedules(forest, 8, 3);
  for (const Schedule& schedule : made.schedules) {
    EXPECT_TRUE(std::ranges::is_sorted(
        schedule.steps, {}, [&](const Step& step) { return step.block / forest.spread.blocks; }));
    EXPECT_EQ(schedule.steps_ahead_max, std::ssize(schedule.steps) / 8 * 3);
  }
  EXPECT_EQ(write_schedules(forest, 8, 8).schedules[0].steps_ahead_max, 0);
  EXPECT_EQ(write_schedules(forest, 1, 3).schedules[0].steps_ahead_max, 0);
}

ErrorCode refusal_of(const Network& network, Collective collective) {
  Routes routes(network);
  try {
    synthesize(routes, collective, 0);
  } catch (const Error& error) {
    EXPECT_FALSE(error.failure().reason.empty());
    return error.code();
  }
  return ErrorCode::ok;
}

TEST(Synthesize, RefusesWhatItCannotGainFrom) {
  EXPECT_EQ(refusal_of(network_of_template("flat:hosts=4", 0), Collective::all_to_all),
            ErrorCode::unavailable);
  EXPECT_EQ(refusal_of(network_of_template("flat:hosts=1:ranks=4", 0), Collective::all_reduce),
            ErrorCode::unavailable);
  Network unlimited = network_of_template("flat:hosts=4", 0);
  for (NetworkLink& link : unlimited.links) link.s_per_byte = 0;
  EXPECT_EQ(refusal_of(unlimited, Collective::all_reduce), ErrorCode::unavailable);
  EXPECT_EQ(refusal_of(network_of_template("flat:hosts=4096", 0), Collective::all_reduce),
            ErrorCode::exhausted);
  EXPECT_EQ(refusal_of(network_of_template("torus:20x20", 0), Collective::all_gather),
            ErrorCode::exhausted);
}

TEST(Synthesize, TakesALinkWithoutLimitForAFastOne) {
  Network network = network_of_template("flat:hosts=4", 0);
  network.links[2].s_per_byte = 0;
  Routes routes(network);
  const Synthesized made = synthesize(routes, Collective::all_gather, 0);
  EXPECT_NEAR(kRate * made.busy_s_per_byte, 0.75, 0.01);
}

}  // namespace
}  // namespace ropewalk
