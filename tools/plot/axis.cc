#include "tools/plot/axis.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace ropewalk::tools {
namespace {

constexpr int kTicksMax = 9;
constexpr double kExact = 1e-9;  // logarithms and sums of steps are off by less

/// Round numbers are 1, 2 and 5 times powers of ten. The nearest that is not above `value`.
double round_below(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value) + kExact));
  for (const double digit : {5.0, 2.0})
    if (digit * unit <= value * (1 + kExact)) return digit * unit;
  return unit;
}

/// The nearest that is not below.
double round_above(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value) + kExact));
  for (const double digit : {1.0, 2.0, 5.0})
    if (digit * unit >= value * (1 - kExact)) return digit * unit;
  return 10 * unit;
}

/// The neighbours of a round number.
double round_after(double round) {
  return round_above(1.5 * round);
}
double round_before(double round) {
  return round_below(round / 1.5);
}

}  // namespace

Axis::Axis(Scale scale, const std::vector<double>& values) : scale_(scale) {
  [[maybe_unused]] const bool is_log = scale != Scale::linear;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double first = values.empty() ? 1 : *least;
  const double last = values.empty() ? 1 : *most;
  assert(std::ranges::all_of(values, [](double value) { return std::isfinite(value); }));
  assert(is_log ? first > 0 : first >= 0);
  if (scale == Scale::linear) cover_linear(last);
  if (scale == Scale::log2) cover_log2(first, last);
  if (scale == Scale::log10) cover_log10(first, last);
}

double Axis::share_of(double value) const {
  if (scale_ == Scale::linear) return value / end_;
  assert(value > 0);
  return std::log(value / begin_) / std::log(end_ / begin_);
}

void Axis::cover_linear(double most) {
  end_ = most > 0 ? most : 1;
  const double step = round_above(end_ / (kTicksMax - 1));
  for (int i = 0; i * step <= end_ * (1 + kExact); ++i) ticks_.push_back(i * step);
}

void Axis::cover_log2(double least, double most) {
  int first = static_cast<int>(std::floor(std::log2(least) + kExact));
  int last = static_cast<int>(std::ceil(std::log2(most) - kExact));
  if (first == last) {
    if (first > 0) --first;  // there is no part of a byte
    ++last;
  }
  begin_ = std::exp2(first);
  end_ = std::exp2(last);
  const int step = (last - first + kTicksMax - 2) / (kTicksMax - 1);
  for (int power = first; power <= last; power += step) ticks_.push_back(std::exp2(power));
}

void Axis::cover_log10(double least, double most) {
  begin_ = round_below(least);
  end_ = round_above(most);
  if (end_ < 1.1 * begin_) {
    begin_ = round_before(begin_);
    end_ = round_after(end_);
  }
  for (double tick = begin_; tick <= end_ * (1 + kExact); tick = round_after(tick))
    ticks_.push_back(tick);
  if (ticks_.size() <= kTicksMax) return;
  ticks_.clear();
  const int first = static_cast<int>(std::ceil(std::log10(begin_) - kExact));
  const int last = static_cast<int>(std::floor(std::log10(end_) + kExact));
  const int step = (last - first) / kTicksMax + 1;
  for (int power = first; power <= last; power += step) ticks_.push_back(std::pow(10, power));
}

}  // namespace ropewalk::tools
