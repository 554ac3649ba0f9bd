#include "layout.h"

#include <memory>
#include <mutex>

namespace ropewalk::mpi {
namespace {

std::mutex& attribute_mutex = *new std::mutex;  // lives for ever: a program may exit at any time

int copy_no_layout(MPI_Datatype, int, void*, void*, void*, int* copied) {
  *copied = 0;
  return MPI_SUCCESS;
}

int delete_layout(MPI_Datatype, int, void* value, void*) {
  delete static_cast<Layout*>(value);
  return MPI_SUCCESS;
}

int layout_keyval() {
  static const int keyval = [] {
    int made = MPI_KEYVAL_INVALID;
    pmpi.Type_create_keyval(copy_no_layout, delete_layout, &made, nullptr);
    return made;
  }();
  return keyval;
}

/// By what call a type was made, and of how many counts and types; of one with large counts only
/// MPI 4 tells.
struct Envelope {
  int integers = 0, addresses = 0, types = 0, combiner = MPI_COMBINER_NAMED;
  MPI_Count large_counts = 0;
};

#if MPI_VERSION >= 4
Envelope envelope_of(MPI_Datatype type) {
  Envelope found;
  if (pmpi.Type_get_envelope_c == nullptr) {  // an older MPI of the same ABI
    pmpi.Type_get_envelope(type, &found.integers, &found.addresses, &found.types, &found.combiner);
    return found;
  }
  MPI_Count integers = 0, addresses = 0, types = 0;
  pmpi.Type_get_envelope_c(type, &integers, &addresses, &found.large_counts, &types,
                           &found.combiner);
  found.integers = static_cast<int>(integers);
  found.types = static_cast<int>(types);
  return found;
}

MPI_Datatype inner_type(MPI_Datatype type, const Envelope& of) {
  int integer = 0;
  MPI_Aint address = 0;
  MPI_Count count = 0;
  MPI_Datatype inner = MPI_DATATYPE_NULL;
  if (pmpi.Type_get_contents_c == nullptr)
    pmpi.Type_get_contents(type, of.integers, 0, 1, &integer, &address, &inner);
  else
    pmpi.Type_get_contents_c(type, of.integers, 0, of.large_counts, 1, &integer, &address, &count,
                             &inner);
  return inner;
}
#else
Envelope envelope_of(MPI_Datatype type) {
  Envelope found;
  pmpi.Type_get_envelope(type, &found.integers, &found.addresses, &found.types, &found.combiner);
  return found;
}

MPI_Datatype inner_type(MPI_Datatype type, const Envelope& of) {
  int integer = 0;
  MPI_Aint address = 0;
  MPI_Datatype inner = MPI_DATATYPE_NULL;
  pmpi.Type_get_contents(type, of.integers, 0, 1, &integer, &address, &inner);
  return inner;
}
#endif

/// Whether a type that MPI_Type_get_contents gave is to be freed: those of Fortran's kinds are the
/// MPI's, as named ones are.
bool is_owned(const Envelope& made) {
  return made.combiner != MPI_COMBINER_NAMED && made.combiner != MPI_COMBINER_F90_REAL &&
         made.combiner != MPI_COMBINER_F90_COMPLEX && made.combiner != MPI_COMBINER_F90_INTEGER;
}

bool is_dense(MPI_Datatype type) {
  if (find_type(type) != nullptr) return true;
  const Envelope made = envelope_of(type);
  if (made.combiner != MPI_COMBINER_CONTIGUOUS && made.combiner != MPI_COMBINER_DUP) return false;
  MPI_Datatype inner = inner_type(type, made);
  const bool dense = is_dense(inner);
  if (is_owned(envelope_of(inner))) pmpi.Type_free(&inner);
  return dense;
}

Layout find_layout(MPI_Datatype type) {
  MPI_Count bytes = 0;
  MPI_Aint least = 0, extent = 0;
  pmpi.Type_size_x(type, &bytes);
  pmpi.Type_get_extent(type, &least, &extent);
  return {static_cast<size_t>(bytes), extent, is_dense(type)};
}

}  // namespace

Layout layout_of(MPI_Datatype type) {
  if (const Type* known = find_type(type))
    return {known->bytes(), static_cast<ptrdiff_t>(known->bytes()), true};
  std::lock_guard lock(attribute_mutex);
  void* kept = nullptr;
  int found = 0;
  pmpi.Type_get_attr(type, layout_keyval(), &kept, &found);
  if (found != 0) return *static_cast<const Layout*>(kept);
  auto layout = std::make_unique<Layout>(find_layout(type));
  const Layout result = *layout;
  if (pmpi.Type_set_attr(type, layout_keyval(), layout.get()) == MPI_SUCCESS) layout.release();
  return result;
}

}  // namespace ropewalk::mpi
