// Rank 1 is killed while the others sum: each of them must get an error, and its name. With
// "nonblocking" they sum in nonblocking calls; with "shrink" they go on without it, where the MPI
// can.
#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string_view>

namespace {

/// Of MPIs that go on after failures: their headers are not those that this is built with.
template <class... Parameters>
int call(const char* name, Parameters... parameters) {
  const auto function = reinterpret_cast<int (*)(Parameters...)>(dlsym(RTLD_DEFAULT, name));
  return function == nullptr ? MPI_ERR_OTHER : function(parameters...);
}

void go_on(int rank) {
  MPI_Comm left = MPI_COMM_NULL;
  call("MPIX_Comm_revoke", MPI_COMM_WORLD);
  int in = 1, sum = 0, error = call("MPIX_Comm_shrink", MPI_COMM_WORLD, &left);
  if (error == MPI_SUCCESS) error = MPI_Allreduce(&in, &sum, 1, MPI_INT, MPI_SUM, left);
  std::printf("rank %d: %d ranks go on\n", rank, error == MPI_SUCCESS ? sum : 0);
  MPI_Comm_free(&left);
  MPI_Finalize();
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::signal(SIGTERM,
              SIG_IGN);  // the launcher ends all soon; this is about what they learn before
  std::signal(SIGUSR1, SIG_IGN);  // so MPICH's tells of a death
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const std::string_view word = argc > 1 ? argv[1] : "";
  const bool nonblocking = word == "nonblocking";
  int rank = 0, error = MPI_SUCCESS, error_class = MPI_SUCCESS;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int step = 0; error == MPI_SUCCESS; ++step) {
    if (rank == 1 && step == 100) raise(SIGKILL);
    int in = 1, out = 0;
    if (!nonblocking) {
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
  if (word == "shrink") return go_on(rank), 0;
  // A launcher ends the others as soon as one goes like this. Its signals end sleep().
  for (unsigned left_s = 2; left_s > 0;) left_s = sleep(left_s);
  _exit(0);  // MPI_Finalize would wait for rank 1
}
