#include "tools/plot/panels.h"

#include <algorithm>

#include "base/text.h"

namespace ropewalk::tools {
namespace {

constexpr double kTitleHeight = 30, kAxisHeight = 44, kRowHeight = 19;
constexpr double kLetter = 6.4;  // a wide one of the usual size, at least
constexpr size_t kNameLetters = 48, kNoteLetters = 120;
constexpr Pen kFrame{.colour = "#000000", .width = 1};
constexpr Pen kGrid{.colour = "#dddddd", .width = 1};
constexpr Pen kBoundPen{.colour = "#000000", .width = 1.8, .dashes = "4 3"};

/// Of the longest name.
double width_of(size_t letters) {
  return kLetter * static_cast<double>(std::min(letters, kNameLetters) + 1);
}

// Line panels.

constexpr double kLineAreaHeight = 250, kLineTop = kTitleHeight + 20, kSample = 44;

double line_area_height(const LinePanel& panel) {
  return std::max(kLineAreaHeight, kRowHeight * static_cast<double>(panel.series.size()));
}

std::vector<double> values_of(const LinePanel& panel, double PlotPoint::*value) {
  std::vector<double> values;
  for (const PlotSeries& series : panel.series)
    for (const PlotPoint& point : series.points) values.push_back(point.*value);
  return values;
}

void draw_series(Svg& svg, const std::vector<PlotPoint>& points, int style) {
  svg.begin(style == PlotSeries::kBound ? kBoundPen : line_style(style));
  svg.polyline(points);
  svg.end();
  if (style == PlotSeries::kBound) return;
  for (const PlotPoint& point : points) svg.marker(point, style);
}

void draw_legend(Svg& svg, const PlotArea& area, const std::vector<PlotSeries>& all) {
  double y = area.top + 8;
  for (const PlotSeries& series : all) {
    const double x = area.right + 16;
    std::vector<PlotPoint> sample = {{x, y}, {x + kSample / 2, y}, {x + kSample, y}};
    svg.begin(series.style == PlotSeries::kBound ? kBoundPen : line_style(series.style));
    svg.polyline(sample);
    svg.end();
    if (series.style != PlotSeries::kBound) svg.marker(sample[1], series.style);
    svg.text({x + kSample + 8, y + 4}, shortened(series.name, kNameLetters));
    y += kRowHeight;
  }
}

// Bars.

double bars_height(const BarPanel& panel) {
  return kRowHeight * std::max<double>(1, static_cast<double>(panel.bars.size()));
}

/// The longest of their names, or of the texts behind them.
size_t longest(const BarPanel& panel, std::string BarPanel::Bar::*text) {
  size_t letters = 4;
  for (const BarPanel::Bar& bar : panel.bars) letters = std::max(letters, (bar.*text).size());
  return letters;
}

std::vector<std::string> note_lines(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const std::string_view word : split(text, ' ')) {
    if (!lines.back().empty() && lines.back().size() + word.size() >= kNoteLetters)
      lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + std::string(word);
  }
  return lines;
}

}  // namespace

void draw_panel_title(Svg& svg, double top, const std::string& title) {
  svg.text({kFigureMargin, top + 16}, shortened(title, kNoteLetters), Anchor::start, {13, true});
}

void draw_x_axis(Svg& svg, const PlotArea& area, const Axis& axis, const std::string& name,
                 const TickText& text) {
  svg.begin(kGrid);
  for (const double tick : axis.ticks()) {
    const double x = area.x_of(axis.share_of(tick));
    svg.line({x, area.top}, {x, area.bottom});
  }
  svg.end();
  svg.begin(kFrame);
  svg.line({area.left, area.bottom}, {area.right, area.bottom});
  for (const double tick : axis.ticks()) {
    const double x = area.x_of(axis.share_of(tick));
    svg.line({x, area.bottom}, {x, area.bottom + 5});
  }
  svg.end();
  for (const double tick : axis.ticks())
    svg.text({area.x_of(axis.share_of(tick)), area.bottom + 18}, text(tick), Anchor::middle);
  svg.text({(area.left + area.right) / 2, area.bottom + 34}, name, Anchor::middle);
}

