// Memory into which data is packed: kept for the next call, as fresh memory of some length costs a
// page fault for every page.
#pragma once

#include <cstddef>
#include <memory>

namespace ropewalk::mpi {

struct GivePackingMemoryBack {
  size_t bytes = 0;
  void operator()(std::byte* memory) const;
};
using PackingMemory = std::unique_ptr<std::byte[], GivePackingMemoryBack>;

/// `bytes` or more; not initialized. Threads: any. Throws std::bad_alloc.
PackingMemory get_packing_memory(size_t bytes);

}  // namespace ropewalk::mpi
