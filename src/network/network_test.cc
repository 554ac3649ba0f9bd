#include "network/network.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

constexpr const char* kSmall = R"({
 "hosts": [{"name": "h0", "ranks": 2}, {"name": "h1"}],
 "switches": [{"name": "s0"}],
 "links": [
  {"between": ["h0", "s0"], "rate_mbps": 200, "buffer_ms": 20, "bucket_kib": 8},
  {"between": ["h1", "s0"], "rate_mbps": 50, "delay_ms": 10}
 ],
 "costs": {"between_hosts": {"latency_us": 30, "overhead_us": 4}, "add_bytes_per_s": 1e9}
})";

std::string network_refusal(const std::string& text) {
  try {
    parse_network(text);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.failure().reason;
  }
}

/// kSmall with the first `old` replaced.
std::string with(const std::string& old, const std::string& text) {
  std::string changed = kSmall;
  const size_t at = changed.find(old);
  EXPECT_NE(at, changed.npos) << old;
  return changed.replace(at, old.size(), text);
}

std::string template_refusal(const std::string& words, int ranks) {
  try {
    network_of_template(words, ranks);
    return "";
  } catch (const Error& error) {
    return error.failure().reason;
  }
}

TEST(Network, ReadsWhatNetlabReads) {
  const Network network = parse_network(kSmall);
  EXPECT_EQ(network.ranks(), 3);
  EXPECT_EQ(network.host_of_rank(), (std::vector<int>{0, 0, 1}));
  ASSERT_EQ(network.links.size(), 2u);
  EXPECT_DOUBLE_EQ(network.links[0].s_per_byte, 8 / 200e6);
  EXPECT_DOUBLE_EQ(network.links[0].bucket_kib, 8);
  EXPECT_DOUBLE_EQ(parse_network(text_of(network)).links[0].bucket_kib, 8);
  EXPECT_DOUBLE_EQ(network.links[1].all_latency_s(), 10e-3);
  EXPECT_DOUBLE_EQ(network.between.latency_s, 30e-6);
  EXPECT_DOUBLE_EQ(network.add_s_per_byte, 1e-9);
}

TEST(Network, WhatIsWrittenIsReadAgain) {
  for (const char* words : {"flat:hosts=3", "racks:2x3:uplink=4,rate=10gbit", "fat-tree:k=4",
                            "rail:hosts=2:gpus=4", "torus:3x4"}) {
    const Network network = network_of_template(words, 0);
    const Network again = parse_network(text_of(network));
    EXPECT_EQ(again.hosts, network.hosts) << words;
    EXPECT_TRUE(text_of(again) == text_of(network)) << words;
  }
}

TEST(Network, RefusalsNameLineAndField) {
  EXPECT_EQ(network_refusal(with("\"rate_mbps\": 200", "\"rate_mbps\": 0")),
            "line 5: links[0].rate_mbps is 0; 0.001 to 1e+09 is possible");
  EXPECT_EQ(network_refusal(with("delay_ms", "delay_s")),
            "line 6: links[1].delay_s is no field that is known");
  EXPECT_EQ(network_refusal(with("\"ranks\": 2", "\"ranks\": 1000000")),
            "line 2: hosts[0].ranks is 1e+06; 1 to 1024 is possible");
  EXPECT_EQ(network_refusal(with("\"ranks\": 2", "\"ranks\": 1.5")),
            "line 2: hosts[0].ranks is no whole number");
  EXPECT_EQ(network_refusal(with("[\"h1\", \"s0\"]", "[\"h1\", \"s9\"]")),
            "line 6: links[1].between names \"s9\", which is not there");
  EXPECT_EQ(network_refusal(with("[\"h1\", \"s0\"]", "[\"h1\", \"h0\"]")),
            "line 6: links[1].between joins two hosts; put a switch between them");
  EXPECT_EQ(network_refusal(with("\"h1\"}", "\"h0\"}")),
            "line 2: hosts[1].name is \"h0\", which another one is called");
  EXPECT_EQ(network_refusal(with("{\"name\": \"h1\"}", "{\"ranks\": 1}")),
            "line 2: hosts[1].name is missing");
  EXPECT_EQ(network_refusal(with("\"latency_us\": 30", "\"latency_us\": \"soon\"")),
            "line 8: costs.between_hosts.latency_us is no number");
  EXPECT_EQ(network_refusal(with("\"links\"", "\"lynx\"")),
            "line 4: lynx is no field that is known");
}

