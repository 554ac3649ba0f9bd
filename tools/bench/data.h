// Known data for the pass that checks results: every element of every result is predicted exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ropewalk/types.h"
#include "tools/bench/shape.h"

namespace ropewalk::tools {

/// Inputs and results for one collective, type, op and number of ranks. Reductions use small
/// integers, chosen so that every partial sum or product, in any order, is exact in the type;
/// pure movement uses arbitrary bits, NaNs included.
class BenchData {
 public:
  BenchData(BenchKind kind, DataType type, ReduceKind op, int ranks, int root);

  /// The factor of scaled_sum on `rank`; 1 for other ops.
  static double scale_of(ReduceKind op, int rank) {
    if (op != ReduceKind::scaled_sum) return 1;
    return rank % 2 == 0 ? 0.5 : 2;
  }
  /// Writes `count` elements of `rank`'s input.
  void fill(std::byte* to, size_t count, int rank) const;
  /// How many of the shape.out_count elements at `out` are not what `rank` must have.
  size_t count_wrong(const std::byte* out, const BenchShape& shape, int rank) const;

 private:
  double input(int rank, size_t position) const;
  double result(size_t position) const;
  std::vector<std::byte> table(int rank_or_result) const;

  BenchKind kind_;
  DataType type_;
  ReduceKind op_;
  int ranks_, root_;
  uint64_t values_;                // inputs of sums lie below this
  std::vector<std::byte> result_;  // one period
};

/// Writes one to every element, as cheaply as a memset: what a backward pass leaves behind,
/// cache-wise.
void fill_ones(std::byte* to, size_t count, DataType type);

}  // namespace ropewalk::tools
