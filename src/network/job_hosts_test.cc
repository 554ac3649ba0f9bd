#include "network/job_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

using testing::HasSubstr;

/// h0 to h3 with 1 to 4 ranks, and links of as many Mbit/s.
Network unequal_network() {
  Network network = network_of_template("flat:hosts=4", 0);
  for (int i = 0; i < 4; ++i) {
    network.hosts[static_cast<size_t>(i)] = {"h" + std::to_string(i), i + 1};
    network.links[static_cast<size_t>(i)].s_per_byte = 8e-6 / (i + 1);
  }
  return network;
}

std::string refusal(const std::vector<int>& hosts, const std::vector<std::string>& names = {}) {
  try {
    network_of_job(unequal_network(), hosts, names);
  } catch (const Error& error) {
    return error.failure().reason;
  }
  return "";
}

TEST(JobHosts, AreTakenInOrderWhereTheirNamesAreNotDescribed) {
  const Network described = unequal_network();
  const std::vector<int> hosts = {0, 1, 1, 2, 2, 2, 3, 3, 3, 3};
  EXPECT_EQ(network_of_job(described, hosts, {}), described);
  const std::vector<std::string> others(10, "other");
  EXPECT_EQ(network_of_job(described, hosts, others), described);
}

TEST(JobHosts, AreFoundByTheirNames) {
  const Network found =
      network_of_job(unequal_network(), {7, 7, 7, 7, 2, 2, 2, 1, 1, 0},
                     {"h3", "h3", "h3", "h3", "h2", "h2", "h2", "h1", "h1", "h0"});
  ASSERT_EQ(found.host_count(), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(found.hosts[static_cast<size_t>(i)].name, "h" + std::to_string(3 - i));
    EXPECT_EQ(found.hosts[static_cast<size_t>(i)].ranks, 4 - i);
  }
  for (const NetworkLink& link : found.links) {
    const int host = std::min(link.ends[0], link.ends[1]);
    EXPECT_DOUBLE_EQ(link.s_per_byte, 8e-6 / (4 - host));
  }
  check_network(found);
}

// A description of the whole cluster was of no use to a job on some of its hosts.
TEST(JobHosts, MayBeSomeOfThoseThatAreDescribedWithOtherRanks) {
  const Network found = network_of_job(unequal_network(), {0, 0, 0, 1}, {"h2", "h2", "h2", "h0"});
  ASSERT_EQ(found.host_count(), 2);
  EXPECT_EQ(found.hosts[0], (NetworkHost{"h2", 3}));
  EXPECT_EQ(found.hosts[1], (NetworkHost{"h0", 1}));
  const Network fuller = network_of_job(unequal_network(), {0, 0, 1, 1}, {"h0", "h0", "h3", "h3"});
  EXPECT_EQ(fuller.hosts[0], (NetworkHost{"h0", 2}));
  EXPECT_EQ(fuller.hosts[1], (NetworkHost{"h3", 2}));
  ASSERT_EQ(fuller.links.size(), 2u);
  EXPECT_DOUBLE_EQ(fuller.links[0].s_per_byte, 8e-6);
  EXPECT_DOUBLE_EQ(fuller.links[1].s_per_byte, 8e-6 / 4);
  check_network(fuller);
}

TEST(JobHosts, DiffersFromWhatIsDescribed) {
  EXPECT_THAT(refusal({0, 1, 1}),
              AllOf(HasSubstr("4 hosts are described"), HasSubstr("the job has 2")));
  EXPECT_THAT(refusal({0, 1, 1}, {"h0", "elsewhere", "elsewhere"}), HasSubstr("the job has 2"));
  // Two hosts of one name are not told apart.
  EXPECT_THAT(refusal({0, 1, 1}, {"h0", "h0", "h0"}), HasSubstr("the job has 2"));
  EXPECT_THAT(refusal({0, 0, 1, 1, 2, 2, 2, 3, 3, 3}),
              HasSubstr("h0 is described with 1 rank, and has 2 in the job"));
  EXPECT_THAT(refusal({0, 1, 2, 3, 1, 2, 3, 2, 3, 3}), HasSubstr("do not follow each other"));
}

TEST(JobHosts, OfAPartHaveTheirLinks) {
  const Network whole = unequal_network();
  const auto part = network_of_part(whole, {8, 7, 1});  // two of h3, one of h1
  ASSERT_TRUE(part);
  ASSERT_EQ(part->host_count(), 2);
  EXPECT_EQ(part->hosts[0], (NetworkHost{"h3", 2}));
  EXPECT_EQ(part->hosts[1], (NetworkHost{"h1", 1}));
  EXPECT_EQ(part->links.size(), 2u);
  check_network(*part);
  EXPECT_FALSE(network_of_part(whole, {6, 7, 8}));
  EXPECT_FALSE(network_of_part(whole, {6, 0, 7}));
}

}  // namespace
}  // namespace ropewalk
