// What blocks hold, symbolically; for the verifier. Internal to src/schedule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/schedule.h"

namespace ropewalk {

/// The contents of all blocks of all ranks. A content is a row of 64-bit words, all zero while
/// undefined: one bit per contributing rank, or one word for the origin of moved data.
class Contents {
 public:
  Contents(const ScheduleKey& key, const Schedule& layout);

  size_t words() const { return words_; }
  std::span<uint64_t> at(int rank, int block) {
    const size_t row = static_cast<size_t>(rank) * blocks_ + static_cast<size_t>(block);
    return {store_.data() + row * words_, words_};
  }
  /// The lowest rank missing from a sum, or -1.
  int missing(std::span<const uint64_t> content) const;
  static bool is_defined(std::span<const uint64_t> content);
  static uint64_t origin(int rank, int block) {
    return (static_cast<uint64_t>(rank) << 32 | static_cast<uint64_t>(block)) + 1;
  }

 private:
  int ranks_;
  size_t blocks_, words_;
  std::vector<uint64_t> store_;
};

/// Blocks [first, last) of `rank` that the collective promises, and what they must hold.
struct Promise {
  int first = 0, last = 0;
};
Promise promised_blocks(const ScheduleKey& key, const Schedule& layout, int rank);
/// Where data moves only: the origin that `block` of `rank` must hold at the end.
uint64_t promised_origin(const ScheduleKey& key, const Schedule& layout, int rank, int block);
/// Equal numbers: blocks that are equally long for every length of the vector, and, for the
/// collectives with a part per rank, for all lengths of the parts.
int64_t length_class(const ScheduleKey& key, const Schedule& layout, int rank, int block);

}  // namespace ropewalk
