// What is drawn of calls, against what was simulated.
#include "tools/simulate/pictures.h"

#include <gmock/gmock.h>

#include "ropewalk/status.h"
#include "tools/explain/explain.h"

namespace ropewalk::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Pictures, SizesAreThoseSaidOrPowersOfFourAround) {
  const auto sizes = [](const std::string& plot, const std::string& words, size_t bytes,
                        Collective collective = Collective::all_reduce) {
    return plot_sizes({plot, words}, collective, bytes, "simulate");
  };
  EXPECT_THAT(sizes("", "", 1000), ElementsAre(1000));
  EXPECT_THAT(sizes("a.svg", "8:32,20", 16), ElementsAre(8, 16, 20, 32));
  EXPECT_THAT(sizes("a.svg", "", 64), ElementsAre(16, 64, 256, 1024));
  EXPECT_THAT(sizes("a.svg", "", 1 << 20),
              ElementsAre(1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24));
  EXPECT_THAT(sizes("a.svg", "", size_t{1} << 44).back(), size_t{1} << 44);
  EXPECT_THAT(sizes("a.svg", "", 1, Collective::barrier), ElementsAre(1));
  EXPECT_THROW(sizes("", "8", 8), Error);
  EXPECT_THROW(sizes("a.svg", "x", 8), Error);
  EXPECT_THROW(sizes("a.svg", "8", 1, Collective::barrier), Error);
}

TEST(Pictures, TimesAreLinesByTheirEndsOrBars) {
  TimesOverSize times;
  times.algorithms[Algorithm::ring] = {{8, 5}, {16, 6}};
  times.algorithms[Algorithm::tree] = {{8, 4}, {16, 9}};
  times.bound = {{8, 0}, {16, 3}};
  const auto lines = std::get<LinePanel>(times_panel("", times));
  ASSERT_EQ(lines.series.size(), 3u);
  EXPECT_EQ(lines.series[0].name, "tree");  // above the others, at the right
  EXPECT_EQ(lines.series[1].name, "ring");
  EXPECT_EQ(lines.series[2].points.size(), 1u);  // a bound of 0 is none
  times.algorithms[Algorithm::ring].pop_back();
  times.algorithms[Algorithm::tree].pop_back();
  times.bound.pop_back();
  const auto bars = std::get<BarPanel>(times_panel("", times));
  ASSERT_EQ(bars.bars.size(), 3u);
  EXPECT_EQ(bars.bars[0].name, "lower bound");
  EXPECT_EQ(bars.bars[1].name, "tree");
  EXPECT_EQ(bars.bars[2].text, "5 us");
}

CallToSimulate ring_call(const Network& network, size_t bytes) {
  return call_for(request_on(network, Collective::all_reduce, 0, bytes), Algorithm::ring);
}

TEST(Pictures, ASchedulesMessagesEndWithTheCallAndSlicesAreOne) {
  const Network network = network_of_template("flat", 4);
  Routes routes(network);
  const CallToSimulate call = ring_call(network, 16 << 20);
  const SimulatedCall simulated = simulate_call(routes, call);
  ASSERT_GT(simulated.messages, 24u) << "no slices";
  const auto panel = std::get<SchedulePanel>(schedule_panel(routes, call));
  EXPECT_EQ(panel.messages.size(), 24u);  // 4 ranks in 6 rounds
  EXPECT_EQ(std::ranges::count(panel.messages, true, &SchedulePanel::Message::added), 12);
  EXPECT_DOUBLE_EQ(panel.end_us, 1e6 * simulated.seconds());
  EXPECT_DOUBLE_EQ(panel.added_us.value(), 1e-6 * static_cast<double>(simulated.added_ps));
  for (const SchedulePanel::Message& message : panel.messages) {
    EXPECT_EQ(message.to, (message.from + 1) % 4);
    EXPECT_LT(message.posted_us, message.last_posted_us);
    EXPECT_LT(message.arrived_us, message.last_arrived_us);
    EXPECT_LT(message.last_posted_us, message.last_arrived_us);
    EXPECT_LE(message.last_arrived_us, panel.end_us * (1 + 1e-9));
  }
}

TEST(Pictures, ASentenceStandsForWhatIsTooLarge) {
  const Network network = network_of_template("flat", 33);
  Routes routes(network);
  const Panel panel = schedule_panel(routes, ring_call(network, 1 << 20));
  EXPECT_THAT(std::get<NotePanel>(panel).text, HasSubstr("up to 32 ranks; here are 33"));
}

TEST(Pictures, LinksAreTheBusiestOnes) {
  const Network network = network_of_template("racks:2x4:uplink=8", 0);
  Routes routes(network);
  CallToSimulate all_ranks = ring_call(network, 8 << 20);
  all_ranks.event_by_event = true;
  const SimulatedCall call = simulate_call(routes, all_ranks);
  const auto panel = std::get<BarPanel>(links_panel(network, call));
  ASSERT_EQ(panel.bars.size(), 12u);
  EXPECT_THAT(panel.bars[0].name, HasSubstr("core"));
  for (size_t i = 0; i < panel.bars.size(); ++i) {
    EXPECT_LE(panel.bars[i].value, 100);
    if (i > 0) {
      EXPECT_LE(panel.bars[i].value, panel.bars[i - 1].value);
    }
  }
  const Network host = network_of_template("flat:hosts=1:ranks=4", 0);
  Routes inside(host);
  EXPECT_TRUE(std::holds_alternative<NotePanel>(
      links_panel(host, simulate_call(inside, ring_call(host, 8 << 20)))));
}

TEST(Pictures, TheNetworkOfAnExplanationHasItsCosts) {
  Explanation explanation;
  PlanRequest& request = explanation.request;
  request.hosts = {0, 0, 1, 2, 2, 3};
  request.ranks = 6;
  request.cost.inter = {.latency_s = 1e-5, .overhead_s = 1e-6, .s_per_byte = 1e-9};
  request.cost.intra = {.latency_s = 1e-6, .overhead_s = 1e-7, .s_per_byte = 1e-10};
  const Network flat = explained_network(explanation);
  check_network(flat);
  EXPECT_EQ(flat.host_of_rank(), request.hosts);
  EXPECT_EQ(flat.links.size(), 4u);
  EXPECT_EQ(flat.links[0].s_per_byte, 1e-9);
  EXPECT_EQ(flat.between.latency_s, 1e-5);
  EXPECT_EQ(flat.within, request.cost.intra);
  request.racks = {7, 7, 7, 9, 9, 9};
  request.cost.racks_s_per_byte = 4e-9;
  const Network racks = explained_network(explanation);
  check_network(racks);
  EXPECT_EQ(racks.switches.size(), 3u);
  EXPECT_EQ(racks.links.size(), 6u);
  EXPECT_EQ(racks.switch_of_host(), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(racks.links.back().s_per_byte, 4e-9);
  request.hosts = {0, 0};
  request.racks.clear();
  EXPECT_TRUE(explained_network(explanation).links.empty());
}

}  // namespace
}  // namespace ropewalk::tools