TEST(Network, RefusesTextsThatAreNoDescription) {
  EXPECT_EQ(network_refusal("[]"), "line 1: the text is no object");
  EXPECT_EQ(network_refusal("{}"), "line 1: hosts is missing");
  EXPECT_EQ(network_refusal("{\"hosts\": []}"), "line 1: hosts is empty");
  EXPECT_NE(network_refusal("{\n\"hosts\": ]}").find("line 2, column 10"), std::string::npos);
  EXPECT_NE(network_refusal("").find("line 1"), std::string::npos);
  EXPECT_NE(network_refusal(std::string(100, '[')).find("nested too deeply"), std::string::npos);
}

TEST(Network, IsReadFromRegularFilesAlone) {
  const auto refusal = [](const std::string& path) -> std::string {
    try {
      find_network(path, 0);
      return "";
    } catch (const Error& error) {
      return error.failure().reason;
    }
  };
  const std::string empty = std::string(::testing::TempDir()) + "/network_test_empty.json";
  std::ofstream(empty).close();
  EXPECT_EQ(refusal(empty), "cannot read " + empty + ": it is empty");
  std::filesystem::remove(empty);
  EXPECT_EQ(refusal("/dev/zero"), "cannot read /dev/zero: it is no regular file");
}

TEST(Network, FieldsOfNetlabAreKept) {
  const Network network = parse_network(with(
      "\"delay_ms\": 10", R"("delay_ms": 10, "latency_us": 3, "jitter_ms": 2, "loss_percent": 0.5,
                           "reorder_percent": 1.5)"));
  const NetworkLink link = parse_network(text_of(network)).links[1];
  EXPECT_EQ(link, network.links[1]);
  EXPECT_EQ(link.delay_ms, 10);
  EXPECT_EQ(link.jitter_ms, 2);
  EXPECT_EQ(link.loss_percent, 0.5);
  EXPECT_EQ(link.reorder_percent, 1.5);
  EXPECT_DOUBLE_EQ(link.all_latency_s(), 10.003e-3);
}

TEST(Network, CostsThatAreGivenStayGiven) {
  EXPECT_EQ(parse_network(text_of(network_of_template("flat", 2))).given, GivenCosts());
  Network usual = network_of_template("flat:latency=2us", 2);
  EXPECT_EQ(usual.given, GivenCosts{.between_latency = true});
  EXPECT_EQ(parse_network(text_of(usual)).given, usual.given);
  // Usual values, too.
  usual.given = GivenCosts::all();
  usual.copy_s_per_byte = 1e-9;
  const Network again = parse_network(text_of(usual));
  EXPECT_EQ(again.given, GivenCosts::all());
  EXPECT_DOUBLE_EQ(again.between.latency_s, usual.between.latency_s);
  EXPECT_DOUBLE_EQ(again.within.s_per_byte, usual.within.s_per_byte);
  EXPECT_DOUBLE_EQ(again.copy_s_per_byte, 1e-9);
  EXPECT_DOUBLE_EQ(again.add_s_per_byte, usual.add_s_per_byte);
}

TEST(Network, TellsHowManyNetworksAllHostsShare) {
  for (const char* words : {"flat:hosts=3", "racks:2x3", "fat-tree:k=4", "torus:3x3"})
    EXPECT_EQ(network_of_template(words, 0).shared_networks(), 1) << words;
  EXPECT_EQ(network_of_template("flat:hosts=1:ranks=4", 0).shared_networks(), 0);
  Network network = network_of_template("flat:hosts=3", 0);
  const std::vector<NetworkLink> links = network.links;
  for (const NetworkLink& link : links) network.links.push_back(link);
  EXPECT_EQ(network.shared_networks(), 1) << "several adapters at one switch";
  network.switches.push_back("second");
  const int second = network.node_count() - 1;
  for (size_t i = 3; i < 6; ++i) network.links[i].ends[1] = second;
  EXPECT_EQ(network.shared_networks(), 2);
  network.links.pop_back();
  EXPECT_EQ(network.shared_networks(), 1) << "where one host has no adapter";
}

TEST(Network, RefusesHostsThatCannotReachEachOther) {
  const std::string apart =
      R"({"hosts": [{"name": "a"}, {"name": "b"}], "switches": [{"name": "s"}, {"name": "t"}],
          "links": [{"between": ["a", "s"]}, {"between": ["b", "t"]}]})";
  EXPECT_EQ(network_refusal(apart),
            "line 1: hosts[0] is a, from where there is no way to host b: a link is missing");
  EXPECT_NE(network_refusal(with(R"(,
  {"between": ["h1", "s0"], "rate_mbps": 50, "delay_ms": 10})",
                                 ""))
                .find("line 2: hosts[1] is h1"),
            std::string::npos);
}

