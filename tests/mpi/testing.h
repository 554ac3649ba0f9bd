// What the programs here have in common: each calls a collective as a program does, and by the
// profiling interface, which is the MPI's own, and both must give the same.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using Memory = std::vector<unsigned char>;

inline int world_rank = 0;

inline void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "FAILED on rank %d: %s\n", world_rank, what.c_str());
  std::abort();  // the MPI ends the others
}

/// A type as programs describe data: `elements` of `basic` in one, in `extent` bytes.
struct Type {
  const char* name;
  MPI_Datatype handle;
  size_t extent;
  bool is_derived;
};

inline std::vector<Type> make_types() {
  MPI_Datatype strided, gaps, swapped, contiguous, copy, nested, not_dense;
  MPI_Type_vector(3, 2, 4, MPI_INT, &strided);
  MPI_Type_commit(&strided);
  MPI_Type_create_resized(MPI_DOUBLE, 0, 24, &gaps);
  MPI_Type_commit(&gaps);
  const int lengths[] = {1, 1};
  const int at[] = {1, 0};
  MPI_Type_indexed(2, lengths, at, MPI_INT, &swapped);  // dense, but not in the order of memory
  MPI_Type_commit(&swapped);
  MPI_Type_contiguous(5, MPI_SHORT, &contiguous);
  MPI_Type_commit(&contiguous);
  MPI_Type_dup(contiguous, &copy);
  MPI_Type_contiguous(2, copy, &nested);
  MPI_Type_commit(&nested);
  MPI_Type_free(&copy);
  MPI_Type_contiguous(2, gaps, &not_dense);
  MPI_Type_commit(&not_dense);
  return {{"int", MPI_INT, 4, false},
          {"double", MPI_DOUBLE, 8, false},
          {"byte", MPI_BYTE, 1, false},
          {"strided", strided, 40, true},
          {"gaps", gaps, 24, true},
          {"swapped", swapped, 8, true},
          {"contiguous", contiguous, 10, true},
          {"nested", nested, 20, true},
          {"contiguous with gaps", not_dense, 48, true},
          {"pair", MPI_DOUBLE_INT, 16, true}};
}

struct Job {
  MPI_Comm comm;
  std::string name;
  int rank, size;
};

/// Parts of all ranks, the last first and with gaps between them. In elements.
struct Parts {
  std::vector<int> counts, at;
  int end = 1;

  template <class CountOf>
  Parts(int ranks, const CountOf& count_of)
      : counts(static_cast<size_t>(ranks)), at(counts.size()) {
    for (size_t r = counts.size(); r-- > 0; end += counts[r] + 2) {
      counts[r] = count_of(static_cast<int>(r));
      at[r] = end;
    }
  }
};

inline Memory pattern(size_t bytes, int seed) {
  Memory memory(bytes + 1);  // so that data() is never null
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761U + 1;
  for (auto& byte : memory) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<unsigned char>(state >> 24);
  }
  return memory;
}

/// Small whole numbers, so that sums are exact, as elements of `type`.
inline Memory numbers(MPI_Datatype type, int size, size_t count, int seed) {
  Memory memory(count * static_cast<size_t>(size) + 1);
  for (size_t i = 0; i < count; ++i) {
    const int value = static_cast<int>((i * 7 + static_cast<size_t>(seed) * 3) % 5);
    unsigned char* const at = memory.data() + i * static_cast<size_t>(size);
    const auto put = [&](auto as) { std::memcpy(at, &as, sizeof(as)); };
    if (type == MPI_DOUBLE)
      put(static_cast<double>(value));
    else if (type == MPI_FLOAT)
      put(static_cast<float>(value));
    else if (type == MPI_C_DOUBLE_COMPLEX)
      put(static_cast<double>(value));
    else if (size == 4)
      put(static_cast<int32_t>(value));
    else if (size == 8)
      put(static_cast<int64_t>(value));
    else if (size == 2)
      put(static_cast<int16_t>(value));
    else
      put(static_cast<int8_t>(value % 2));
  }
  return memory;
}

/// Calls `call(through_ropewalk, in, out)` twice and compares what it has left in `out`.
template <class Call>
void compare(const std::string& what, const Memory& in, const Memory& out, const Call& call) {
  Memory in_a = in, in_b = in, out_a = out, out_b = out;
  require(call(true, in_a.data(), out_a.data()) == MPI_SUCCESS, what + " returned an error");
  require(call(false, in_b.data(), out_b.data()) == MPI_SUCCESS, what + " of the MPI: an error");
  require(out_a == out_b, what + ": not what the MPI gives");
  require(in_a == in_b, what + ": the input has changed");
}

// `CALL(Bcast, ...)`: by the program's name, or by the MPI's own.
#define CALL(name, ...) (ours ? MPI_##name(__VA_ARGS__) : PMPI_##name(__VA_ARGS__))
