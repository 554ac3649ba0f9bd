// The error handler of an MPI communicator, for calls that end later than they are made.
#pragma once

#include <mutex>

#include "functions.h"

namespace ropewalk::mpi {

/// Threads: any that may call the MPI.
class ErrorHandler {
 public:
  explicit ErrorHandler(MPI_Comm comm) : comm_(comm) {}
  /// Which may end the process, throw, or return.
  void call(int error_class);
  /// The program frees the communicator: its handler is the same from then on.
  void keep();

 private:
  std::mutex mutex_;
  MPI_Comm comm_;
  bool is_kept_ = false;
  MPI_Errhandler kept_{};  // a reference that is not given back: the last of ours may go in a
                           // thread that must not call the MPI
};

}  // namespace ropewalk::mpi
