// What a program uses and gives back must not add up: communicators, and memory of MPI_Alloc_mem,
// of which it may have more than descriptors.
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "testing.h"

namespace {

ptrdiff_t mappings() {
  std::ifstream maps("/proc/self/maps");
  ptrdiff_t lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;
}

ptrdiff_t descriptors() {
  ptrdiff_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    count += entry.path().empty() ? 0 : 1;
  return count;
}

void use_communicators(int count) {
  for (int i = 0; i < count; ++i) {
    int in = 1, out = 0;
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, copy);
    MPI_Comm_free(&copy);
  }
}

void test_freed_communicators() {
  use_communicators(100);
  const ptrdiff_t before = mappings();
  use_communicators(900);
  const ptrdiff_t more = mappings() - before;  // a thread that is still there has two or more
  require(more < 900, std::to_string(more) + " mappings more after 900 communicators");
}

/// Gives how many descriptors more there are with so many allocations: fewer where communicators
/// that were freed before are giving theirs back.
ptrdiff_t test_allocations(int count, MPI_Aint bytes) {
  const ptrdiff_t before = descriptors();
  std::vector<void*> all(static_cast<size_t>(count));
  for (void*& memory : all) {
    require(MPI_Alloc_mem(bytes, MPI_INFO_NULL, &memory) == MPI_SUCCESS, "MPI_Alloc_mem");
    std::memset(memory, 1, static_cast<size_t>(bytes));
  }
  require(std::ifstream("/proc/self/status").is_open(), "a file of the program's own");
  const ptrdiff_t taken = descriptors() - before;
  for (void* memory : all) MPI_Free_mem(memory);
  return taken;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  test_freed_communicators();
  const rlimit limit{1024, 1024};
  setrlimit(RLIMIT_NOFILE, &limit);
  require(test_allocations(1100, 8) < 10, "short memory takes descriptors");
  const ptrdiff_t taken = test_allocations(1100, 64 << 10);
  require(taken >= 100 && taken <= 300, std::to_string(taken) + " descriptors for long memory");
  MPI_Finalize();
  if (world_rank == 0) std::puts("nothing adds up");
}
