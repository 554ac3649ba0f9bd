#include "tools/plot/svg.h"

#include <fmt/format.h>

#include <array>
#include <cassert>
#include <cmath>

#include "base/text.h"

namespace ropewalk::tools {
namespace {

// Colours that colour-blind people tell apart (Okabe and Ito), as in bench/comparison/plots.py.
constexpr std::array<std::string_view, 7> kColours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                      "#E69F00", "#56B4E9", "#555555"};
constexpr std::array<std::string_view, 5> kDashes = {"", "7 3", "2 3", "9 3 2 3", "12 3 2 3 2 3"};
constexpr double kMarkerRadius = 3.8;

/// Markers by their corners, on a circle of radius 1; filled ones come first. The first is round,
/// and the last is two strokes.
constexpr int kMarkerShapes = 6;
const std::array<std::vector<PlotPoint>, kMarkerShapes> kMarkers = {{
    {},
    {{-.85, -.85}, {.85, -.85}, {.85, .85}, {-.85, .85}},
    {{0, -1.1}, {1, .8}, {-1, .8}},
    {{0, -1.2}, {1.2, 0}, {0, 1.2}, {-1.2, 0}},
    {{0, 1.1}, {1, -.8}, {-1, -.8}},
    {},
}};

std::string number(double value) {
  assert(std::isfinite(value));
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string numbers(const std::vector<PlotPoint>& points) {
  std::string text;
  for (const PlotPoint& point : points)
    text += fmt::format("{}{},{}", text.empty() ? "" : " ", number(point.x), number(point.y));
  return text;
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string xml;
  for (const char letter : printable(text)) {
    switch (letter) {
      case '&':
        xml += "&amp;";
        break;
      case '<':
        xml += "&lt;";
        break;
      case '>':
        xml += "&gt;";
        break;
      case '"':
        xml += "&quot;";
        break;
      case '\'':
        xml += "&apos;";
        break;
      default:
        xml += letter;
    }
  }
  // U+FFFE and U+FFFF are no characters of XML.
  for (const std::string_view none : {"\xef\xbf\xbe", "\xef\xbf\xbf"})
    for (size_t at; (at = xml.find(none)) != xml.npos;) xml.replace(at, none.size(), "?");
  return xml;
}

std::string shortened(std::string_view text, size_t letters) {
  const std::string line = printable(text);
  if (line.size() <= letters) return line;
  return std::string(cut(line, letters - 1)) + "\xe2\x80\xa6";
}

Pen line_style(int style) {
  const auto i = static_cast<size_t>(style);
  return {
      .colour = kColours[i % kColours.size()], .width = 1.8, .dashes = kDashes[i % kDashes.size()]};
}

void Svg::begin(const Pen& pen) {
  body_ += fmt::format(R"(<g stroke="{}" stroke-width="{}" fill="{}")", pen.colour,
                       number(pen.width), pen.fill);
  if (pen.fill_opacity < 1) body_ += fmt::format(R"( fill-opacity="{:.2f}")", pen.fill_opacity);
  if (!pen.dashes.empty()) body_ += fmt::format(R"( stroke-dasharray="{}")", pen.dashes);
  body_ += ">\n";
}

void Svg::end() {
  body_ += "</g>\n";
}

void Svg::line(PlotPoint from, PlotPoint to) {
  body_ += fmt::format(R"(<line x1="{}" y1="{}" x2="{}" y2="{}"/>)", number(from.x), number(from.y),
                       number(to.x), number(to.y)) +
           "\n";
}

void Svg::polyline(const std::vector<PlotPoint>& points) {
  body_ += fmt::format(R"(<polyline points="{}" fill="none"/>)", numbers(points)) + "\n";
}

void Svg::polygon(const std::vector<PlotPoint>& points) {
  body_ += fmt::format(R"(<polygon points="{}"/>)", numbers(points)) + "\n";
}

void Svg::rectangle(PlotPoint corner, double width, double height) {
  body_ += fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}"/>)", number(corner.x),
                       number(corner.y), number(width), number(height)) +
           "\n";
}

void Svg::circle(PlotPoint centre, double radius) {
  body_ += fmt::format(R"(<circle cx="{}" cy="{}" r="{}"/>)", number(centre.x), number(centre.y),
                       number(radius)) +
           "\n";
}

void Svg::marker(PlotPoint centre, int style) {
  const int shape = style % kMarkerShapes;
  const bool filled = style / kMarkerShapes % 2 == 0;
  const Pen style_pen = line_style(style);
  const auto at = [&](double x, double y) {
    return PlotPoint{centre.x + kMarkerRadius * x, centre.y + kMarkerRadius * y};
  };
  begin({.colour = style_pen.colour, .width = 1.5, .fill = filled ? style_pen.colour : "#ffffff"});
  if (shape == 0) {
    circle(centre, kMarkerRadius);
  } else if (shape == kMarkerShapes - 1) {  // x where filled ones are meant, else +
    line(at(-1, filled ? -1 : 0), at(1, filled ? 1 : 0));
    line(at(filled ? -1 : 0, filled ? 1 : -1), at(filled ? 1 : 0, filled ? -1 : 1));
  } else {
    std::vector<PlotPoint> corners;
    for (const PlotPoint& corner : kMarkers[static_cast<size_t>(shape)])
      corners.push_back(at(corner.x, corner.y));
    polygon(corners);
  }
  end();
}

void Svg::text(PlotPoint at, std::string_view text, Anchor anchor, const Font& font) {
  constexpr std::array<std::string_view, 3> kAnchors = {"start", "middle", "end"};
  body_ += fmt::format(R"(<text x="{}" y="{}" font-size="{}" text-anchor="{}"{}>{}</text>)",
                       number(at.x), number(at.y), number(font.size),
                       kAnchors[static_cast<size_t>(anchor)],
                       font.bold ? R"( font-weight="bold")" : "", xml_text(text)) +
           "\n";
}

std::string Svg::document(double width, double height, std::string_view title) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\">\n<title>{2}</title>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n{3}</svg>\n",
      number(width), number(height), xml_text(title), body_);
}

}  // namespace ropewalk::tools
