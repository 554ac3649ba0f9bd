#include "packing_memory.h"

#include <algorithm>
#include <array>
#include <mutex>

namespace ropewalk::mpi {
namespace {

constexpr size_t kKeptBytesMax = 64 << 20;  // of one

struct Kept {
  std::mutex mutex;
  struct Piece {
    std::unique_ptr<std::byte[]> memory;
    size_t bytes = 0;
  };
  std::array<Piece, 4> pieces;  // what a call needs at once, and the next
};
Kept& kept = *new Kept;  // lives for ever: a program may exit without the end

}  // namespace

PackingMemory get_packing_memory(size_t bytes) {
  bytes = std::max<size_t>(bytes, 1);
  {
    std::lock_guard lock(kept.mutex);
    Kept::Piece* best = nullptr;
    for (Kept::Piece& piece : kept.pieces)
      if (piece.bytes >= bytes && (best == nullptr || piece.bytes < best->bytes)) best = &piece;
    if (best != nullptr)
      return {best->memory.release(), GivePackingMemoryBack{std::exchange(best->bytes, 0)}};
  }
  return {new std::byte[bytes], GivePackingMemoryBack{bytes}};
}

/// In place of the smallest that is kept, where that is smaller.
void GivePackingMemoryBack::operator()(std::byte* memory) const {
  std::unique_ptr<std::byte[]> owned(memory);
  if (bytes > kKeptBytesMax) return;
  std::lock_guard lock(kept.mutex);
  Kept::Piece& least = *std::ranges::min_element(kept.pieces, {}, &Kept::Piece::bytes);
  if (least.bytes >= bytes) return;
  least.bytes = bytes;
  std::swap(least.memory, owned);
}

}  // namespace ropewalk::mpi
