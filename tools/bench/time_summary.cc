#include "tools/bench/time_summary.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>

#include "base/clock.h"

namespace ropewalk::tools {
namespace {

// The smallest value that at least `share` of all are not above.
double quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<size_t>(share * static_cast<double>(sorted.size()) + 0.999999);
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace

double now_us() {
  return static_cast<double>(MonotonicClock().now_ns()) / 1e3;
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

TimeSummary summarize_times(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  return {us.front(), quantile(us, 0.5), quantile(us, 0.99)};
}

double rounded(double value, double per_unit) {
  return std::round(value * per_unit) / per_unit;
}

}  // namespace ropewalk::tools
