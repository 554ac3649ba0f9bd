// The core's side of the front: where a program begins and ends its MPI, and memory.
#include <dlfcn.h>
#include <sys/resource.h>

#include <map>
#include <mutex>

#include "channel.h"
#include "collectives.h"
#include "operations.h"
#include "report.h"
#include "requests.h"

namespace ropewalk::mpi {
namespace {

void* library = nullptr;  // the MPI

struct Memory {
  std::mutex mutex;
  std::map<const void*, Buffer<uint8_t>> buffers;  // by address
};
Memory& memory =
    *new Memory;  // that MPI_Alloc_mem has given out; lives for ever, as the programs may

/// Calls on less are copied to registered memory anyhow, so the MPI's own serves as well: programs
/// may allocate any number of such.
constexpr MPI_Aint kRegisteredBytesMin = 64 << 10;
/// Of the descriptors that the process may have, registered memory takes one in so many at most:
/// each piece of it takes one.
constexpr size_t kDescriptorShare = 4;

size_t buffers_max() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur / kDescriptorShare;
}

/// Null where there is no room for one more.
void* allocate_registered(size_t bytes) {
  {
    std::lock_guard lock(memory.mutex);
    if (memory.buffers.size() >= buffers_max()) return nullptr;
  }
  auto buffer = session()->allocate<uint8_t>(bytes);
  void* const data = buffer.data();
  std::lock_guard lock(memory.mutex);
  memory.buffers.emplace(data, std::move(buffer));
  return data;
}

int take_Init(int* argc, char*** argv) {
  const int status = pmpi.Init(argc, argv);
  if (status == MPI_SUCCESS) open_session();
  return status;
}

int take_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int status = pmpi.Init_thread(argc, argv, required, provided);
  if (status == MPI_SUCCESS) open_session();
  return status;
}

int take_Finalize() {
  wait_for_freed_requests();
  if (session() != nullptr && wants_report()) print_report(*session());
  close_session();
  return pmpi.Finalize();
}

int take_Alloc_mem(MPI_Aint bytes, MPI_Info info, void* place) {
  if (session() == nullptr || bytes < kRegisteredBytesMin || place == nullptr)
    return pmpi.Alloc_mem(bytes, info, place);
  void* data = nullptr;
  try {
    data = allocate_registered(static_cast<size_t>(bytes));
  } catch (const std::exception&) {
    data = nullptr;  // memory need not be registered
  }
  if (data == nullptr) return pmpi.Alloc_mem(bytes, info, place);
  *static_cast<void**>(place) = data;
  return MPI_SUCCESS;
}

int take_Free_mem(void* data) {
  {
    std::lock_guard lock(memory.mutex);
    if (memory.buffers.erase(data) > 0) return MPI_SUCCESS;
  }
  return pmpi.Free_mem(data);
}

}  // namespace

bool is_registered(const void* data) {
  std::lock_guard lock(memory.mutex);
  auto found = memory.buffers.upper_bound(data);
  if (found == memory.buffers.begin()) return false;
  const Buffer<uint8_t>& buffer = std::prev(found)->second;
  return data < buffer.end();
}

void* find_variable(const char* name) {
  // A program that is linked with its MPI may hold the variable itself, a copy that the MPI uses,
  // too.
  void* const found = dlsym(RTLD_DEFAULT, name);
  return found != nullptr ? found : dlsym(library, name);
}

}  // namespace ropewalk::mpi

extern "C" __attribute__((visibility("default"))) void ropewalk_mpi_attach(
    void* mpi_library, ropewalk::mpi::Table& table) {
  using namespace ropewalk::mpi;
  library = mpi_library;
  static_cast<Table&>(pmpi) = table;
#define ROPEWALK_FIND(name) \
  pmpi.name = reinterpret_cast<decltype(pmpi.name)>(dlsym(mpi_library, "PMPI_" #name));
  ROPEWALK_MPI_USED(ROPEWALK_FIND)
  ROPEWALK_MPI_USED_OF_4(ROPEWALK_FIND)
#undef ROPEWALK_FIND
  take_collectives(table);
  take_requests(table);
  count_left(table);
  table.Init = take_Init;
  table.Init_thread = take_Init_thread;
  table.Finalize = take_Finalize;
  table.Alloc_mem = take_Alloc_mem;
  table.Free_mem = take_Free_mem;
}
