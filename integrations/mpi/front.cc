// What is preloaded: the calls that are taken, and nothing else. It depends on no other library: so
// programs that are no MPI programs, as the shell that starts one, do not notice it, and each MPI
// program keeps its own C++ library. When a program calls its MPI first, the MPI is found among
// what it has loaded, and the core is loaded beside it.
// The names of the profiling interface stand here, too. The MPI's library for Fortran makes the
// calls of a program in Fortran by them (Open MPI: all; MPICH: some), so these are taken; from
// others the MPI's own are wanted by them. But where an MPI begins and ends, requests, and memory
// that comes back are what they are by either name: a profiler may stand between, for some of the
// calls.
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "calls.h"
#include "reasons.h"

namespace ropewalk::mpi {
namespace {

Table table, of_mpi;
pthread_once_t table_filled = PTHREAD_ONCE_INIT;
std::atomic<bool> is_filled{false};

void* find_mpi_library() {
  constexpr const char* kSonames[] = {ROPEWALK_MPI_SONAMES};
  for (const char* soname : kSonames)
    if (void* const library = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD)) return library;
  return RTLD_NEXT;
}

[[noreturn]] void give_up(const char* what, const char* why) {
  fprintf(stderr, "ropewalk: %s: %s; install Ropewalk alike on all hosts, or unset LD_PRELOAD\n",
          what, why);
  exit(EXIT_FAILURE);
}

/// The core lies beside this library.
void attach_core(void* mpi_library) {
  Dl_info own{};
  char path[4096];
  dladdr(reinterpret_cast<void*>(&attach_core), &own);
  const char* const slash = strrchr(own.dli_fname, '/');
  const int folder = slash == nullptr ? 0 : static_cast<int>(slash + 1 - own.dli_fname);
  snprintf(path, sizeof(path), "%.*s%s", folder, own.dli_fname, ROPEWALK_MPI_CORE);
  void* const core = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (core == nullptr) give_up("its library for MPI cannot be loaded", dlerror());
  const auto attach = reinterpret_cast<Attach>(dlsym(core, ROPEWALK_MPI_ATTACH));
  if (attach == nullptr) give_up(path, dlerror());
  attach(mpi_library, table);
}

template <class... Args>
int lacks(Args...) {
  fputs("ropewalk: the program's MPI lacks a call of MPI 4\n", stderr);
  return MPI_ERR_OTHER;
}

void fill_table() {
  void* const library = find_mpi_library();
#define ROPEWALK_FIND(name, parameters, arguments, ...)                            \
  table.name = reinterpret_cast<int(*) parameters>(dlsym(library, "PMPI_" #name)); \
  if (table.name == nullptr) give_up("PMPI_" #name, "the program's MPI lacks it");
  ROPEWALK_MPI_NEEDED(ROPEWALK_FIND)
#undef ROPEWALK_FIND
#define ROPEWALK_FIND(name, parameters, arguments, ...)                            \
  table.name = reinterpret_cast<int(*) parameters>(dlsym(library, "PMPI_" #name)); \
  if (table.name == nullptr) table.name = lacks;
  ROPEWALK_MPI_RARE(ROPEWALK_FIND)
#undef ROPEWALK_FIND
#define ROPEWALK_FIND(name, parameters, arguments, ...) \
  table.name = reinterpret_cast<int(*) parameters>(dlsym(library, "PMPI_" #name));
  ROPEWALK_MPI_5_REQUESTS(ROPEWALK_FIND)
#undef ROPEWALK_FIND
  of_mpi = table;
  attach_core(library);
  is_filled.store(true, std::memory_order_release);
}

inline void have_table() {
  if (!is_filled.load(std::memory_order_acquire)) pthread_once(&table_filled, fill_table);
}

/// Where calls from the MPI's library for Fortran have come from: never more than it occupies.
std::atomic<uintptr_t> fortran_begin{UINTPTR_MAX}, fortran_last{0};

bool is_of_fortran(const void* caller) {
  const auto at = reinterpret_cast<uintptr_t>(caller);
  if (at >= fortran_begin && at <= fortran_last) return true;
  Dl_info found{};
  if (dladdr(caller, &found) == 0 || found.dli_fname == nullptr) return false;
  const char* const slash = strrchr(found.dli_fname, '/');
  const char* const file = slash == nullptr ? found.dli_fname : slash + 1;
  bool is_known = false;
  for (const char* name : {"libmpi_mpifh", "libmpichfort", "libmpifort"})
    is_known = is_known || strncmp(file, name, strlen(name)) == 0;
  if (!is_known) return false;
  for (uintptr_t last = fortran_last; last < at;)
    if (fortran_last.compare_exchange_weak(last, at)) break;
  fortran_begin = reinterpret_cast<uintptr_t>(found.dli_fbase);
  return true;
}

const Table& table_for(const void* caller) {
  return is_of_fortran(caller) ? table : of_mpi;
}

}  // namespace
}  // namespace ropewalk::mpi

#define ROPEWALK_EXPORT(exported, parameters, call)                           \
  extern "C" __attribute__((visibility("default"))) int exported parameters { \
    ropewalk::mpi::have_table();                                              \
    return call;                                                              \
  }

#if MPI_VERSION >= 4 || defined(ROPEWALK_MPI_HAS_PERSISTENT)
#define ROPEWALK_FRONT_TAKEN(CALL) ROPEWALK_MPI_COLLECTIVES(CALL)
#define ROPEWALK_FRONT_LEFT(CALL) ROPEWALK_MPI_LEFT(CALL)
#else
#define ROPEWALK_FRONT_TAKEN(CALL) \
  ROPEWALK_MPI_BLOCKING(CALL)      \
  ROPEWALK_MPI_NONBLOCKING(CALL)
#define ROPEWALK_FRONT_LEFT(CALL) ROPEWALK_MPI_AT_ONCE_LEFT(CALL)
#endif

#define ROPEWALK_FRONT(name, parameters, arguments, ...) \
  ROPEWALK_EXPORT(MPI_##name, parameters, ropewalk::mpi::table.name arguments)
ROPEWALK_MPI_ENDS(ROPEWALK_FRONT)
ROPEWALK_MPI_MEMORY(ROPEWALK_FRONT)
ROPEWALK_MPI_REQUESTS(ROPEWALK_FRONT)
ROPEWALK_MPI_5_REQUESTS(ROPEWALK_FRONT)
ROPEWALK_FRONT_TAKEN(ROPEWALK_FRONT)
ROPEWALK_FRONT_LEFT(ROPEWALK_FRONT)
#undef ROPEWALK_FRONT

#define ROPEWALK_FRONT(name, parameters, arguments, ...) \
  ROPEWALK_EXPORT(PMPI_##name, parameters, ropewalk::mpi::table.name arguments)
ROPEWALK_MPI_ENDS(ROPEWALK_FRONT)
ROPEWALK_MPI_REQUESTS(ROPEWALK_FRONT)
ROPEWALK_MPI_5_REQUESTS(ROPEWALK_FRONT)
#undef ROPEWALK_FRONT

#define ROPEWALK_FRONT(name, parameters, arguments, ...) \
  ROPEWALK_EXPORT(PMPI_##name, parameters,               \
                  ropewalk::mpi::table_for(__builtin_return_address(0)).name arguments)
ROPEWALK_MPI_MEMORY(ROPEWALK_FRONT)
ROPEWALK_FRONT_TAKEN(ROPEWALK_FRONT)
ROPEWALK_FRONT_LEFT(ROPEWALK_FRONT)
#undef ROPEWALK_FRONT

extern "C" __attribute__((visibility("default"))) void ropewalk_mpi_explain(
    void (*tell)(void* context, const char* name, bool is_taken), void* context) {
#define ROPEWALK_TELL(name, parameters, arguments, ...) tell(context, "MPI_" #name, true);
  ROPEWALK_FRONT_TAKEN(ROPEWALK_TELL)
#undef ROPEWALK_TELL
#define ROPEWALK_TELL(name, parameters, arguments, ...) tell(context, "MPI_" #name, false);
  ROPEWALK_FRONT_LEFT(ROPEWALK_TELL)
#undef ROPEWALK_TELL
}
