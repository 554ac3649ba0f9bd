// What one measured call moves: counts, places, and the bytes that bandwidth is computed from.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/types.h"

namespace ropewalk::tools {

/// What `ropewalk bench` can measure: the collectives, and send_recv: every rank sends to the next
/// and receives from the one before.
struct BenchKind {
  Collective collective = Collective::all_reduce;  // Collective::send for send_recv
  bool is_send_recv() const { return collective == Collective::send; }
  bool reduces() const;
  bool has_root() const;
  /// all_reduce, broadcast and reduce work in place unless told otherwise, the others do not.
  bool in_place_by_default() const;
  bool can_be_in_place() const;
  bool can_be_out_of_place() const;
  std::string name() const;
};
std::optional<BenchKind> bench_kind_named(std::string_view word);
std::vector<std::string> bench_kind_names();
/// Throws Error(invalid_argument) of `command` where `algorithm` is none of those that run `kind`.
void check_algorithm(const char* command, BenchKind kind, Algorithm algorithm);

/// In elements. In place there is one buffer, `buffer_count` long, that holds input and output at
/// their offsets; else two, each from its start.
struct BenchShape {
  size_t count = 0;  // as Call::count means it
  size_t in_count = 0, out_count = 0;
  size_t in_offset = 0, out_offset = 0;
  size_t buffer_count = 0;
  size_t bytes = 0;       // the larger of the two sides, as nccl-tests counts
  double bus_factor = 1;  // busbw = algbw * bus_factor
};

/// The shape on `rank` for at most `bytes`, and at least one element a rank.
BenchShape bench_shape(BenchKind kind, size_t bytes, DataType type, int rank, int ranks, int root,
                       bool in_place);

}  // namespace ropewalk::tools
