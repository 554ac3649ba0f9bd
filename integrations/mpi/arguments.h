// What MPIs look for in the arguments of a rank is refused as they do it: before anything has been
// sent, on that rank alone. MPIs crash at some of it, and a rank that went to its MPI alone would
// leave the others here. Of what is found later than that the others learn: Prepared::refuse.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "bytes.h"
#include "channel.h"

namespace ropewalk::mpi {

/// The program gets the class, by the error handler of its communicator.
struct Refusal {
  const char* what;
  int error_class;
};

inline bool is_in_place(const void* buffer) {
  return buffer == MPI_IN_PLACE;
}

inline void require(bool holds, const char* otherwise, int error_class) {
  if (!holds) throw Refusal{otherwise, error_class};
}

inline void require_rank(int root, const Channel& channel) {
  require(root >= 0 && root < channel.size(), "the root is no rank", MPI_ERR_ROOT);
}

/// A predefined type, or a derived one that has been committed, which MPI_Pack looks for.
inline void require_type(MPI_Datatype type) {
  if (find_type(type) != nullptr) return;
  require(type != MPI_DATATYPE_NULL, "MPI_DATATYPE_NULL", MPI_ERR_TYPE);
  char nothing = 0;
  int position = 0;
  require(pmpi.Pack(&nothing, 0, type, &nothing, 1, &position, own_self()) == MPI_SUCCESS,
          "a type that is none, or has not been committed", MPI_ERR_TYPE);
}

/// Types of a program's own may count addresses from MPI_BOTTOM, which is a null pointer.
inline void require_place(const void* data, MPI_Datatype type, bool is_empty) {
  require(data != nullptr || is_empty || find_type(type) == nullptr,
          "a null pointer in place of data", MPI_ERR_BUFFER);
  require(!is_in_place(data), "MPI_IN_PLACE where MPI does not allow it", MPI_ERR_BUFFER);
}

template <class Count>
void require_data(const void* data, Count count, MPI_Datatype type) {
  require_type(type);
  require(count >= 0, "a negative count", MPI_ERR_COUNT);
  require_place(data, type, count == 0);
}

/// Of a part for each of `ranks`.
template <class Count, class At>
void require_parts(const void* data, const Count* counts, const At* at, MPI_Datatype type,
                   int ranks) {
  require_type(type);
  require(counts != nullptr && at != nullptr, "no counts or no displacements", MPI_ERR_ARG);
  require(std::all_of(counts, counts + ranks, [](Count count) { return count >= 0; }),
          "a negative count", MPI_ERR_COUNT);
  require_place(data, type,
                std::all_of(counts, counts + ranks, [](Count count) { return count == 0; }));
}

/// Whether the MPI refuses a buffer that is both sent and received into.
inline bool refuses_aliases() {
  static const bool refuses = [] {
    int same = 0;
    return pmpi.Alltoall(&same, 1, MPI_INT, &same, 1, MPI_INT, own_self()) != MPI_SUCCESS;
  }();
  return refuses;
}

/// What a rank sends and where its own part of the result goes, `alike` in type and count and not
/// empty: only MPI_IN_PLACE makes them one, in MPIs that look.
inline void refuse_alias(bool alike, const void* in, const void* out) {
  require(!alike || in != out || is_in_place(in) || !refuses_aliases(),
          "one buffer to send and to receive; MPI_IN_PLACE says that", MPI_ERR_BUFFER);
}

/// Element `at` of dense ones.
template <class At>
const void* place_of(const void* data, MPI_Datatype type, At at) {
  return static_cast<const char*>(data) +
         static_cast<ptrdiff_t>(at) * static_cast<ptrdiff_t>(bytes_of(type));
}

template <class Count>
std::vector<size_t> scaled(const Count* counts, int ranks, size_t by) {
  std::vector<size_t> result(counts, counts + ranks);
  for (size_t& count : result) count *= by;
  return result;
}

inline size_t sum(const std::vector<size_t>& counts, size_t until) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(until), size_t{0});
}

}  // namespace ropewalk::mpi
