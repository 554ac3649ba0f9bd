#include "tools/simulate/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/units.h"
#include "ropewalk/status.h"
#include "tools/bench/options.h"

namespace ropewalk::tools {
namespace {

constexpr size_t kMessagesDrawn = 4000, kLinksDrawn = 12;
constexpr int kFourthsBelow = 5, kFourthsAbove = 2;
constexpr size_t kPlotBytesMin = 8, kPlotBytesMax = size_t{1} << 44;

double in_us(double seconds) {
  return 1e6 * seconds;
}

/// Puts the slices of a message together.
class MessagesDrawn {
 public:
  void add(const SimulatedMessage& slice) {
    const auto key = std::tuple(slice.from, slice.to, slice.block, slice.added);
    const auto [found, is_first] = messages_.try_emplace(key);
    SchedulePanel::Message& message = found->second;
    if (is_first)
      message = {slice.from,
                 slice.to,
                 slice.added,
                 in_us(slice.posted_s),
                 in_us(slice.posted_s),
                 in_us(slice.arrived_s),
                 in_us(slice.arrived_s)};
    message.posted_us = std::min(message.posted_us, in_us(slice.posted_s));
    message.last_posted_us = std::max(message.last_posted_us, in_us(slice.posted_s));
    message.arrived_us = std::min(message.arrived_us, in_us(slice.arrived_s));
    message.last_arrived_us = std::max(message.last_arrived_us, in_us(slice.arrived_s));
  }
  size_t size() const { return messages_.size(); }
  std::vector<SchedulePanel::Message> take() const {
    std::vector<SchedulePanel::Message> all;
    for (const auto& [key, message] : messages_) all.push_back(message);
    return all;
  }

