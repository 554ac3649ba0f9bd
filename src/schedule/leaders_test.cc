#include "schedule/test_support.h"

namespace ropewalk {
namespace {

constexpr Algorithm kLeaders = Algorithm::leaders;

TEST(Leaders, TwoHosts) {
  const ScheduleKey key{Collective::all_reduce, kLeaders, 5, 0, {0, 0, 0, 1, 1}};
  EXPECT_EQ(text_of(build_schedule(key, 0)), "+<1:0 +<2:0 =>3:0 =<3:1 0+=1 =>1:0 =>2:0");
  EXPECT_EQ(text_of(build_schedule(key, 1)), "+>0:0 =<0:0");
  EXPECT_EQ(text_of(build_schedule(key, 3)), "+<4:0 =>0:0 =<0:1 0+=1 =>4:0");
}

TEST(Leaders, ThreeHostsFoldTheFirstPair) {
  const ScheduleKey key{Collective::all_reduce, kLeaders, 4, 0, {0, 0, 1, 2}};
  EXPECT_EQ(text_of(build_schedule(key, 0)), "+<1:0 +>2:0 =<2:0 =>1:0");
  EXPECT_EQ(text_of(build_schedule(key, 2)), "+<0:0 =>3:0 =<3:1 0+=1 =>0:0");
}

// Whatever the number of ranks a host, as many messages as recursive doubling of the hosts.
TEST(Leaders, OnlyTheyTalkToOtherHosts) {
  const std::vector<int> hosts = {0, 0, 0, 1, 1, 2, 2, 2, 2, 3};
  const Hosts view = hosts_of(hosts, 10);
  int crossing = 0;
  for (const Schedule& schedule : build_all({Collective::all_reduce, kLeaders, 10, 0, hosts}))
    for (const Step& step : schedule.steps) {
      const auto rank = static_cast<size_t>(schedule.rank);
      if (step.peer < 0 || view.host_of[rank] == view.host_of[static_cast<size_t>(step.peer)])
        continue;
      EXPECT_EQ(view.place_of[rank], 0);
      crossing += is_send(step.op) ? 1 : 0;
    }
  EXPECT_EQ(crossing, 4 * 2);
}

TEST(Leaders, AreCorrect) {
  for (const Collective collective : {Collective::all_reduce, Collective::barrier})
    for (const int per_host : {1, 2, 3, 8})
      for (const int ranks : {1, 2, 5, 8, 17, 64}) {
        std::vector<int> hosts;
        for (int rank = 0; rank < ranks; ++rank) hosts.push_back(rank / per_host);
        expect_correct({collective, kLeaders, ranks, 0, hosts});
      }
}

}  // namespace
}  // namespace ropewalk
