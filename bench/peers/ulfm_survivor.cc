// Goes on by MPIX_Comm_revoke and MPIX_Comm_shrink, as User-Level Failure Mitigation has it: Open
// MPI 5, under mpiexec --with-ft ulfm.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <stdexcept>
#include <string>

#include "mpi-ext.h"  // needs mpi.h before it
#include "options.h"
#include "survivor.h"

namespace ropewalk::peers {
namespace {

void require(int status, const char* call) {
  if (status != MPI_SUCCESS)
    throw std::runtime_error(std::string(call) + ": status " + std::to_string(status));
}

struct Group {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 0;

  explicit Group(MPI_Comm of) : comm(of) {
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
  }
};

Group shrink(const Group& failed) {
  MPI_Comm next = MPI_COMM_NULL;
  require(MPIX_Comm_revoke(failed.comm), "MPIX_Comm_revoke");
  require(MPIX_Comm_shrink(failed.comm, &next), "MPIX_Comm_shrink");
  return Group(next);
}

bool is_failure(int status) {
  int kind = MPI_SUCCESS;
  MPI_Error_class(status, &kind);
  return kind == MPIX_ERR_PROC_FAILED || kind == MPIX_ERR_PROC_FAILED_PENDING ||
         kind == MPIX_ERR_REVOKED;
}

int run_survivor(int argc, char** argv) {
  const SurvivorOptions options = parse_survivor_options(argc, argv);
  MPI_Init(&argc, &argv);
  Group group(MPI_COMM_WORLD);
  Survivor survivor(options, group.rank);
  for (bool goes_on = true; goes_on;) {
    auto& data = survivor.fill(group.rank);
    const int status = MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()),
                                     MPI_FLOAT, MPI_SUM, group.comm);
    if (is_failure(status)) {
      group = shrink(group);
      continue;
    }
    require(status, "MPI_Allreduce");
    goes_on = survivor.check(group.size);
  }
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace ropewalk::peers

int main(int argc, char** argv) {
  return ropewalk::peers::run_program("ulfm_survivor", ropewalk::peers::run_survivor, argc, argv);
}