void draw_y_axis(Svg& svg, const PlotArea& area, const Axis& axis, const std::string& name,
                 const TickText& text) {
  svg.begin(kGrid);
  for (const double tick : axis.ticks()) {
    const double y = area.y_of(axis.share_of(tick));
    svg.line({area.left, y}, {area.right, y});
  }
  svg.end();
  svg.begin(kFrame);
  svg.line({area.left, area.top}, {area.left, area.bottom});
  for (const double tick : axis.ticks()) {
    const double y = area.y_of(axis.share_of(tick));
    svg.line({area.left - 5, y}, {area.left, y});
  }
  svg.end();
  for (const double tick : axis.ticks())
    svg.text({area.left - 9, area.y_of(axis.share_of(tick)) + 4}, text(tick), Anchor::end);
  svg.text({kFigureMargin, area.top - 13}, name);
}

double height_of(const LinePanel& panel) {
  return kLineTop + line_area_height(panel) + kAxisHeight;
}

void draw(Svg& svg, double top, const LinePanel& panel) {
  size_t letters = 8;
  for (const PlotSeries& series : panel.series) letters = std::max(letters, series.name.size());
  const double area_top = top + kLineTop;
  const PlotArea area{kFigureMargin + 64, area_top,
                      kFigureWidth - kFigureMargin - kSample - 24 - width_of(letters),
                      area_top + line_area_height(panel)};
  const Axis x(panel.x.scale, values_of(panel, &PlotPoint::x));
  const Axis y(panel.y.scale, values_of(panel, &PlotPoint::y));
  draw_panel_title(svg, top, panel.title);
  draw_y_axis(svg, area, y, panel.y.name, panel.y.text);
  draw_x_axis(svg, area, x, panel.x.name, panel.x.text);
  for (const PlotSeries& series : panel.series) {
    std::vector<PlotPoint> points;
    for (const PlotPoint& point : series.points)
      points.push_back({area.x_of(x.share_of(point.x)), area.y_of(y.share_of(point.y))});
    draw_series(svg, points, series.style);
  }
  draw_legend(svg, area, panel.series);
}

double height_of(const BarPanel& panel) {
  return kTitleHeight + bars_height(panel) + kAxisHeight;
}

void draw(Svg& svg, double top, const BarPanel& panel) {
  const double area_top = top + kTitleHeight;
  const PlotArea area{kFigureMargin + width_of(longest(panel, &BarPanel::Bar::name)), area_top,
                      kFigureWidth - kFigureMargin - width_of(longest(panel, &BarPanel::Bar::text)),
                      area_top + bars_height(panel)};
  std::vector<double> values = {panel.end};
  for (const BarPanel::Bar& bar : panel.bars) values.push_back(bar.value);
  const Axis axis(Scale::linear, values);
  draw_panel_title(svg, top, panel.title);
  draw_x_axis(svg, area, axis, panel.axis_name, panel.text);
  double y = area.top;
  for (const BarPanel::Bar& bar : panel.bars) {
    const double end = area.x_of(axis.share_of(bar.value));
    svg.text({area.left - 8, y + 13}, shortened(bar.name, kNameLetters), Anchor::end);
    svg.begin({.colour = "#000000", .width = 0.8, .fill = "#9ecae1"});
    svg.rectangle({area.left, y + 3}, end - area.left, kRowHeight - 6);
    svg.end();
    svg.text({end + 6, y + 13}, shortened(bar.text, kNameLetters));
    y += kRowHeight;
  }
}

double height_of(const NotePanel& panel) {
  return kTitleHeight + kRowHeight * static_cast<double>(note_lines(panel.text).size());
}

void draw(Svg& svg, double top, const NotePanel& panel) {
  draw_panel_title(svg, top, panel.title);
  double y = top + kTitleHeight + 6;
  for (const std::string& line : note_lines(panel.text)) {
    svg.text({kFigureMargin, y}, line);
    y += kRowHeight;
  }
}

}  // namespace ropewalk::tools
