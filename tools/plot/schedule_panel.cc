// The space-time diagram.
#include <algorithm>
#include <functional>
#include <string>

#include "base/units.h"
#include "tools/plot/panels.h"

namespace ropewalk::tools {
namespace {

constexpr double kTop = 66, kBottom = 44;
constexpr Pen kRankLine{.colour = "#bbbbbb", .width = 1};
constexpr Pen kAddedPen{.colour = "#0072B2", .width = 1, .fill = "#0072B2", .fill_opacity = 0.18};
constexpr Pen kStoredPen{
    .colour = "#D55E00", .width = 1, .dashes = "4 2", .fill = "#D55E00", .fill_opacity = 0.12};
constexpr Pen kAddedUpPen{.colour = "#000000", .width = 1.4, .dashes = "1.5 2.5"};

double row_height(const SchedulePanel& panel) {
  return panel.ranks <= 8 ? 34 : panel.ranks <= 16 ? 24 : 17;
}

double rows_height(const SchedulePanel& panel) {
  return row_height(panel) * std::max(panel.ranks - 1, 1) + 12;
}

const Pen& pen_of(bool added) {
  return added ? kAddedPen : kStoredPen;
}

using PlaceOf = std::function<PlotPoint(double us, int rank)>;

/// A line where there is one slice: dashes of a band's two sides would fill each other's gaps.
void draw_message(Svg& svg, const SchedulePanel::Message& message, const PlaceOf& at) {
  const PlotPoint posted = at(message.posted_us, message.from);
  const PlotPoint arrived = at(message.last_arrived_us, message.to);
  if (message.posted_us == message.last_posted_us) return svg.line(posted, arrived);
  svg.polygon({posted, at(message.last_posted_us, message.from), arrived,
               at(message.arrived_us, message.to)});
}

/// The two kinds of messages, as they are drawn.
void draw_kinds(Svg& svg, double top, bool has_added) {
  double x = kFigureMargin;
  for (const bool added : {true, false}) {
    if (added && !has_added) continue;
    svg.begin(pen_of(added));
    svg.polygon({{x, top}, {x + 8, top}, {x + 38, top + 12}, {x + 30, top + 12}});
    svg.end();
    svg.begin({.fill = "#000000"});
    svg.circle({x + 38, top + 12}, 1.5);
    svg.end();
    svg.text({x + 46, top + 10}, added ? "added by the receiver" : "stored by the receiver");
    x += 190;
  }
  svg.text({x, top + 10},
           "A dot is where the last byte arrives. Slices of a message are drawn as one band.");
}

}  // namespace

double height_of(const SchedulePanel& panel) {
  return kTop + rows_height(panel) + kBottom;
}

void draw(Svg& svg, double top, const SchedulePanel& panel) {
  const PlotArea area{kFigureMargin + 52, top + kTop, kFigureWidth - kFigureMargin - 14,
                      top + kTop + rows_height(panel)};
  const Axis time(Scale::linear, {panel.end_us});
  const auto at = [&](double us, int rank) {
    return PlotPoint{area.x_of(time.share_of(us)), area.top + row_height(panel) * rank};
  };
  draw_panel_title(svg, top, panel.title);
  draw_kinds(svg, top + 28, std::ranges::any_of(panel.messages, &SchedulePanel::Message::added));
  draw_x_axis(svg, area, time, "time", time_tick);
  svg.begin(kRankLine);
  for (int rank = 0; rank < panel.ranks; ++rank) svg.line(at(0, rank), at(panel.end_us, rank));
  svg.end();
  for (int rank = 0; rank < panel.ranks; ++rank)
    svg.text({area.left - 6, at(0, rank).y + 4}, "rank " + std::to_string(rank), Anchor::end);
  for (const bool added : {true, false}) {
    svg.begin(pen_of(added));
    for (const SchedulePanel::Message& message : panel.messages)
      if (message.added == added) draw_message(svg, message, at);
    svg.end();
  }
  svg.begin({.width = 0, .fill = "#000000"});
  for (const SchedulePanel::Message& message : panel.messages)
    svg.circle(at(message.last_arrived_us, message.to), 1.6);
  svg.end();
  if (!panel.added_us) return;
  const double x = at(*panel.added_us, 0).x;
  svg.begin(kAddedUpPen);
  svg.line({x, area.top - 6}, {x, area.bottom});
  svg.end();
  svg.text({x, area.top - 9}, "added up: " + time_text(*panel.added_us),
           x > area.x_of(0.85) ? Anchor::end : Anchor::middle);
}

}  // namespace ropewalk::tools
