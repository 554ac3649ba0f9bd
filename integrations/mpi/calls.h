// The calls that are taken from the user's MPI, each with its parameters and arguments: the front
// exports them, and the core serves them.
#pragma once

#include <mpi.h>

#define ROPEWALK_IN const void *in, int in_count, MPI_Datatype in_type
#define ROPEWALK_OUT void *out, int out_count, MPI_Datatype out_type
#define ROPEWALK_INS const void *in, const int *in_counts, const int *in_at, MPI_Datatype in_type
#define ROPEWALK_OUTS void *out, const int *out_counts, const int *out_at, MPI_Datatype out_type

/// CALL(name, parameters, arguments)
#define ROPEWALK_MPI_COLLECTIVES(CALL)                                                             \
  CALL(Allreduce,                                                                                  \
       (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),        \
       (in, out, count, type, op, comm))                                                           \
  CALL(Reduce,                                                                                     \
       (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root,              \
        MPI_Comm comm),                                                                            \
       (in, out, count, type, op, root, comm))                                                     \
  CALL(                                                                                            \
      Reduce_scatter,                                                                              \
      (const void* in, void* out, const int* counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm), \
      (in, out, counts, type, op, comm))                                                           \
  CALL(Reduce_scatter_block,                                                                       \
       (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),        \
       (in, out, count, type, op, comm))                                                           \
  CALL(Bcast, (void* data, int count, MPI_Datatype type, int root, MPI_Comm comm),                 \
       (data, count, type, root, comm))                                                            \
  CALL(Allgather, (ROPEWALK_IN, ROPEWALK_OUT, MPI_Comm comm),                                      \
       (in, in_count, in_type, out, out_count, out_type, comm))                                    \
  CALL(Allgatherv, (ROPEWALK_IN, ROPEWALK_OUTS, MPI_Comm comm),                                    \
       (in, in_count, in_type, out, out_counts, out_at, out_type, comm))                           \
  CALL(Gather, (ROPEWALK_IN, ROPEWALK_OUT, int root, MPI_Comm comm),                               \
       (in, in_count, in_type, out, out_count, out_type, root, comm))                              \
  CALL(Gatherv, (ROPEWALK_IN, ROPEWALK_OUTS, int root, MPI_Comm comm),                             \
       (in, in_count, in_type, out, out_counts, out_at, out_type, root, comm))                     \
  CALL(Scatter, (ROPEWALK_IN, ROPEWALK_OUT, int root, MPI_Comm comm),                              \
       (in, in_count, in_type, out, out_count, out_type, root, comm))                              \
  CALL(Scatterv, (ROPEWALK_INS, ROPEWALK_OUT, int root, MPI_Comm comm),                            \
       (in, in_counts, in_at, in_type, out, out_count, out_type, root, comm))                      \
  CALL(Alltoall, (ROPEWALK_IN, ROPEWALK_OUT, MPI_Comm comm),                                       \
       (in, in_count, in_type, out, out_count, out_type, comm))                                    \
  CALL(Alltoallv, (ROPEWALK_INS, ROPEWALK_OUTS, MPI_Comm comm),                                    \
       (in, in_counts, in_at, in_type, out, out_counts, out_at, out_type, comm))                   \
  CALL(Barrier, (MPI_Comm comm), (comm))

#define ROPEWALK_MPI_CALLS(CALL)                                                      \
  CALL(Init, (int* argc, char*** argv), (argc, argv))                                 \
  CALL(Init_thread, (int* argc, char*** argv, int required, int* provided),           \
       (argc, argv, required, provided))                                              \
  CALL(Finalize, (), ())                                                              \
  CALL(Alloc_mem, (MPI_Aint bytes, MPI_Info info, void* place), (bytes, info, place)) \
  CALL(Free_mem, (void* memory), (memory))                                            \
  ROPEWALK_MPI_COLLECTIVES(CALL)

namespace ropewalk::mpi {

/// Who serves each call: the MPI at first, then the core where it takes it.
struct Table {
#define ROPEWALK_MEMBER(name, parameters, arguments) int(*name) parameters = nullptr;
  ROPEWALK_MPI_CALLS(ROPEWALK_MEMBER)
#undef ROPEWALK_MEMBER
};

/// What the core exports, by this name: takes its calls in `table`, which holds the MPI's own.
using Attach = void (*)(void* mpi_library, Table& table);
#define ROPEWALK_MPI_ATTACH "ropewalk_mpi_attach"

}  // namespace ropewalk::mpi
