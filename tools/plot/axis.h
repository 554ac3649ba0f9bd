// An axis of a plot: where a value lies on it, and which values are marked.
#pragma once

#include <vector>

namespace ropewalk::tools {

enum class Scale {
  linear,  // from 0
  log2,    // sizes in bytes: marked at powers of two
  log10,   // marked at 1, 2 and 5 times powers of ten, or at the powers alone
};

class Axis {
 public:
  /// Covers `values`, which are finite and not negative; on a logarithmic scale they are positive.
  /// Of no values, or of one, it covers what is around. A linear axis ends at the largest value,
  /// the others at a round one.
  Axis(Scale scale, const std::vector<double>& values);

  double begin() const { return begin_; }
  double end() const { return end_; }
  /// 0 at the begin of the axis, 1 at its end.
  double share_of(double value) const;
  /// Ascending round numbers, at most nine.
  const std::vector<double>& ticks() const { return ticks_; }

 private:
  void cover_linear(double most);
  void cover_log2(double least, double most);
  void cover_log10(double least, double most);

  const Scale scale_;
  double begin_ = 0, end_ = 1;
  std::vector<double> ticks_;
};

}  // namespace ropewalk::tools
