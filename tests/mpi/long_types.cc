// One element of more than 2^31 bytes, which MPI_Type_size and MPI_Pack cannot count: with gaps on
// one rank, in one piece on the other. `long_types receives`: the gaps are the receiver's.
// `tests/mpi/run` starts it with Ropewalk in front.
// The memory of the buffers is 1 MiB, mapped again and again: bytes that far apart are
// equal.
#include <sys/mman.h>
#include <unistd.h>

#include "testing.h"

namespace {

constexpr size_t kPeriod = 1 << 20;
constexpr int kBlocks = 2049;  // of one period each
constexpr size_t kBytes = kBlocks * kPeriod;
constexpr unsigned kTimeLimit_s = 250;

int make_file() {
  const int file = memfd_create("long_types", 0);
  require(file >= 0 && ftruncate(file, kPeriod) == 0, "a file in memory");
  return file;
}

void map_file(int file, unsigned char* at) {
  require(mmap(at, kPeriod, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == at, "mmap");
}

/// The last period is memory of its own.
unsigned char* map_buffer(size_t periods) {
  void* const space = mmap(nullptr, periods * kPeriod, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(space != MAP_FAILED, "mmap");
  auto* const begin = static_cast<unsigned char*>(space);
  const int file = make_file();
  for (size_t i = 0; i + 1 < periods; ++i) map_file(file, begin + i * kPeriod);
  map_file(make_file(), begin + (periods - 1) * kPeriod);
  return begin;
}

unsigned char value_at(size_t byte) {
  return static_cast<unsigned char>(byte + (byte >> 8) + (byte >> 16) + 1);
}

MPI_Datatype make_type(bool with_gaps) {
  MPI_Datatype block, type;
  MPI_Type_contiguous(kPeriod, MPI_BYTE, &block);
  if (with_gaps)
    MPI_Type_create_hvector(kBlocks, 1, 2 * kPeriod, block, &type);
  else
    MPI_Type_contiguous(kBlocks, block, &type);
  MPI_Type_commit(&type);
  MPI_Type_free(&block);
  return type;
}

}  // namespace

int main(int argc, char** argv) {
  alarm(kTimeLimit_s);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  const bool gaps_receive = argc > 1 && std::string(argv[1]) == "receives";
  const bool sends = world_rank == 0, has_gaps = sends != gaps_receive;
  const size_t last = (has_gaps ? 2 * (kBlocks - 1) : kBlocks - 1) * kPeriod;
  unsigned char* const data = map_buffer(last / kPeriod + 1);
  for (size_t i = 0; sends && i < kPeriod; ++i) data[i] = data[last + i] = value_at(i);
  MPI_Datatype type = make_type(has_gaps);
  require(MPI_Bcast(data, 1, type, 0, MPI_COMM_WORLD) == MPI_SUCCESS, "the call");
  for (size_t i = 0; i < kPeriod; ++i) {
    require(data[i] == value_at(i), "byte " + std::to_string(i));
    require(data[last + i] == value_at(i), "byte " + std::to_string(last + i));
  }
  MPI_Type_free(&type);
  MPI_Finalize();
  if (world_rank == 0) std::puts("long elements arrive");
}
