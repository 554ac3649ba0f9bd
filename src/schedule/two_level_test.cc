#include "schedule/algorithm.h"
#include "schedule/test_support.h"

namespace ropewalk {
namespace {

constexpr Algorithm kTwoLevel = Algorithm::two_level;

std::string all_reduce_text(const std::vector<int>& hosts, int rank) {
  const int ranks = static_cast<int>(hosts.size());
  return text_of(build_schedule({Collective::all_reduce, kTwoLevel, ranks, 0, hosts}, rank));
}

TEST(Hosts, AreNumberedInOrderOfAppearance) {
  const Hosts hosts = hosts_of({7, 3, 7, 7}, 4);
  EXPECT_EQ(hosts.members, (std::vector<std::vector<int>>{{0, 2, 3}, {1}}));
  EXPECT_EQ(hosts.host_of, (std::vector<int>{0, 1, 0, 0}));
  EXPECT_EQ(hosts.place_of, (std::vector<int>{0, 0, 1, 2}));
  EXPECT_EQ(hosts.size_min(), 1);
  EXPECT_EQ(hosts.size_max(), 3);
  EXPECT_EQ(hosts_of({}, 5).count(), 5);
}

TEST(TwoLevel, OneHostIsDirect) {
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(all_reduce_text({0, 0, 0, 0}, rank),
              text_of(build_schedule({Collective::all_reduce, Algorithm::direct, 4, 0, {}}, rank)));
}

TEST(TwoLevel, EveryRankItsOwnHostIsARing) {
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(all_reduce_text({3, 2, 1, 0}, rank),
              text_of(build_schedule({Collective::all_reduce, Algorithm::ring, 4, 0, {}}, rank)));
}

TEST(TwoLevel, TwoHostsOfTwo) {
  EXPECT_EQ(all_reduce_text({0, 0, 1, 1}, 0),
            "+>1:3 +>1:2 +<1:1 +<1:0 "   // ranks of place 0 own blocks 0 and 1
            "+>2:1 +<2:0 =>2:0 =<2:1 "   // ring with the owner on the other host
            "=>1:0 =<1:2 =>1:1 =<1:3");  // back to the neighbour
}

// The four places of the largest host are rank 3 and 4 by turns.
TEST(TwoLevel, ARankOfASmallHostHasSeveralPlaces) {
  const std::vector<int> hosts = {0, 1, 1};
  EXPECT_EQ(all_reduce_text(hosts, 0),
            "+>1:1 +<1:0 +>2:3 +<2:2 "  // both rings, side by side
            "=>1:0 =<1:1 =>2:2 =<2:3");
  const std::vector<int> more = {0, 0, 0, 1, 1, 2, 2, 2, 2};
  const Hosts view = hosts_of(more, 9);
  for (const Schedule& schedule : build_all({Collective::all_reduce, kTwoLevel, 9, 0, more})) {
    EXPECT_EQ(schedule.blocks, 4 * 3);
    for (const Step& step : schedule.steps) {
      const auto rank = static_cast<size_t>(schedule.rank), peer = static_cast<size_t>(step.peer);
      if (view.host_of[rank] == view.host_of[peer]) continue;
      const int j = step.block / 3;
      const auto size_of_host = [&](size_t r) {
        return static_cast<int>(view.members[static_cast<size_t>(view.host_of[r])].size());
      };
      EXPECT_EQ(view.place_of[rank], j % size_of_host(rank));
      EXPECT_EQ(view.place_of[peer], j % size_of_host(peer));
    }
  }
}

TEST(TwoLevel, OnlyOwnersTalkToOtherHosts) {
  const std::vector<int> hosts = {0, 0, 0, 1, 1, 2, 2, 2, 2};
  for (Collective collective : {Collective::all_gather, Collective::reduce_scatter})
    for (const Schedule& schedule : build_all({collective, kTwoLevel, 9, 0, hosts})) {
      const Hosts view = hosts_of(hosts, 9);
      for (const Step& step : schedule.steps) {
        const auto rank = static_cast<size_t>(schedule.rank), peer = static_cast<size_t>(step.peer);
        if (view.host_of[rank] == view.host_of[peer]) continue;
        EXPECT_LT(view.place_of[rank], 2);
        EXPECT_EQ(view.place_of[rank], view.place_of[peer]);
      }
    }
}

// What crosses a host's network is 2 (H-1)/H of the vector, however many ranks the host has.
TEST(TwoLevel, NetworkBytesAreThoseOfARingOfHosts) {
  const std::vector<int> hosts = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
  int crossing = 0, blocks = 0;
  for (const Schedule& schedule : build_all({Collective::all_reduce, kTwoLevel, 12, 0, hosts})) {
    blocks = schedule.blocks;
    for (const Step& step : schedule.steps)
      crossing += is_send(step.op) && schedule.rank / 4 == 0 && step.peer / 4 != 0;
  }
  EXPECT_DOUBLE_EQ(static_cast<double>(crossing) / blocks, 2.0 * 2 / 3);
}

TEST(TwoLevel, IsCorrectOnOddShapes) {
  const std::vector<std::vector<int>> shapes = {{0, 1, 1, 1, 1, 1, 1},
                                                {5, 5, 5, 5, 5, 5, -1},
                                                {0, 1, 0, 1, 2, 2, 0, 1, 2, 0},
                                                {0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 1},
                                                {9, 8, 7, 7, 8, 9}};
  for (const std::vector<int>& hosts : shapes)
    for (Collective collective : {Collective::all_reduce, Collective::reduce_scatter,
                                  Collective::all_gather, Collective::broadcast})
      for (int root = 0; root < static_cast<int>(hosts.size()); ++root)
        expect_correct({collective, kTwoLevel, static_cast<int>(hosts.size()), root, hosts});
}

}  // namespace
}  // namespace ropewalk
