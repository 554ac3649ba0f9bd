// Axes, SVG and panels.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <set>

#include "ropewalk/status.h"
#include "tools/plot/figure.h"
#include "tools/plot/xml_testing.h"

namespace ropewalk::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Axis, TicksOfSizesArePowersOfTwo) {
  EXPECT_THAT(Axis(Scale::log2, {8, 64}).ticks(), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(Axis(Scale::log2, {8, 64 << 20}).ticks(),
              ElementsAre(8, 64, 512, 4096, 32768, 262144, 2097152, 16777216));
  EXPECT_THAT(Axis(Scale::log2, {600, 1000}).ticks(), ElementsAre(512, 1024));
}

TEST(Axis, TicksOfTimesAreRound) {
  EXPECT_THAT(Axis(Scale::log10, {3, 40}).ticks(), ElementsAre(2, 5, 10, 20, 50));
  const Axis wide(Scale::log10, {0.003, 40'000});
  ASSERT_EQ(wide.ticks().size(), 7u);
  for (const double tick : wide.ticks())
    EXPECT_NEAR(std::log10(tick), std::round(std::log10(tick)), 1e-9) << tick;
  EXPECT_THAT(Axis(Scale::linear, {0, 73}).ticks(), ElementsAre(0, 10, 20, 30, 40, 50, 60, 70));
  EXPECT_THAT(Axis(Scale::linear, {3.1}).ticks(), ElementsAre(0, 0.5, 1, 1.5, 2, 2.5, 3));
}

TEST(Axis, CoversItsValuesWithFewTicks) {
  for (const Scale scale : {Scale::linear, Scale::log2, Scale::log10})
    for (double least = 1e-6; least < 1e13; least *= 17)
      for (double most = least; most < 1e15; most *= 3.3) {
        const Axis axis(scale, {most, least});
        EXPECT_LE(axis.begin(), least * (1 + 1e-9));
        EXPECT_GE(axis.end(), most * (1 - 1e-9));
        EXPECT_LE(axis.share_of(least), axis.share_of(most));
        EXPECT_GE(axis.ticks().size(), 2u) << least << " to " << most;
        EXPECT_LE(axis.ticks().size(), 9u) << least << " to " << most;
        for (const double tick : axis.ticks()) {
          EXPECT_GE(axis.share_of(tick), -1e-9);
          EXPECT_LE(axis.share_of(tick), 1 + 1e-9);
        }
      }
}

TEST(Axis, OfOneValueOrNoneCoversWhatIsAround) {
  for (const Scale scale : {Scale::log2, Scale::log10}) {
    EXPECT_NEAR(Axis(scale, {64}).share_of(64), 0.5, 0.35);
    EXPECT_LT(Axis(scale, {}).begin(), Axis(scale, {}).end());
  }
  EXPECT_THAT(Axis(Scale::log2, {64}).ticks(), ElementsAre(32, 64, 128));
  EXPECT_THAT(Axis(Scale::log2, {1}).ticks(), ElementsAre(1, 2));
  EXPECT_EQ(Axis(Scale::linear, {0}).end(), 1);
  EXPECT_EQ(Axis(Scale::linear, {}).begin(), 0);
}

TEST(Svg, TextIsEscapedAndPrintable) {
  EXPECT_EQ(xml_text("a < b & \"c\" > 'd'"), "a &lt; b &amp; &quot;c&quot; &gt; &apos;d&apos;");
  EXPECT_EQ(xml_text("\x01"), "\xef\xbf\xbd");
  EXPECT_EQ(xml_text("\xef\xbf\xbf"), "?");
  EXPECT_EQ(xml_text("two\nlines"), "two lines");
  EXPECT_EQ(shortened("0123456789", 10), "0123456789");
  EXPECT_EQ(shortened("0123456789x", 10), "012345678\xe2\x80\xa6");
}

TEST(Svg, TwelveMarkersDifferWithoutColour) {
  std::set<std::string> all;
  for (int style = 0; style < 12; ++style) {
    Svg svg;
    svg.marker({0, 0}, style);
    const std::string colour(line_style(style).colour);
    std::string text = svg.document(9, 9, "");
    for (size_t at; (at = text.find(colour)) != text.npos;) text.replace(at, colour.size(), "#000");
    all.insert(text);
  }
  EXPECT_EQ(all.size(), 12u);
}

LinePanel line_panel(std::vector<PlotPoint> points, const std::string& name = "one") {
  LinePanel panel{.title = "Time",
                  .x = {"bytes", Scale::log2, size_tick},
                  .y = {"time", Scale::log10, time_tick}};
  panel.series.push_back({name, std::move(points), 0});
  return panel;
}

/// The coordinates of the first polyline.
std::vector<PlotPoint> first_line(const std::string& svg) {
  std::smatch line;
  std::vector<PlotPoint> points;
  if (!std::regex_search(svg, line, std::regex(R"(<polyline points="([^"]*)\")"))) return points;
  const std::string text = line[1].str();
  const std::regex kPair(R"(([-0-9.]+),([-0-9.]+))");
  for (std::sregex_iterator at(text.begin(), text.end(), kPair), last; at != last; ++at)
    points.push_back({std::stod((*at)[1].str()), std::stod((*at)[2].str())});
  return points;
}

TEST(Figure, LinesRiseAndRunToTheRightAtEvenPaces) {
  const std::string svg = svg_of("All", {line_panel({{8, 1}, {64, 10}, {512, 100}, {4096, 1000}})});
  const std::vector<PlotPoint> line = first_line(svg);
  ASSERT_EQ(line.size(), 4u);
  for (size_t i = 1; i < line.size(); ++i) {
    EXPECT_NEAR(line[i].x - line[i - 1].x, line[1].x - line[0].x, 0.2);
    EXPECT_NEAR(line[i].y - line[i - 1].y, line[1].y - line[0].y, 0.2);
  }
  EXPECT_GT(line[1].x, line[0].x);
  EXPECT_LT(line[1].y, line[0].y);
  EXPECT_THAT(svg, HasSubstr(">512 B</text>"));
  EXPECT_THAT(svg, HasSubstr(">8 B</text>"));
  EXPECT_THAT(svg, HasSubstr(">1 ms</text>"));
}

TEST(Figure, EveryPanelIsWellFormedAlsoWithLittleInIt) {
  const std::string odd = "<odd> & \"\x02\xff\"";
  const std::vector<Panel> panels = {
      line_panel({}),
      line_panel({{8, 3}}, odd),
      LinePanel{
          .title = odd, .x = {"", Scale::log2, size_tick}, .y = {"", Scale::log10, time_tick}},
      BarPanel{.title = odd, .axis_name = odd, .text = time_tick},
      BarPanel{.title = "", .axis_name = "", .text = time_tick, .bars = {{odd, 0, odd}}},
      BarPanel{
          .title = "", .axis_name = "", .text = time_tick, .bars = {{"a", 1, ""}, {"b", 2, ""}}},
      SchedulePanel{.title = odd},
      SchedulePanel{.title = odd,
                    .ranks = 2,
                    .end_us = 3,
                    .added_us = 3,
                    .messages = {{0, 1, true, 0, 1, 2, 3}, {1, 0, false, 1, 1, 2, 2}}},
      NotePanel{odd, odd}};
  EXPECT_EQ(why_not_xml(svg_of("Nothing", {})), "");
  for (size_t i = 0; i < panels.size(); ++i)
    EXPECT_EQ(why_not_xml(svg_of(odd, {panels[i]})), "") << i;
  EXPECT_EQ(why_not_xml(svg_of(odd, panels)), "");
}

TEST(Figure, NothingIsDrawnBelowTheEnd) {
  const std::string svg = svg_of(
      "All", {line_panel({{8, 1}, {64, 10}}),
              SchedulePanel{
                  .title = "", .ranks = 32, .end_us = 3, .messages = {{31, 0, true, 0, 1, 2, 3}}},
              NotePanel{"", std::string(400, 'x') + " " + std::string(50, 'y')}});
  std::smatch size;
  ASSERT_TRUE(std::regex_search(svg, size, std::regex(R"(<svg [^>]*height="([0-9.]+)\")")));
  const double height = std::stod(size[1].str());
  const std::regex kY(R"(y[12]?="([-0-9.]+)\")");
  for (std::sregex_iterator at(svg.begin(), svg.end(), kY), last; at != last; ++at)
    EXPECT_LE(std::stod((*at)[1].str()), height);
}

TEST(Figure, WhatCannotBeDrawnIsRefusedByName) {
  const auto why = [](const Panel& panel) -> std::string {
    try {
      svg_of("All", {panel});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {nan, infinity, -infinity, 0.0, -1.0}) {
    EXPECT_THAT(why(line_panel({{8, value}}, "ring")), HasSubstr("of \"ring\" cannot be drawn"));
    EXPECT_THAT(why(line_panel({{value, 8}}, "ring")), HasSubstr("of \"ring\" cannot be drawn"));
  }
  for (const double value : {nan, infinity, -1.0}) {
    EXPECT_NE(
        why(BarPanel{.title = "", .axis_name = "", .text = time_tick, .bars = {{"a", value, ""}}}),
        "");
    EXPECT_NE(why(SchedulePanel{.title = "", .end_us = value}), "");
    EXPECT_NE(why(SchedulePanel{.title = "", .messages = {{0, 0, true, 0, 0, 0, value}}}), "");
  }
}

TEST(Figure, TicksAreNamedWithTheirUnits) {
  EXPECT_EQ(size_tick(1), "1 B");
  EXPECT_EQ(size_tick(8), "8 B");
  EXPECT_EQ(size_tick(64 << 20), "64 MiB");
  EXPECT_EQ(rate_tick(0.001), "1 MB/s");
  EXPECT_EQ(rate_tick(20), "20 GB/s");
  EXPECT_EQ(rate_tick(1e-9), "1 B/s");
  EXPECT_EQ(time_tick(0), "0");
  EXPECT_EQ(time_tick(2000), "2 ms");
}

}  // namespace
}  // namespace ropewalk::tools
