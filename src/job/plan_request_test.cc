#include "job/plan_request.h"

#include <gtest/gtest.h>

#include <numeric>

namespace ropewalk {
namespace {

PlanRequest request(const TransportProvider* within, const TransportProvider* between,
                    const std::vector<int>& hosts) {
  Call call;
  call.count = 1 << 20;
  const TransportChoice transports{within, between};
  return plan_request(call, Config(), transports, {.hosts = hosts}, unmeasured_costs(transports));
}

bool is(const LinkCost& cost, const LinkCost& expected) {
  return cost.latency_s == expected.latency_s && cost.overhead_s == expected.overhead_s &&
         cost.s_per_byte == expected.s_per_byte;
}

TEST(PlanRequest, CostsAreThoseOfTheTransports) {
  const PlanRequest mixed = request(&shm_provider(), &verbs_provider(), {0, 0, 1, 1});
  EXPECT_TRUE(is(mixed.cost.intra, shm_provider().cost));
  EXPECT_TRUE(is(mixed.cost.inter, verbs_provider().cost));
  const PlanRequest verbs = request(&verbs_provider(), nullptr, {0, 0});
  EXPECT_TRUE(is(verbs.cost.intra, verbs_provider().cost));
  const PlanRequest tcp = request(&tcp_provider(), &tcp_provider(), {0, 0, 1});
  EXPECT_TRUE(is(tcp.cost.intra, tcp_provider().cost));
  EXPECT_TRUE(is(tcp.cost.inter, tcp_provider().cost));
}

TEST(PlanRequest, TheRateBetweenHostsIsWhatTheSystemTells) {
  PeerRecord here, there;
  here.host_id = "a", there.host_id = "b";
  here.transport_infos["tcp"] = "10.1.0.1/16@1000";
  there.transport_infos["tcp"] = "10.1.0.2/16@10000";
  const Costs costs = unmeasured_costs(choose_transports("tcp", "", PeerTable({here, there})));
  EXPECT_EQ(costs.model.inter.s_per_byte, 8e-9);
  EXPECT_EQ(costs.model.inter.latency_s, tcp_provider().cost.latency_s);
  EXPECT_EQ(costs.inter, CostSource::system);
  there.transport_infos["tcp"] = "10.1.0.2/16@400000";
  here.transport_infos["tcp"] = "10.1.0.1/16@400000";  // more than a core copies
  EXPECT_DOUBLE_EQ(unmeasured_costs(choose_transports("tcp", "", PeerTable({here, there})))
                       .model.inter.s_per_byte,
                   tcp_provider().cost.s_per_byte);
  here.transport_infos.clear();
  EXPECT_EQ(unmeasured_costs(choose_transports("tcp", "", PeerTable({here, there}))).inter,
            CostSource::constant);
}

// What the planner takes for whole is what the engine sends whole (Links::eager_limit).
TEST(PlanRequest, MessagesThatTcpSpreadsAreShorter) {
  PeerRecord here, there;
  here.host_id = "a", there.host_id = "b";
  const auto spread = [&](int tcp_streams) {
    const TransportChoice transports =
        choose_transports("tcp", "", PeerTable({here, there}), false, tcp_streams);
    Call call;
    call.count = 1 << 20;
    return plan_request(call, Config(), transports, {.hosts = {0, 1}}, unmeasured_costs(transports))
        .spreads;
  };
  here.transport_infos["tcp"] = "10.1.0.1/16@1000";
  there.transport_infos["tcp"] = "10.1.0.2/16@1000";
  EXPECT_FALSE(spread(0));
  EXPECT_TRUE(spread(2));
  here.transport_infos["tcp"] += " 10.2.0.1/16@1000";
  there.transport_infos["tcp"] += " 10.2.0.2/16@1000";
  EXPECT_TRUE(spread(0));
  EXPECT_FALSE(spread(1));
}

// Ranks that hand on parts of others do not know how long they are.
TEST(PlanRequest, PartsWithCountsGoStraight) {
  const TransportChoice transports{&tcp_provider(), &tcp_provider()};
  std::vector<int> hosts(300);
  std::iota(hosts.begin(), hosts.end(), 0);
  const auto planned = [&](const Call& call, const Config& config) {
    return plan_for(call, config, transports, {.hosts = hosts}, unmeasured_costs(transports))
        .algorithm;
  };
  Call call;
  call.collective = Collective::all_to_all;
  call.count = 1;
  Config config;
  EXPECT_EQ(planned(call, config), Algorithm::bruck);
  call.counts.assign(300, 1);
  EXPECT_EQ(planned(call, config), Algorithm::direct);
  config.algorithm = Algorithm::bruck;
  EXPECT_EQ(planned(call, config), Algorithm::direct);
  call.algorithm = Algorithm::bruck;
  try {
    planned(call, config);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_NE(error.failure().advice.find("direct"), std::string::npos);
  }
}

TEST(PlanRequest, OnlySharedMemoryIsMapped) {
  EXPECT_TRUE(request(&shm_provider(), nullptr, {0, 0}).mapped);
  EXPECT_TRUE(request(ucx_provider().within_host, nullptr, {0, 0}).mapped);
  EXPECT_FALSE(request(&ucx_provider(), nullptr, {0, 0}).mapped);
  EXPECT_FALSE(request(&verbs_provider(), nullptr, {0, 0}).mapped);
  EXPECT_FALSE(request(&tcp_provider(), nullptr, {0, 0}).mapped);
  EXPECT_FALSE(request(&shm_provider(), &tcp_provider(), {0, 0, 1}).mapped);
}

// What is faster on the wire must not be predicted to take longer.
TEST(PlanRequest, VerbsArePredictedBetweenSharedMemoryAndTcp) {
  Call call;
  call.type = DataType::float32;
  call.op = kSum;
  for (const size_t count : {size_t{2}, size_t{1} << 12, size_t{1} << 20}) {
    call.count = count;
    const auto us = [&](const TransportProvider* provider) {
      const TransportChoice transports{provider, nullptr};
      return plan_for(call, Config(), transports, {.hosts = {0, 0}}, unmeasured_costs(transports))
          .predicted_us;
    };
    EXPECT_LT(us(&shm_provider()), us(&verbs_provider())) << count;
    EXPECT_LT(us(&verbs_provider()), us(&tcp_provider())) << count;
  }
}

}  // namespace
}  // namespace ropewalk
