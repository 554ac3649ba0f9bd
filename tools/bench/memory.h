// Whether the buffers of a benchmark fit into this machine: a kernel without memory kills.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/bench/options.h"

namespace ropewalk::tools {

/// What all ranks of a job allocate together for the largest size; of `rank` alone.
uint64_t buffer_bytes(const BenchOptions& options);
uint64_t buffer_bytes(const BenchOptions& options, int rank, int ranks);

/// Throws Error(exhausted) where `bytes`, needed on this host for the largest of `sizes`, are more
/// than this process and its children may take (`available`; nothing: not known).
void check_memory(const std::vector<size_t>& sizes, uint64_t bytes,
                  std::optional<uint64_t> available);
void check_memory(const std::vector<size_t>& sizes, uint64_t bytes);

}  // namespace ropewalk::tools
