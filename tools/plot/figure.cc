#include "tools/plot/figure.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/text.h"
#include "base/units.h"
#include "ropewalk/status.h"
#include "tools/plot/panels.h"

namespace ropewalk::tools {
namespace {

constexpr double kHeaderHeight = 40, kGap = 18;

void check_value(double value, bool is_log, const std::string& what) {
  if (std::isfinite(value) && (is_log ? value > 0 : value >= 0)) return;
  throw Error(ErrorCode::invalid_argument, "plot",
              fmt::format("{} of \"{}\" cannot be drawn", value, printable(what)));
}

void check_values(const LinePanel& panel) {
  for (const PlotSeries& series : panel.series)
    for (const PlotPoint& point : series.points) {
      check_value(point.x, panel.x.scale != Scale::linear, series.name);
      check_value(point.y, panel.y.scale != Scale::linear, series.name);
    }
}

void check_values(const BarPanel& panel) {
  check_value(panel.end, false, panel.title);
  for (const BarPanel::Bar& bar : panel.bars) check_value(bar.value, false, bar.name);
}

void check_values(const SchedulePanel& panel) {
  check_value(panel.end_us, false, panel.title);
  check_value(panel.added_us.value_or(0), false, panel.title);
  for (const SchedulePanel::Message& message : panel.messages)
    for (const double us :
         {message.posted_us, message.last_posted_us, message.arrived_us, message.last_arrived_us})
      check_value(us, false, panel.title);
}

void check_values(const NotePanel&) {}

}  // namespace

std::string size_tick(double bytes) {
  const std::string text = bytes_text(static_cast<uint64_t>(bytes));
  return text.substr(0, text.find(" byte")) + (text.find(" byte") == text.npos ? "" : " B");
}

std::string rate_tick(double gb_per_s) {
  constexpr std::array kUnits = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  double value = gb_per_s * 1e9;
  size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kUnits.size(); value /= 1000) ++unit;
  return fmt::format("{:.3g} {}", value, kUnits[unit]);
}

std::string time_tick(double us) {
  return us == 0 ? "0" : time_text(us);
}

std::string svg_of(const std::string& title, const std::vector<Panel>& panels) {
  Svg svg;
  svg.text({kFigureMargin, 26}, shortened(title, 95), Anchor::start, {15, true});
  double top = kHeaderHeight;
  for (const Panel& panel : panels) {
    std::visit(
        [&](const auto& one) {
          check_values(one);
          draw(svg, top, one);
          top += height_of(one) + kGap;
        },
        panel);
  }
  return svg.document(kFigureWidth, top, title);
}

PlotFile::PlotFile(std::string command, std::string path)
    : command_(std::move(command)), path_(std::move(path)) {
  const auto refuse = [this](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, command_,
                fmt::format("--plot {}: {}", printable(path_), why),
                "name a file that can be written, and ends in .svg");
  };
  if (!path_.ends_with(".svg")) refuse("what is drawn is SVG");
  if (!std::ofstream(path_, std::ios::app)) refuse(std::strerror(errno));
}

void PlotFile::write(const std::string& title, const std::vector<Panel>& panels) const {
  std::ofstream file(path_, std::ios::trunc);
  file << svg_of(title, panels);
  if (!file.flush())
    throw Error(ErrorCode::system, command_,
                fmt::format("cannot write {}: {}", printable(path_), std::strerror(errno)));
}

}  // namespace ropewalk::tools
