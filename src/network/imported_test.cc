#include "network/imported.h"

#include <gtest/gtest.h>

#include "network/routes.h"
#include "ropewalk/status.h"

namespace ropewalk {
namespace {

constexpr const char* kAstraSim = R"(# A ring of two stars of four.
topology: [ Switch, Ring ]  # dimensions
npus_count: [ 4, 2 ]
bandwidth: [ 50.0, 25 ]  # GB/s
latency: [ 500.0, 1000 ]  # ns
)";
constexpr const char* kTaccl = R"({
 "name": "DGX2_1MB",
 "gpus_per_node": 16,
 "nics_per_node": 8,
 "alpha": 0.3,
 "node_betas_list": [8],
 "node_invbws_list": [8],
 "remote_invbw": 107,
 "remote_alpha": 2.6,
 "remote_beta": 105
})";

template <class Read>
std::string import_refusal(const Read& read) {
  try {
    read();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.failure().reason;
  }
}
std::string astra_sim_refusal(const std::string& text) {
  return import_refusal([&] { network_of_astra_sim(text); });
}
Network of_taccl(const std::string& text, int ranks) {
  return network_of_taccl(parse_located_json(text, "network"), ranks);
}
std::string taccl_refusal(const std::string& text, int ranks = 32) {
  return import_refusal([&] { of_taccl(text, ranks); });
}
/// `text` with the first `old` replaced.
std::string imported_with(std::string text, const std::string& old, const std::string& other) {
  const size_t at = text.find(old);
  EXPECT_NE(at, text.npos) << old;
  return text.replace(at, old.size(), other);
}

TEST(NetworkOfAstraSim, OneSwitchIsAStar) {
  const Network network = network_of_astra_sim(
      "topology: [ Switch ]\nnpus_count: [ 16 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n");
  ASSERT_EQ(network.host_count(), 16);
  ASSERT_EQ(network.links.size(), 16u);
  EXPECT_DOUBLE_EQ(network.links[3].s_per_byte, 1 / (50.0 * (1 << 30)));
  EXPECT_DOUBLE_EQ(network.links[3].latency_s, 500e-9);
  EXPECT_EQ(network.between.overhead_s, 0);
  EXPECT_EQ(text_of(parse_network(text_of(network))), text_of(network));
}

TEST(NetworkOfAstraSim, MessagesTakeTheLinksOfEachDimension) {
  const Network network = network_of_astra_sim(kAstraSim);
  ASSERT_EQ(network.ranks(), 8);
  Routes routes(network);
  std::vector<LinkWay> path;
  const auto seconds_between = [&](int from, int to) {
    routes.find(from, to, path);
    double seconds = 0;
    for (const LinkWay way : path) seconds += network.links[static_cast<size_t>(way / 2)].latency_s;
    return seconds;
  };
  EXPECT_NEAR(seconds_between(0, 3), 1e-6, 1e-12);  // up to the switch and down
  EXPECT_NEAR(seconds_between(0, 4), 1e-6, 1e-12);  // around
  EXPECT_NEAR(seconds_between(0, 7), 2e-6, 1e-12);
}

TEST(NetworkOfAstraSim, AllAreJoinedWhereTheyAreFullyConnected) {
  const Network network = network_of_astra_sim(
      "topology: [ FullyConnected, Ring ]\nnpus_count: [ 4, 3 ]\nbandwidth: [ 1, 1 ]\n"
      "latency: [ 0, 0 ]\n");
  // Of each to its router; 6 for each of 3 groups of four; 3 for each of 4 rings.
  EXPECT_EQ(network.links.size(), 12u + 18u + 12u);
}

