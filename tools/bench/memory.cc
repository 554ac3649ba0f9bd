#include "tools/bench/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/units.h"
#include "ropewalk/status.h"
#include "topology/cgroup.h"

namespace ropewalk::tools {
namespace {

// Of what is available one part in so many is left alone: ranks need memory besides buffers.
constexpr uint64_t kShareLeft = 16;

size_t largest(const std::vector<size_t>& sizes) {
  assert(!sizes.empty());
  return *std::max_element(sizes.begin(), sizes.end());
}

}  // namespace

uint64_t buffer_bytes(const BenchOptions& options, int rank, int ranks) {
  const BenchShape shape = bench_shape(options.kind, largest(options.sizes), options.type, rank,
                                       ranks, options.root, options.in_place);
  return uint64_t{shape.buffer_count} * size_of(options.type) * (options.in_place ? 1 : 2);
}

uint64_t buffer_bytes(const BenchOptions& options) {
  uint64_t bytes = 0;
  for (int rank = 0; rank < options.ranks; ++rank)
    bytes += buffer_bytes(options, rank, options.ranks);
  return bytes;
}

void check_memory(const std::vector<size_t>& sizes, uint64_t bytes,
                  std::optional<uint64_t> available) {
  if (!available || bytes <= *available - *available / kShareLeft) return;
  throw Error(ErrorCode::exhausted, "bench",
              fmt::format("--sizes {} needs {} of memory on this host, where {} is available",
                          bytes_text(largest(sizes)), bytes_text(bytes), bytes_text(*available)),
              "choose smaller --sizes, fewer ranks, or raise the memory limit of the cgroup");
}

void check_memory(const std::vector<size_t>& sizes, uint64_t bytes) {
  check_memory(sizes, bytes, available_memory_bytes());
}

}  // namespace ropewalk::tools
