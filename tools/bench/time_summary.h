// What many measurements of one thing come to, and how they are taken and printed.
#pragma once

#include <string>
#include <vector>

namespace ropewalk::tools {

/// Of the monotonic clock.
double now_us();
/// At once, so that who reads along sees each line.
void print(const std::string& text);

struct TimeSummary {
  double min_us = 0, median_us = 0, p99_us = 0;
};

/// `us`: at least one.
TimeSummary summarize_times(std::vector<double> us);

/// `value` with as many digits as `per_unit` (a power of ten) has zeros: for printing.
double rounded(double value, double per_unit);

}  // namespace ropewalk::tools
