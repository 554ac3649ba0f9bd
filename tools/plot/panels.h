// How each kind of panel is drawn.
#pragma once

#include "tools/plot/figure.h"

namespace ropewalk::tools {

inline constexpr double kFigureWidth = 900;
inline constexpr double kFigureMargin = 16;

/// How high it is, and drawing it from `top` on. Its values have been checked.
double height_of(const LinePanel& panel);
double height_of(const BarPanel& panel);
double height_of(const SchedulePanel& panel);
double height_of(const NotePanel& panel);
void draw(Svg& svg, double top, const LinePanel& panel);
void draw(Svg& svg, double top, const BarPanel& panel);
void draw(Svg& svg, double top, const SchedulePanel& panel);
void draw(Svg& svg, double top, const NotePanel& panel);

/// Where a panel's values are drawn.
struct PlotArea {
  double left, top, right, bottom;

  double x_of(double share) const { return left + share * (right - left); }
  double y_of(double share) const { return bottom - share * (bottom - top); }
};

void draw_panel_title(Svg& svg, double top, const std::string& title);
/// Grid, border, ticks and their names.
void draw_x_axis(Svg& svg, const PlotArea& area, const Axis& axis, const std::string& name,
                 const TickText& text);
void draw_y_axis(Svg& svg, const PlotArea& area, const Axis& axis, const std::string& name,
                 const TickText& text);

}  // namespace ropewalk::tools
