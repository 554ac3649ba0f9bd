// What was taken from the MPI, what was left to it, and why.
#pragma once

#include "functions.h"
#include "reasons.h"
#include "ropewalk/communicator.h"
#include "ropewalk/status.h"

namespace ropewalk::mpi {

enum class Kind : uint8_t {
#define ROPEWALK_MPI_ENUMERATOR(name, parameters, arguments, ...) name,
  ROPEWALK_MPI_COLLECTIVES(ROPEWALK_MPI_ENUMERATOR) ROPEWALK_MPI_LEFT(ROPEWALK_MPI_ENUMERATOR)
#undef ROPEWALK_MPI_ENUMERATOR
      count
};

/// Why a call is left to the MPI. All ranks of a call find the same.
enum class Left : uint8_t {
#define ROPEWALK_MPI_ENUMERATOR(name, text) name,
  ROPEWALK_MPI_REASONS(ROPEWALK_MPI_ENUMERATOR)
#undef ROPEWALK_MPI_ENUMERATOR
      count
};

/// On standard error: why a call on a communicator of that many ranks has failed.
void print_failure(int ranks, const char* what) noexcept;
/// The class that the program gets: of a process that has failed, where its MPI has one.
int error_class_of(const Error& error);
/// For the report, where one is wanted. Threads: any.
void count_call(Kind kind, Left left);
/// Puts what counts in place of the MPI's collectives that are never taken.
void count_left(Table& table);
/// Collective over MPI_COMM_WORLD: whether ROPEWALK_MPI_REPORT asks for it, on any rank.
void agree_on_report();
bool wants_report();
/// Collective over the job, where one is wanted: rank 0 prints what all have counted. After a
/// failure nobody does.
void print_report(Communicator& job);

}  // namespace ropewalk::mpi
