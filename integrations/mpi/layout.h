// How the elements of an MPI type lie in memory.
#pragma once

#include <cstddef>

#include "types.h"

namespace ropewalk::mpi {

struct Layout {
  size_t bytes = 0;  // of data in one element
  ptrdiff_t extent = 0;
  /// Elements lie one behind the other, each in one piece and in the order of memory: predefined
  /// types, and MPI_Type_contiguous and MPI_Type_dup of such.
  bool is_dense = false;
};

/// Of a type that has been checked. What is found out of a derived one is kept with it, as its
/// attribute. Threads: any.
Layout layout_of(MPI_Datatype type);

}  // namespace ropewalk::mpi
