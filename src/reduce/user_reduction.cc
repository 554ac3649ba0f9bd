#include "reduce/user_reduction.h"

#include <algorithm>
#include <cstring>

namespace ropewalk {
namespace {

/// A destination in which the function may accumulate: one that is none of the further sources,
/// which must still be read. Null where there is none.
std::byte* find_accumulator(const ReduceArguments& a) {
  const auto further_begin = a.sources + 1, further_end = a.sources + a.source_count;
  for (size_t k = 0; k < a.destination_count; ++k)
    if (std::find(further_begin, further_end, a.destinations[k]) == further_end)
      return a.destinations[k];
  return nullptr;
}

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (to != from) std::memcpy(to, from, bytes);
}

}  // namespace

void reduce_user(const ReduceArguments& a, DataType type, const ReduceOp& op) {
  alignas(64) std::byte block[kUserBlockBytes];
  std::byte* const accumulator = find_accumulator(a);
  const size_t element_bytes = size_of(type);
  const size_t total = a.count * element_bytes;
  for (size_t offset = 0; offset < total; offset += kUserBlockBytes) {
    const size_t bytes = std::min(kUserBlockBytes, total - offset);
    std::byte* const sum = accumulator != nullptr ? accumulator + offset : block;
    copy_bytes(sum, a.sources[0] + offset, bytes);
    for (size_t s = 1; s < a.source_count; ++s)
      op.function(sum, a.sources[s] + offset, bytes / element_bytes, type, op.context);
    for (size_t k = 0; k < a.destination_count; ++k)
      copy_bytes(a.destinations[k] + offset, sum, bytes);
  }
}

}  // namespace ropewalk
