// The calls that are taken from the user's MPI, each with its parameters and arguments: the front
// exports them, and the core serves them. And the collectives that are left to it, which are
// counted.
#pragma once

#include <mpi.h>

#define ROPEWALK_IN(Count) const void *in, Count in_count, MPI_Datatype in_type
#define ROPEWALK_OUT(Count) void *out, Count out_count, MPI_Datatype out_type
#define ROPEWALK_INS(Count, At) \
  const void *in, const Count *in_counts, const At *in_at, MPI_Datatype in_type
#define ROPEWALK_OUTS(Count, At) \
  void *out, const Count *out_counts, const At *out_at, MPI_Datatype out_type

/// FORM(CALL, Name, name, parameters, arguments) for each collective, whose counts and places are
/// of these types.
#define ROPEWALK_MPI_ROWS(FORM, CALL, Count, At)                                                   \
  FORM(CALL, Allreduce, allreduce,                                                                 \
       (const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),      \
       (in, out, count, type, op, comm))                                                           \
  FORM(CALL, Reduce, reduce,                                                                       \
       (const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, int root,            \
        MPI_Comm comm),                                                                            \
       (in, out, count, type, op, root, comm))                                                     \
  FORM(CALL, Reduce_scatter, reduce_scatter,                                                       \
       (const void* in, void* out, const Count* counts, MPI_Datatype type, MPI_Op op,              \
        MPI_Comm comm),                                                                            \
       (in, out, counts, type, op, comm))                                                          \
  FORM(CALL, Reduce_scatter_block, reduce_scatter_block,                                           \
       (const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),      \
       (in, out, count, type, op, comm))                                                           \
  FORM(CALL, Bcast, bcast, (void* data, Count count, MPI_Datatype type, int root, MPI_Comm comm),  \
       (data, count, type, root, comm))                                                            \
  FORM(CALL, Allgather, allgather, (ROPEWALK_IN(Count), ROPEWALK_OUT(Count), MPI_Comm comm),       \
       (in, in_count, in_type, out, out_count, out_type, comm))                                    \
  FORM(CALL, Allgatherv, allgatherv,                                                               \
       (ROPEWALK_IN(Count), ROPEWALK_OUTS(Count, At), MPI_Comm comm),                              \
       (in, in_count, in_type, out, out_counts, out_at, out_type, comm))                           \
  FORM(CALL, Gather, gather, (ROPEWALK_IN(Count), ROPEWALK_OUT(Count), int root, MPI_Comm comm),   \
       (in, in_count, in_type, out, out_count, out_type, root, comm))                              \
  FORM(CALL, Scatter, scatter, (ROPEWALK_IN(Count), ROPEWALK_OUT(Count), int root, MPI_Comm comm), \
       (in, in_count, in_type, out, out_count, out_type, root, comm))                              \
  FORM(CALL, Alltoall, alltoall, (ROPEWALK_IN(Count), ROPEWALK_OUT(Count), MPI_Comm comm),         \
       (in, in_count, in_type, out, out_count, out_type, comm))                                    \
  FORM(CALL, Alltoallv, alltoallv,                                                                 \
       (ROPEWALK_INS(Count, At), ROPEWALK_OUTS(Count, At), MPI_Comm comm),                         \
       (in, in_counts, in_at, in_type, out, out_counts, out_at, out_type, comm))                   \
  FORM(CALL, Gatherv, gatherv,                                                                     \
       (ROPEWALK_IN(Count), ROPEWALK_OUTS(Count, At), int root, MPI_Comm comm),                    \
       (in, in_count, in_type, out, out_counts, out_at, out_type, root, comm))                     \
  FORM(CALL, Scatterv, scatterv,                                                                   \
       (ROPEWALK_INS(Count, At), ROPEWALK_OUT(Count), int root, MPI_Comm comm),                    \
       (in, in_counts, in_at, in_type, out, out_count, out_type, root, comm))

#define ROPEWALK_MPI_BARRIER_ROW(FORM, CALL) FORM(CALL, Barrier, barrier, (MPI_Comm comm), (comm))

