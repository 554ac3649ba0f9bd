// Rank 1 is killed while the others sum: each of them must get an error, and its name, by the error
// handler of the communicator. A word says how they sum: "nonblocking", "together" (among other
// requests), "persistent"; with "shrink" they go on without it, where the MPI can, and with
// "beside" those of a communicator that it is none of.
#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <string_view>

#include "later_calls.h"

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

/// Ranks 0, 2 and 3 have a communicator without rank 1, which dies. What they gather is of lengths
/// that take them different numbers of messages.
void go_on_beside(int rank) {
  MPI_Comm part;
  int in = 1, sum = 0;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 1 ? 1 : 0, 0, &part);
  MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN);
  for (int step = 0; step < 10; ++step) MPI_Allreduce(&in, &sum, 1, MPI_INT, MPI_SUM, part);
  const std::array<int, 3> counts{1, 100, 1}, places{0, 1, 101};
  std::array<int, 102> parts{}, all{};
  if (rank != 1)
    MPI_Gatherv(parts.data(), rank == 2 ? 100 : 1, MPI_INT, all.data(), counts.data(),
                places.data(), MPI_INT, 0, part);
  MPI_Barrier(MPI_COMM_WORLD);
  sleep(rank == 1 ? 1 : 3);
  if (rank == 1) raise(SIGKILL);
  int error = MPI_SUCCESS;
  for (int step = 0; step < 10 && error == MPI_SUCCESS; ++step)
    error = MPI_Allreduce(&in, &sum, 1, MPI_INT, MPI_SUM, part);
  std::printf("rank %d: %d ranks go on beside it\n", rank, error == MPI_SUCCESS ? sum : 0);
  std::fflush(stdout);
  MPI_Comm_free(&part);
  MPI_Finalize();
}

/// Of the communicator's errors: how many, and the last.
struct Handled {
  MPI_Comm comm = MPI_COMM_NULL;
  int calls = 0, code = MPI_SUCCESS;
} handled;

void handle(MPI_Comm* comm, int* code, ...) {
  handled = {*comm, handled.calls + 1, *code};
}

/// With a handler of its own; what is an error of another communicator ends the job.
MPI_Comm make_communicator() {
  MPI_Comm comm;
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(handle, &handler);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, handler);
  MPI_Barrier(comm);  // links its ranks
  return comm;
}

struct Sums {
  MPI_Comm comm;
  std::string_view how;
  MPI_Request persistent = MPI_REQUEST_NULL;
  int in = 1, out = 0;

  int run() {
    if (how == "nonblocking") return run_nonblocking();
    if (how == "together") return run_together();
    if (how == "persistent") return run_persistent();
    return MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm);
  }
  int run_nonblocking() {
    MPI_Request request = MPI_REQUEST_NULL;
    const int error = MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm, &request);
    return error == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : error;
  }
  int run_persistent() {
    if (persistent == MPI_REQUEST_NULL)
      MPI_Allreduce_init(&in, &out, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &persistent);
    const int error = MPI_Start(&persistent);
    return error == MPI_SUCCESS ? MPI_Wait(&persistent, MPI_STATUS_IGNORE) : error;
  }
  int run_together() {
    std::array<MPI_Request, 3> requests;
    std::array<MPI_Status, 3> statuses;
    int sent = 5, received = 0;
    MPI_Isend(&sent, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[0]);
    int error = MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm, &requests[1]);
    MPI_Irecv(&received, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[2]);
    if (error != MPI_SUCCESS) requests[1] = MPI_REQUEST_NULL;
    const int waited = MPI_Waitall(3, requests.data(), statuses.data());
    if (error != MPI_SUCCESS || waited == MPI_SUCCESS) return error;
    int waited_class = MPI_SUCCESS;
    MPI_Error_class(waited, &waited_class);
    if (waited_class != MPI_ERR_IN_STATUS || statuses[0].MPI_ERROR != MPI_SUCCESS ||
        statuses[2].MPI_ERROR != MPI_SUCCESS || received != 5)
      return MPI_ERR_INTERN;
    return statuses[1].MPI_ERROR;
  }
};

const char* name_of(int error) {
#ifdef MPIX_ERR_PROC_FAILED
  const int process_failed = MPIX_ERR_PROC_FAILED;
#else
  const int process_failed = 75;  // in Open MPI 5, to whose programs older headers fit
#endif
  int error_class = MPI_SUCCESS;
  MPI_Error_class(error, &error_class);
  return error_class == MPI_ERR_OTHER    ? "MPI_ERR_OTHER"
         : error_class == process_failed ? "MPIX_ERR_PROC_FAILED"
                                         : "another error";
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::signal(SIGTERM,
              SIG_IGN);  // the launcher ends all soon; this is about what they learn before
  std::signal(SIGUSR1, SIG_IGN);  // so MPICH's tells of a death
  const std::string_view word = argc > 1 ? argv[1] : "";
  const bool goes_on = word == "shrink" || word == "beside";
  if (goes_on) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  Sums sums{goes_on ? MPI_COMM_WORLD : make_communicator(), word};
  int rank = 0, error = MPI_SUCCESS;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (word == "beside") return go_on_beside(rank), 0;
  for (int step = 0; error == MPI_SUCCESS; ++step) {
    if (rank == 1 && step == 100) raise(SIGKILL);
    error = sums.run();
  }
  const bool by_handler = handled.calls == 1 && handled.comm == sums.comm;
  std::printf("rank %d: %s%s\n", rank, name_of(error), by_handler ? ", by its handler" : "");
  std::fflush(stdout);
  if (word == "shrink") return go_on(rank), 0;
  // A launcher ends the others as soon as one goes like this. Its signals end sleep().
  for (unsigned left_s = 2; left_s > 0;) left_s = sleep(left_s);
  _exit(0);  // MPI_Finalize would wait for rank 1
}
