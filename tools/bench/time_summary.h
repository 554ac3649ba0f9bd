// What many measurements of one thing come to.
#pragma once

#include <vector>

namespace ropewalk::tools {

struct TimeSummary {
  double min_us = 0, median_us = 0, p99_us = 0;
};

/// `us`: at least one.
TimeSummary summarize_times(std::vector<double> us);

/// `value` with as many digits as `per_unit` (a power of ten) has zeros: for printing.
double rounded(double value, double per_unit);

}  // namespace ropewalk::tools