/// The same of those that are left to the MPI.
#define ROPEWALK_MPI_LEFT_ROWS(FORM, CALL, Count, At)                                         \
  ROPEWALK_MPI_ALLTOALLW_ROW(FORM, CALL, Alltoallw, alltoallw, Count, At)                     \
  FORM(CALL, Scan, scan,                                                                      \
       (const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), \
       (in, out, count, type, op, comm))                                                      \
  FORM(CALL, Exscan, exscan,                                                                  \
       (const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), \
       (in, out, count, type, op, comm))                                                      \
  FORM(CALL, Neighbor_allgather, neighbor_allgather,                                          \
       (ROPEWALK_IN(Count), ROPEWALK_OUT(Count), MPI_Comm comm),                              \
       (in, in_count, in_type, out, out_count, out_type, comm))                               \
  FORM(CALL, Neighbor_allgatherv, neighbor_allgatherv,                                        \
       (ROPEWALK_IN(Count), ROPEWALK_OUTS(Count, At), MPI_Comm comm),                         \
       (in, in_count, in_type, out, out_counts, out_at, out_type, comm))                      \
  FORM(CALL, Neighbor_alltoall, neighbor_alltoall,                                            \
       (ROPEWALK_IN(Count), ROPEWALK_OUT(Count), MPI_Comm comm),                              \
       (in, in_count, in_type, out, out_count, out_type, comm))                               \
  FORM(CALL, Neighbor_alltoallv, neighbor_alltoallv,                                          \
       (ROPEWALK_INS(Count, At), ROPEWALK_OUTS(Count, At), MPI_Comm comm),                    \
       (in, in_counts, in_at, in_type, out, out_counts, out_at, out_type, comm))              \
  ROPEWALK_MPI_ALLTOALLW_ROW(FORM, CALL, Neighbor_alltoallw, neighbor_alltoallw, Count, MPI_Aint)
#define ROPEWALK_MPI_ALLTOALLW_ROW(FORM, CALL, Name, name, Count, At)                          \
  FORM(CALL, Name, name,                                                                       \
       (const void* in, const Count* in_counts, const At* in_at, const MPI_Datatype* in_types, \
        void* out, const Count* out_counts, const At* out_at, const MPI_Datatype* out_types,   \
        MPI_Comm comm),                                                                        \
       (in, in_counts, in_at, in_types, out, out_counts, out_at, out_types, comm))

// The forms of a collective: CALL(name, parameters, arguments, Name, arguments of the blocking
// one).
#define ROPEWALK_WITH_REQUEST_PARAMETER(...) (__VA_ARGS__, MPI_Request * request)
#define ROPEWALK_WITH_REQUEST(...) (__VA_ARGS__, request)
#define ROPEWALK_WITH_INFO_PARAMETER(...) (__VA_ARGS__, MPI_Info info, MPI_Request * request)
#define ROPEWALK_WITH_INFO(...) (__VA_ARGS__, info, request)
#define ROPEWALK_BLOCKING(CALL, Name, name, parameters, arguments) \
  CALL(Name, parameters, arguments, Name, arguments)
