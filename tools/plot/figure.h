// What `--plot` draws: panels, one below the other, as one SVG file that reads in black and white.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tools/plot/axis.h"
#include "tools/plot/svg.h"

namespace ropewalk::tools {

/// How the name of a tick is written.
using TickText = std::function<std::string(double)>;

/// "64 KiB", "8 B".
std::string size_tick(double bytes);
/// "1 MB/s", of 10^9 bytes a second.
std::string rate_tick(double gb_per_s);
/// "20 us".
std::string time_tick(double us);

/// One line.
struct PlotSeries {
  static constexpr int kBound = -1;  // a black line without markers: what none can beat

  std::string name;
  std::vector<PlotPoint> points = {};  // by ascending x
  int style = kBound;                  // or as in line_style
};

/// Something over something, with a legend.
struct LinePanel {
  struct Side {
    std::string name;
    Scale scale;
    TickText text;
  };
  std::string title;
  Side x, y;
  std::vector<PlotSeries> series = {};
};

/// A bar for each of some names.
struct BarPanel {
  struct Bar {
    std::string name;
    double value = 0;
    std::string text;  // behind the bar
  };
  std::string title;
  std::string axis_name;
  TickText text;  // of the axis
  std::vector<Bar> bars = {};
  double end = 0;  // the axis goes on to here, at least
};

/// Messages between ranks over time: a space-time diagram.
struct SchedulePanel {
  /// One, or its slices together. Times in us: begin and end of sending, begin and end of
  /// arriving, of the first and the last slice.
  struct Message {
    int from, to;
    bool added;  // to what the receiver has; else stored
    double posted_us, last_posted_us, arrived_us, last_arrived_us;
  };
  std::string title;
  int ranks = 1;
  double end_us = 0;
  std::optional<double> added_us = {};  // when all was added up
  std::vector<Message> messages = {};
};

/// What cannot be drawn, and why.
struct NotePanel {
  std::string title, text;
};

using Panel = std::variant<LinePanel, BarPanel, SchedulePanel, NotePanel>;

/// An SVG document. Throws Error(invalid_argument) where a value is not finite, is negative, or
/// is 0 on a logarithmic axis.
std::string svg_of(const std::string& title, const std::vector<Panel>& panels);

/// The file that --plot names.
class PlotFile {
 public:
  /// Throws Error(invalid_argument) of `command` that names the file, where it does not end in
  /// ".svg" or cannot be written. What is in it stays there until `write`.
  PlotFile(std::string command, std::string path);
  /// Throws Error(system) that names the file.
  void write(const std::string& title, const std::vector<Panel>& panels) const;

 private:
  const std::string command_, path_;
};

}  // namespace ropewalk::tools