TEST(NetworkOfAstraSim, RefusalsNameLineAndField) {
  const auto changed = [](const std::string& old, const std::string& other) {
    return astra_sim_refusal(imported_with(kAstraSim, old, other));
  };
  EXPECT_EQ(changed("Ring", "Mesh"),
            "line 2: topology[1] is \"Mesh\"; Ring, FullyConnected or Switch is possible");
  EXPECT_EQ(changed("4, 2 ]", "4 ]"), "line 3: npus_count has 1 entries, topology 2");
  EXPECT_EQ(changed("4, 2", "4, 2.5"), "line 3: npus_count[1] is no whole number");
  EXPECT_EQ(changed("4, 2", "4, two"), "line 3: npus_count[1] is no number");
  EXPECT_EQ(changed("25", "-1"), "line 4: bandwidth[1] is -1; 1e-06 to 100000 is possible");
  EXPECT_EQ(changed("latency", "delay"), "line 6: latency is missing");
  EXPECT_EQ(changed("latency: [ 500.0, 1000 ]", "latency:\n - 500.0"),
            "line 5: latency is no list on one line: write [ a, b ]");
  EXPECT_EQ(changed("npus", "latency: [ 1, 1 ]\nnpus"), "line 6: latency is there twice");
  EXPECT_EQ(changed("npus", "hbm: [ 1 ]\nnpus"), "line 3: hbm is no field that is known");
  EXPECT_EQ(changed("4, 2", "4000, 4000"),
            "line 2: topology has more than 65536 NPUs or 1048576 links");
  EXPECT_EQ(changed("bandwidth:", "bandwidth"),
            "line 4: bandwidth [ 50.0, 25 ] has no value: write name: [ ... ]");
}

TEST(NetworkOfTaccl, IsHostsWithAdapters) {
  const Network network = of_taccl(kTaccl, 32);
  ASSERT_EQ(network.host_count(), 2);
  EXPECT_EQ(network.hosts[1].ranks, 16);
  ASSERT_EQ(network.links.size(), 16u);
  EXPECT_DOUBLE_EQ(network.links[0].s_per_byte, 105e-12);
  EXPECT_DOUBLE_EQ(network.within.s_per_byte, 8e-12);
  EXPECT_DOUBLE_EQ(network.between.latency_s, 2.6e-6);
  // The same costs, of twice as much.
  const Network other = of_taccl(imported_with(kTaccl, "_1MB", "_2MB"), 16);
  EXPECT_DOUBLE_EQ(other.within.s_per_byte, 4e-12);
}

TEST(NetworkOfTaccl, RefusalsNameLineAndField) {
  const auto changed = [](const std::string& old, const std::string& other) {
    return taccl_refusal(imported_with(kTaccl, old, other));
  };
  EXPECT_EQ(
      taccl_refusal(kTaccl, 24),
      "line 3: gpus_per_node is 16; -n must be a multiple of it, as the file describes one node");
  EXPECT_EQ(taccl_refusal(kTaccl, 0), taccl_refusal(kTaccl, 24));
  EXPECT_EQ(
      changed("_1MB", "_1KB"),
      "line 2: name is \"DGX2_1KB\"; it must end with the size that the costs are of, such as "
      "_1MB: those of KB are scaled");
  EXPECT_EQ(
      changed("[8]", "[23, 46]"),
      "line 6: node_betas_list is no list of one number; within a host all GPUs are alike here");
  EXPECT_EQ(changed("[8]", "[0]"), "line 6: node_betas_list[0] is 0; 0.008 to 8e+09 is possible");
  EXPECT_EQ(changed("\"remote_beta\": 105", "\"remote_beta\": \"x\""),
            "line 10: remote_beta is no number");
  EXPECT_EQ(changed("\"nics_per_node\": 8,", ""), "line 1: nics_per_node is missing");
  EXPECT_EQ(changed("16", "1.5"), "line 3: gpus_per_node is no whole number");
  EXPECT_EQ(changed("\"alpha\"", "\"links\": [[0]],\n\"alpha\""),
            "line 5: links joins GPUs one by one; within a host all are alike here");
}

}  // namespace
}  // namespace ropewalk