#define ROPEWALK_LARGE_BLOCKING(CALL, Name, name, parameters, arguments) \
  CALL(Name##_c, parameters, arguments, Name, arguments)
#define ROPEWALK_STARTED(CALL, form, parameters, arguments, Name)                               \
  CALL(form, ROPEWALK_WITH_REQUEST_PARAMETER parameters, ROPEWALK_WITH_REQUEST arguments, Name, \
       arguments)
#define ROPEWALK_NONBLOCKING(CALL, Name, name, parameters, arguments) \
  ROPEWALK_STARTED(CALL, I##name, parameters, arguments, Name)
#define ROPEWALK_LARGE_NONBLOCKING(CALL, Name, name, parameters, arguments) \
  ROPEWALK_STARTED(CALL, I##name##_c, parameters, arguments, Name)
#define ROPEWALK_KEPT(CALL, form, parameters, arguments, Name) \
  CALL(form, ROPEWALK_WITH_INFO_PARAMETER parameters, ROPEWALK_WITH_INFO arguments, Name, arguments)
#define ROPEWALK_PERSISTENT(CALL, Name, name, parameters, arguments) \
  ROPEWALK_KEPT(CALL, Name##_init, parameters, arguments, Name)
#define ROPEWALK_LARGE_PERSISTENT(CALL, Name, name, parameters, arguments) \
  ROPEWALK_KEPT(CALL, Name##_init_c, parameters, arguments, Name)

// Large counts and persistent collectives came with MPI 4; what a header lacks a program cannot
// call.
#if MPI_VERSION >= 4
#define ROPEWALK_MPI_4_BLOCKING(CALL) \
  ROPEWALK_MPI_ROWS(ROPEWALK_LARGE_BLOCKING, CALL, MPI_Count, MPI_Aint)
#define ROPEWALK_MPI_4_NONBLOCKING(CALL) \
  ROPEWALK_MPI_ROWS(ROPEWALK_LARGE_NONBLOCKING, CALL, MPI_Count, MPI_Aint)
#define ROPEWALK_MPI_4_PERSISTENT(CALL) \
  ROPEWALK_MPI_ROWS(ROPEWALK_LARGE_PERSISTENT, CALL, MPI_Count, MPI_Aint)
#define ROPEWALK_MPI_4_LEFT(CALL)                                               \
  ROPEWALK_MPI_LEFT_ROWS(ROPEWALK_LARGE_BLOCKING, CALL, MPI_Count, MPI_Aint)    \
  ROPEWALK_MPI_LEFT_ROWS(ROPEWALK_LARGE_NONBLOCKING, CALL, MPI_Count, MPI_Aint) \
  ROPEWALK_MPI_LEFT_ROWS(ROPEWALK_LARGE_PERSISTENT, CALL, MPI_Count, MPI_Aint)
#else
#define ROPEWALK_MPI_4_LEFT(CALL)
#define ROPEWALK_MPI_4_BLOCKING(CALL)
#define ROPEWALK_MPI_4_NONBLOCKING(CALL)
#define ROPEWALK_MPI_4_PERSISTENT(CALL)
#endif

// Open MPI 5 has persistent ones, though no others of MPI 4. Its front exports them, that of Open
// MPI 4 does not: programs that look whether there are any find what the MPI has.
#if MPI_VERSION >= 4 || defined(OPEN_MPI)
#define ROPEWALK_MPI_PERSISTENT(CALL)                    \
  ROPEWALK_MPI_ROWS(ROPEWALK_PERSISTENT, CALL, int, int) \
  ROPEWALK_MPI_BARRIER_ROW(ROPEWALK_PERSISTENT, CALL)    \
  ROPEWALK_MPI_4_PERSISTENT(CALL)
#define ROPEWALK_MPI_PERSISTENT_LEFT(CALL) \
  ROPEWALK_MPI_LEFT_ROWS(ROPEWALK_PERSISTENT, CALL, int, int)
#else
#define ROPEWALK_MPI_PERSISTENT(CALL)
#define ROPEWALK_MPI_PERSISTENT_LEFT(CALL)
#endif

#define ROPEWALK_MPI_BLOCKING(CALL)                    \
  ROPEWALK_MPI_ROWS(ROPEWALK_BLOCKING, CALL, int, int) \
  ROPEWALK_MPI_BARRIER_ROW(ROPEWALK_BLOCKING, CALL)
#define ROPEWALK_MPI_NONBLOCKING(CALL)                    \
  ROPEWALK_MPI_ROWS(ROPEWALK_NONBLOCKING, CALL, int, int) \
  ROPEWALK_MPI_BARRIER_ROW(ROPEWALK_NONBLOCKING, CALL)
#define ROPEWALK_MPI_4(CALL)    \
  ROPEWALK_MPI_4_BLOCKING(CALL) \
  ROPEWALK_MPI_4_NONBLOCKING(CALL)
#define ROPEWALK_MPI_COLLECTIVES(CALL) \
  ROPEWALK_MPI_BLOCKING(CALL)          \
  ROPEWALK_MPI_NONBLOCKING(CALL)       \
  ROPEWALK_MPI_4(CALL)                 \
  ROPEWALK_MPI_PERSISTENT(CALL)
#define ROPEWALK_MPI_AT_ONCE_LEFT(CALL)                        \
  ROPEWALK_MPI_LEFT_ROWS(ROPEWALK_BLOCKING, CALL, int, int)    \
  ROPEWALK_MPI_LEFT_ROWS(ROPEWALK_NONBLOCKING, CALL, int, int) \
  ROPEWALK_MPI_4_LEFT(CALL)
#define ROPEWALK_MPI_LEFT(CALL)   \
  ROPEWALK_MPI_AT_ONCE_LEFT(CALL) \
  ROPEWALK_MPI_PERSISTENT_LEFT(CALL)

/// By which a program starts requests, and learns that they have ended: CALL(name, parameters,
/// arguments).
#define ROPEWALK_MPI_REQUESTS(CALL)                                                             \
  CALL(Start, (MPI_Request * request), (request))                                               \
  CALL(Startall, (int count, MPI_Request* requests), (count, requests))                         \
  CALL(Wait, (MPI_Request * request, MPI_Status * status), (request, status))                   \
  CALL(Test, (MPI_Request * request, int* ended, MPI_Status* status), (request, ended, status)) \
  CALL(Waitall, (int count, MPI_Request* requests, MPI_Status* statuses),                       \
       (count, requests, statuses))                                                             \
  CALL(Testall, (int count, MPI_Request* requests, int* ended, MPI_Status* statuses),           \
       (count, requests, ended, statuses))                                                      \
  CALL(Waitany, (int count, MPI_Request* requests, int* index, MPI_Status* status),             \
       (count, requests, index, status))                                                        \
  CALL(Testany, (int count, MPI_Request* requests, int* index, int* ended, MPI_Status* status), \
       (count, requests, index, ended, status))                                                 \
  CALL(Waitsome,                                                                                \
       (int count, MPI_Request* requests, int* ended, int* indices, MPI_Status* statuses),      \
       (count, requests, ended, indices, statuses))                                             \
  CALL(Testsome,                                                                                \
       (int count, MPI_Request* requests, int* ended, int* indices, MPI_Status* statuses),      \
       (count, requests, ended, indices, statuses))                                             \
  CALL(Request_get_status, (MPI_Request request, int* ended, MPI_Status* status),               \
       (request, ended, status))                                                                \
  CALL(Request_free, (MPI_Request * request), (request))

/// The same, which came with MPI 5.
#define ROPEWALK_MPI_5_REQUESTS(CALL)                                                            \
  CALL(Request_get_status_all,                                                                   \
       (int count, const MPI_Request* requests, int* ended, MPI_Status* statuses),               \
       (count, requests, ended, statuses))                                                       \
  CALL(Request_get_status_any,                                                                   \
       (int count, const MPI_Request* requests, int* index, int* ended, MPI_Status* status),     \
       (count, requests, index, ended, status))                                                  \
  CALL(Request_get_status_some,                                                                  \
       (int count, const MPI_Request* requests, int* ended, int* indices, MPI_Status* statuses), \
       (count, requests, ended, indices, statuses))

/// Where a program begins and ends its MPI, and gives memory back.
#define ROPEWALK_MPI_ENDS(CALL)                                             \
  CALL(Init, (int* argc, char*** argv), (argc, argv))                       \
  CALL(Init_thread, (int* argc, char*** argv, int required, int* provided), \
       (argc, argv, required, provided))                                    \
  CALL(Finalize, (), ())                                                    \
  CALL(Free_mem, (void* memory), (memory))
#define ROPEWALK_MPI_MEMORY(CALL) \
  CALL(Alloc_mem, (MPI_Aint bytes, MPI_Info info, void* place), (bytes, info, place))

/// All but those of MPI 4 and 5, which older MPIs of the same ABI may lack.
#define ROPEWALK_MPI_NEEDED(CALL) \
  ROPEWALK_MPI_ENDS(CALL)         \
  ROPEWALK_MPI_MEMORY(CALL)       \
  ROPEWALK_MPI_BLOCKING(CALL)     \
  ROPEWALK_MPI_NONBLOCKING(CALL)  \
  ROPEWALK_MPI_REQUESTS(CALL)
/// That such may lack.
#define ROPEWALK_MPI_RARE(CALL) \
  ROPEWALK_MPI_4(CALL)          \
  ROPEWALK_MPI_PERSISTENT(CALL) \
  ROPEWALK_MPI_LEFT(CALL)
#define ROPEWALK_MPI_CALLS(CALL) \
  ROPEWALK_MPI_NEEDED(CALL)      \
  ROPEWALK_MPI_RARE(CALL)        \
  ROPEWALK_MPI_5_REQUESTS(CALL)

namespace ropewalk::mpi {

/// Who serves each call: the MPI at first, then the core where it takes it. As the core gets it,
/// null are those of MPI 5 that the MPI lacks.
struct Table {
#define ROPEWALK_MEMBER(name, parameters, arguments, ...) int(*name) parameters = nullptr;
  ROPEWALK_MPI_CALLS(ROPEWALK_MEMBER)
#undef ROPEWALK_MEMBER
};

/// What the core exports, by this name: takes its calls in `table`, which holds the MPI's own.
using Attach = void (*)(void* mpi_library, Table& table);
#define ROPEWALK_MPI_ATTACH "ropewalk_mpi_attach"

}  // namespace ropewalk::mpi
