// Why collectives are left to the MPI, in words: for reports, and for `ropewalk mpi --explain`.
#pragma once

#include <cstddef>

/// REASON(name, text): the first is that it is not.
#define ROPEWALK_MPI_REASONS(REASON)                                            \
  REASON(none, "taken")                                                         \
  REASON(one_rank, "of one rank")                                               \
  REASON(user_op, "an operation of the program's own, or on pairs")             \
  REASON(type, "a type on which Ropewalk has no such operation")                \
  REASON(inter, "an intercommunicator")                                         \
  REASON(outside, "with processes that were started later, or before MPI_Init") \
  REASON(arguments, "arguments that are not allowed")                           \
  REASON(not_linked, "before the first blocking one of the communicator")       \
  REASON(never, "a collective that Ropewalk does not take")                     \
  REASON(unavailable, "Ropewalk could not link the ranks")

namespace ropewalk::mpi {

/// What a front exports, by this name: tells of each collective that programs can call by it
/// whether it is taken.
using Explain = void (*)(void (*tell)(void* context, const char* name, bool is_taken),
                         void* context);
#define ROPEWALK_MPI_EXPLAIN "ropewalk_mpi_explain"

}  // namespace ropewalk::mpi
