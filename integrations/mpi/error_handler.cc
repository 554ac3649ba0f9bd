#include "error_handler.h"

namespace ropewalk::mpi {

void ErrorHandler::keep() {
  std::lock_guard lock(mutex_);
  is_kept_ = pmpi.Comm_get_errhandler(comm_, &kept_) == MPI_SUCCESS;
}

void ErrorHandler::call(int error_class) {
  MPI_Comm comm;
  bool is_kept;
  {
    std::lock_guard lock(mutex_);  // not while it runs
    comm = comm_;
    is_kept = is_kept_;
  }
  if (!is_kept) return void(pmpi.Comm_call_errhandler(comm, error_class));
  MPI_Comm stand_in;
  pmpi.Comm_dup(MPI_COMM_SELF, &stand_in);
  pmpi.Comm_set_errhandler(stand_in, kept_);
  pmpi.Comm_call_errhandler(stand_in, error_class);
  pmpi.Comm_free(&stand_in);
}

}  // namespace ropewalk::mpi
