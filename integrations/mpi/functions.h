// The user's MPI, as the core calls it: by its profiling interface, found when it has been loaded.
// Nothing here is linked with an MPI: a process may hold another one than this host's default.
#pragma once

#include <mpi.h>

#include "calls.h"

namespace ropewalk::mpi {

// clang-format off
#define ROPEWALK_MPI_USED(CALL) \
  CALL(Comm_rank) CALL(Comm_size) CALL(Comm_test_inter) CALL(Comm_group) \
  CALL(Group_free) CALL(Group_translate_ranks) CALL(Comm_create_keyval) CALL(Comm_get_attr) \
  CALL(Comm_set_attr) CALL(Comm_call_errhandler) CALL(Type_size) CALL(Type_get_extent) \
  CALL(Pack) CALL(Unpack) CALL(Iprobe) CALL(Grequest_start) CALL(Grequest_complete) \
  CALL(Status_set_elements) CALL(Status_set_cancelled) CALL(Send_init) CALL(Recv) \
  CALL(Comm_dup) CALL(Comm_free) CALL(Comm_set_errhandler) CALL(Comm_get_errhandler) \
  CALL(Error_class) CALL(Errhandler_free) CALL(Type_dup) CALL(Type_free) \
  CALL(Type_size_x) CALL(Type_get_envelope) CALL(Type_get_contents) CALL(Type_create_keyval) \
  CALL(Type_get_attr) CALL(Type_set_attr) CALL(Type_contiguous) CALL(Type_create_struct) \
  CALL(Type_commit) CALL(Sendrecv)
#if MPI_VERSION >= 4
#define ROPEWALK_MPI_USED_OF_4(CALL) CALL(Type_get_envelope_c) CALL(Type_get_contents_c)
#else
#define ROPEWALK_MPI_USED_OF_4(CALL)
#endif
// clang-format on

/// The MPI's own functions: `pmpi.Comm_rank(...)` is PMPI_Comm_rank. Of MPI 4's, null where it
/// lacks one.
struct Functions : Table {
#define ROPEWALK_MEMBER(name) decltype(&MPI_##name) name = nullptr;
  ROPEWALK_MPI_USED(ROPEWALK_MEMBER) ROPEWALK_MPI_USED_OF_4(ROPEWALK_MEMBER)
#undef ROPEWALK_MEMBER
};
inline Functions pmpi;

/// The address of a variable of the MPI; null where it has none of this name.
void* find_variable(const char* name);

}  // namespace ropewalk::mpi

// Open MPI's predefined handles are addresses of variables, which mpi.h would have linked. The
// first use of each is a look-up.
#ifdef OMPI_PREDEFINED_GLOBAL
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, global)                                     \
  ([] {                                                                          \
    static void* const found_##global = ::ropewalk::mpi::find_variable(#global); \
    return static_cast<type>(found_##global);                                    \
  }())
#endif
