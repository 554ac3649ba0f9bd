// Threads that start nonblocking collectives at once, each on a communicator of its own, and free
// their requests: whoever comes next looks after those, of all threads.
#include <thread>

#include "testing.h"

namespace {

constexpr int kThreads = 3, kCalls = 2000;

void start_and_free(MPI_Comm comm, std::vector<int>& values) {
  for (int& value : values) {
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, comm, &request);
    MPI_Request_free(&request);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, ranks = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  require(provided == MPI_THREAD_MULTIPLE, "MPI_THREAD_MULTIPLE");
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  static std::vector<std::vector<int>> values(kThreads, std::vector<int>(kCalls, 1));
  std::vector<std::thread> threads;
  for (std::vector<int>& own : values) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Barrier(comm);  // links its ranks
    threads.emplace_back(start_and_free, comm, std::ref(own));
  }
  for (std::thread& thread : threads) thread.join();
  MPI_Finalize();  // waits for them
  for (const std::vector<int>& own : values)
    for (const int value : own) require(value == ranks, "a sum of a request that was freed");
  if (world_rank == 0) std::puts("all threads agree");
}
