// SVG, as text: shapes, lines that differ in black and white as well, and words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/plot/axis.h"

namespace ropewalk::tools {

/// As text of XML: one line of UTF-8 (base/text.h), with its special characters written out.
std::string xml_text(std::string_view text);
/// `text` with at most `letters` characters, or near that; what is left out is told by an ellipsis.
std::string shortened(std::string_view text, size_t letters);

/// In pixels, from the upper left corner; or in the units of a plot's axes.
struct PlotPoint {
  double x, y;
};

/// How lines and areas look.
struct Pen {
  std::string_view colour = "#000000";
  double width = 1;
  std::string_view dashes = {};    // "6 3": of pixels; empty: none
  std::string_view fill = "none";  // of areas
  double fill_opacity = 1;
};

/// Number `style` of line styles: twelve differ in marker, and neighbours in colour and dashes,
/// too. Not negative.
Pen line_style(int style);

enum class Anchor { start, middle, end };

struct Font {
  double size = 11;
  bool bold = false;
};

/// Draws from behind to front. All numbers are finite.
class Svg {
 public:
  /// Shapes between `begin` and `end` look so; nested ones are not needed.
  void begin(const Pen& pen);
  void end();
  void line(PlotPoint from, PlotPoint to);
  void polyline(const std::vector<PlotPoint>& points);
  void polygon(const std::vector<PlotPoint>& points);
  void rectangle(PlotPoint corner, double width, double height);
  void circle(PlotPoint centre, double radius);
  /// The marker of a line style.
  void marker(PlotPoint centre, int style);
  void text(PlotPoint at, std::string_view text, Anchor anchor = Anchor::start,
            const Font& font = {});

  /// The document; `title` is told by viewers, and read out.
  std::string document(double width, double height, std::string_view title) const;

 private:
  std::string body_;
};

}  // namespace ropewalk::tools