TEST(Network, TemplatesSpreadRanksEvenly) {
  const Network racks = network_of_template("racks:4x2:uplink=4", 64);
  EXPECT_EQ(racks.host_count(), 8);
  EXPECT_EQ(racks.hosts[0].ranks, 8);
  EXPECT_DOUBLE_EQ(racks.links.back().s_per_byte, racks.links[0].s_per_byte * 4 / 2);
  EXPECT_EQ(network_of_template("flat", 65536).host_count(), 65536);
  EXPECT_EQ(network_of_template("rail:hosts=4:gpus=8", 0).ranks(), 32);
  EXPECT_EQ(network_of_template("fat-tree:k=8", 0).host_count(), 128);
  EXPECT_EQ(network_of_template("torus:4x4x4", 128).hosts[5].ranks, 2);
}

TEST(Network, TemplatesThatMakeNoSenseAreRefused) {
  EXPECT_EQ(template_refusal("racks:4x2", 9),
            "\"racks:4x2\": 9 ranks on 8 hosts: it must be as many on each");
  EXPECT_EQ(template_refusal("ring", 4), "\"ring\": there is no template \"ring\"");
  // It made two hosts of them.
  EXPECT_EQ(template_refusal("flat:8", 0), "\"flat:8\": flat takes no sizes, only settings");
  for (const char* words :
       {"", "fat-tree:8", "rail:4:gpus=8", "racks", "racks:4", "racks:0x2", "racks:4x2:rate=0gbit",
        "racks:4x2:rate=fast", "flat:hosts=2:colour=red", "fat-tree:k=3",
        "torus:", "flat:hosts=2,hosts=3", "flat:hosts=2:ranks=5000", "flat:=",
        // Descriptions allow no more, either.
        "flat:latency=1001s", "flat:overhead=1e12s", "flat:rate=0.0001kbit",
        "flat:rate=10000000gbit", "racks:2x2:rate=1kbit:uplink=100"})
    EXPECT_NE(template_refusal(words, 0), "") << words;
}

TEST(Network, FaultsTellWhereLinksHaveNoLimit) {
  Network network = network_of_template("flat:hosts=4", 0);
  for (size_t host = 1; host < 4; ++host) network.links[host].s_per_byte = 0;
  std::string told;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    with_faults(network, seed, told);
    EXPECT_TRUE(told.starts_with("h0's links have a quarter")) << told;
  }
  network.links[0].s_per_byte = 0;
  with_faults(network, 1, told);
  EXPECT_TRUE(told.starts_with("no host's links have a limit")) << told;
}

TEST(Network, FaultsAreThoseOfTheirSeed) {
  const Network network = network_of_template("racks:2x4", 0);
  std::string first, again, other;
  const Network faulty = with_faults(network, 7, first);
  EXPECT_EQ(text_of(with_faults(network, 7, again)), text_of(faulty));
  EXPECT_EQ(first, again);
  EXPECT_EQ(faulty.host_count(), 7);
  check_network(faulty);
  bool differs = false;
  for (uint64_t seed = 8; seed < 16; ++seed)
    differs |= text_of(with_faults(network, seed, other)) != text_of(faulty);
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace ropewalk