 private:
  std::map<std::tuple<int, int, int, bool>, SchedulePanel::Message> messages_;
};

/// Bars for the one size that there is.
BarPanel bars_of(const std::string& title, const TimesOverSize& times) {
  BarPanel panel{.title = title, .axis_name = "time", .text = time_tick};
  const auto add = [&panel](std::string_view name, const std::vector<PlotPoint>& points) {
    for (const PlotPoint& point : points)
      panel.bars.push_back({std::string(name), point.y, time_text(point.y)});
  };
  add("lower bound", times.bound);
  for (const auto& [algorithm, points] : times.algorithms) add(name_of(algorithm), points);
  add(name_of(Algorithm::synthesized), times.synthesized);
  std::ranges::stable_sort(panel.bars, {}, &BarPanel::Bar::value);
  return panel;
}

std::vector<PlotPoint> above_zero(const std::vector<PlotPoint>& points) {
  std::vector<PlotPoint> kept;
  for (const PlotPoint& point : points)
    if (point.y > 0) kept.push_back(point);
  return kept;
}

}  // namespace

void add_picture_options(Command command, PictureFlags& flags) {
  command.add_option("--plot", flags.plot,
                     "SVG file for times over size, the schedule and the busiest links");
  command.add_option("--sizes", flags.sizes,
                     "of --plot: 8,64K or 8:64M (doubling); default: around --bytes");
}

std::optional<PlotFile> open_plot(const PictureFlags& flags, const std::string& command) {
  if (flags.plot.empty()) return {};
  return PlotFile(command, flags.plot);
}

std::vector<size_t> plot_sizes(const PictureFlags& flags, Collective collective, size_t bytes,
                               const std::string& command) {
  std::vector<size_t> sizes = {bytes};
  const bool has_sizes = collective != Collective::barrier;
  if (!flags.sizes.empty()) {
    if (flags.plot.empty() || !has_sizes)
      throw Error(ErrorCode::invalid_argument, command, "--sizes says what --plot draws",
                  has_sizes ? "write --plot FILE.svg, too" : "leave it away: a barrier has none");
    const std::vector<size_t> said = parse_size_list(flags.sizes, command);
    sizes.insert(sizes.end(), said.begin(), said.end());
  } else if (!flags.plot.empty() && has_sizes) {
    for (int power = 1; power <= kFourthsBelow; ++power)
      if (bytes >> 2 * power >= kPlotBytesMin) sizes.push_back(bytes >> 2 * power);
    for (int power = 1; power <= kFourthsAbove; ++power)
      if (bytes <= kPlotBytesMax >> 2 * power) sizes.push_back(bytes << 2 * power);
  }
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

Panel times_panel(const std::string& title, const TimesOverSize& times) {
  size_t sizes = times.bound.size();
  for (const auto& [algorithm, points] : times.algorithms) sizes = std::max(sizes, points.size());
  if (sizes < 2) return bars_of(title, times);
  LinePanel panel{.title = title,
                  .x = {"bytes of the vector", Scale::log2, size_tick},
                  .y = {"time", Scale::log10, time_tick}};
  for (const auto& [algorithm, points] : times.algorithms)
    panel.series.push_back(
        {std::string(name_of(algorithm)), above_zero(points), static_cast<int>(algorithm) - 1});
  if (!times.synthesized.empty())
    panel.series.push_back({std::string(name_of(Algorithm::synthesized)),
                            above_zero(times.synthesized),
                            static_cast<int>(Algorithm::synthesized) - 1});
  std::ranges::stable_sort(panel.series, {}, [](const PlotSeries& series) {
    return series.points.empty() ? 0 : -series.points.back().y;  // as they lie at the right
  });
  panel.series.push_back({"lower bound", above_zero(times.bound), PlotSeries::kBound});
  return panel;
}

Panel schedule_panel(Routes& routes, const CallToSimulate& call) {
  const std::string title =
      fmt::format("Schedule of {}, {}, in slices of {}", name_of(call.key.algorithm),
                  bytes_text(call.bytes), bytes_text(call.slice_bytes));
  if (call.key.ranks > kRanksDrawn)
    return NotePanel{title, fmt::format("A schedule is drawn of up to {} ranks; here are {}.",
                                        kRanksDrawn, call.key.ranks)};
  MessagesDrawn messages;
  CallToSimulate told = call;
  told.event_by_event = true;
  told.on_message = [&messages](const SimulatedMessage& slice) {
    if (messages.size() <= kMessagesDrawn) messages.add(slice);
  };
  const SimulatedCall result = simulate_call(routes, told);
  if (messages.size() > kMessagesDrawn)
    return NotePanel{
        title, fmt::format("It has more than {} messages, too many to be drawn.", kMessagesDrawn)};
  SchedulePanel panel{.title = title,
                      .ranks = call.key.ranks,
                      .end_us = in_us(result.seconds()),
                      .messages = messages.take()};
  if (result.added_ps > 0) panel.added_us = 1e-6 * static_cast<double>(result.added_ps);
  return panel;
}

Panel lone_rank_panel() {
  return NotePanel{"One rank", "A job of one moves nothing."};
}

std::string link_text(const Network& network, LinkWay way) {
  const NetworkLink& link = network.links[static_cast<size_t>(way / 2)];
  return fmt::format("{} > {}", network.name_of(link.ends[way % 2]),
                     network.name_of(link.ends[1 - way % 2]));
}

Panel links_panel(const Network& network, const SimulatedCall& call) {
  if (call.links.empty() || call.ps == 0)
    return NotePanel{"Links", "Nothing passes a link between hosts."};
  const size_t drawn = std::min(kLinksDrawn, call.links.size());
  BarPanel panel{
      .title = fmt::format("The busiest links, {} of {}{}", drawn, call.links.size(),
                           call.ranks_run < network.ranks() ? "; of links alike, one" : ""),
      .axis_name = "busy, % of the time",
      .text = [](double percent) { return fmt::format("{:g}", percent); },
      .end = 100};
  for (size_t i = 0; i < drawn; ++i) {
    const LinkLoad& load = call.links[i];
    const double percent = 100 * load.busy_s / call.seconds();
    panel.bars.push_back(
        {link_text(network, load.way), percent,
         fmt::format("{:.1f} %, {}", percent, bytes_text(static_cast<uint64_t>(load.bytes)))});
  }
  return panel;
}

}  // namespace ropewalk::tools
