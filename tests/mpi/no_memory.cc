// A rank that gets no memory at some moment of a communicator's first collective: whether that is
// left to the MPI then, or ends with an error, it does so on every rank, and none waits for ever.
// `tests/mpi/run` starts it with Ropewalk in front.
#include <unistd.h>

#include <new>

#include "testing.h"

namespace {

constexpr unsigned kTimeLimit_s = 100;
constexpr int kAllocations = 4;  // until its ranks have told each other who they are

/// Of this thread: the allocation that fails, counted from now; 0: none.
thread_local int fails_at = 0;

void* allocate(std::size_t bytes) {
  if (fails_at > 0 && --fails_at == 0) throw std::bad_alloc();
  void* const memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void test_first_call(int at, int size) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  int one = 1, sum = 0;
  if (world_rank == 0) fails_at = at;
  const int status = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
  fails_at = 0;
  require(status != MPI_SUCCESS || sum == size, "a sum without memory");
  int failed = status == MPI_SUCCESS ? 0 : 1, all = 0;
  PMPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  require(all == 0 || all == size,
          "some ranks had an error, others not; allocation " + std::to_string(at));
  MPI_Comm_free(&comm);
}

}  // namespace

// The library's come here, too.
void* operator new(std::size_t bytes) {
  return allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  return allocate(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

int main(int argc, char** argv) {
  alarm(kTimeLimit_s);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int at = 1; at <= kAllocations; ++at) test_first_call(at, size);
  MPI_Finalize();
  if (world_rank == 0) std::puts("no rank was left waiting");
}
