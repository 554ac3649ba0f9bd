#include "base/units.h"

#include <fmt/format.h>

#include <array>

namespace ropewalk {
namespace {

/// With so many digits after the point that there are three in all, and none where they are zeros.
std::string short_text(double value) {
  std::string text = fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
  if (text.find('.') == std::string::npos) return text;
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  if (bytes == 1) return "1 byte";
  constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 1024; value /= 1024) ++unit;
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

std::string time_text(double us) {
  if (us < 999.5) return short_text(us) + " us";
  if (us < 999.5e3) return short_text(us / 1e3) + " ms";
  return short_text(us / 1e6) + " s";
}

}  // namespace ropewalk
