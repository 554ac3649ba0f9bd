// The median of what was measured batch by batch: other work on the machine shows in few batches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ropewalk::micro {

/// Of at least one value.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace ropewalk::micro
