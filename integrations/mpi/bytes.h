// What a rank sends or receives, as bytes in the order that MPI gives them: the same on all ranks,
// whatever types each describes its data with.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "layout.h"
#include "packing_memory.h"

namespace ropewalk::mpi {

/// Of a type that has been checked.
inline size_t bytes_of(MPI_Datatype type) {
  return layout_of(type).bytes;
}

/// A buffer of the caller's: where it lies in one piece it is used itself, else the MPI packs it.
class Bytes {
 public:
  /// `count` elements, beginning `at` extents after `buffer`.
  Bytes(const void* buffer, MPI_Datatype type, size_t count, size_t at = 0);
  /// A part for each of `ranks`: counts[r] elements, beginning at[r] extents after `buffer`.
  template <class Count, class At>
  Bytes(const void* buffer, MPI_Datatype type, const Count* counts, const At* at, int ranks)
      : Bytes(buffer, type) {
    for (int r = 0; r < ranks; ++r)
      add(static_cast<ptrdiff_t>(at[r]), static_cast<size_t>(counts[r]));
  }

  size_t size() const { return size_; }
  /// Whether it is `bytes` long or longer, and that is a number of elements.
  bool has_room_for(size_t bytes) const;
  /// The first of them alone, of one part; before anything is written.
  void shorten(size_t bytes);
  /// The bytes, packed where they must be.
  const std::byte* read();
  /// Where they are to be written; then `finish`.
  std::byte* write();
  void finish();
  /// A copy, for what is received into the place that it is sent from.
  const std::byte* read_copy();
  /// The caller may free the type.
  void keep_type();
  /// What was packed, once more: it may have changed.
  void read_again() {
    if (is_packed_) pack();
  }

 private:
  struct Part {
    std::byte* data;
    size_t count;
  };
  Bytes(const void* buffer, MPI_Datatype type);
  void add(ptrdiff_t at, size_t count);
  void pack();
  std::byte* memory();
  template <class Move>
  void for_each_piece(const Move& move);

  std::byte* const buffer_;
  MPI_Datatype type_;
  std::shared_ptr<void> kept_type_;  // frees it
  const Layout layout_;
  bool in_one_piece_;
  bool is_packed_ = false;  // to be read
  size_t size_ = 0;
  size_t part_count_ = 0;
  Part first_{};
  std::vector<Part> more_;  // short calls need none
  PackingMemory memory_;
};

}  // namespace ropewalk::mpi
