// MPI's predefined types and operations in Ropewalk's terms.
#pragma once

#include <optional>

#include "functions.h"
#include "ropewalk/types.h"

namespace ropewalk::mpi {

/// What operations a type takes part in.
enum class TypeClass : uint8_t { integer, floating, complex, logical, bytes, none };

/// A predefined type that is contiguous.
struct Type {
  MPI_Datatype handle;
  DataType element;
  size_t elements;  // of `element` in one of it: 2 of complex numbers
  TypeClass type_class;

  size_t bytes() const { return elements * size_of(element); }
};

/// After MPI_Init, once.
void find_types();

/// Null where it is derived, or has gaps.
const Type* find_type(MPI_Datatype type);

/// `op` on `type`; nothing where that is not among what Ropewalk reduces. Alike on all ranks, as
/// MPI wants equal operations and types.
std::optional<ReduceOp> find_op(MPI_Op op, const Type& type);
/// Whether it is none of the predefined ones that are known here.
bool is_user_op(MPI_Op op);

}  // namespace ropewalk::mpi
