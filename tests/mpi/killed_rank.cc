// Rank 1 is killed while the others sum: each of them must get an error, and its name. With an
// argument they sum in nonblocking calls.
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::signal(SIGTERM,
              SIG_IGN);  // the launcher ends all soon; this is about what they learn before
  std::signal(SIGUSR1, SIG_IGN);  // so MPICH's tells of a death
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0, error = MPI_SUCCESS, error_class = MPI_SUCCESS;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int step = 0; error == MPI_SUCCESS; ++step) {
    if (rank == 1 && step == 100) raise(SIGKILL);
    int in = 1, out = 0;
    if (argc == 1) {
      error = MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      continue;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    error = MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (error == MPI_SUCCESS) error = MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Error_class(error, &error_class);
#ifdef MPIX_ERR_PROC_FAILED
  const int process_failed = MPIX_ERR_PROC_FAILED;
#else
  const int process_failed = 75;  // in Open MPI 5, to whose programs older headers fit
#endif
  std::printf("rank %d: %s\n", rank,
              error_class == MPI_ERR_OTHER    ? "MPI_ERR_OTHER"
              : error_class == process_failed ? "MPIX_ERR_PROC_FAILED"
                                              : "another error");
  std::fflush(stdout);
  // A launcher ends the others as soon as one goes like this. Its signals end sleep().
  for (unsigned left_s = 2; left_s > 0;) left_s = sleep(left_s);
  _exit(0);  // MPI_Finalize would wait for rank 1
}
