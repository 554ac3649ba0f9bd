// What XLA calls of MPI for JAX on CPUs, over Ropewalk: MPItrampoline's ABI 2, as jaxlib loads it
// from MPITRAMPOLINE_LIB. Handles of communicators and requests are numbers, never given twice.
// Any thread may call.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "constants.h"
#include "missing.h"
#include "ropewalk/communicator.h"

namespace {

using namespace ropewalk;
using Handle = intptr_t;

constexpr Handle kFirstHandle = 1 << 16;  // above all constants

/// As MPItrampoline has it: an MPI's own, then what programs may read.
struct Status {
  char of_mpi[24];
  int source, tag, error;
};

/// Of the process. Never destroyed: a process that ends without MPI_Finalize is a rank that is
/// lost, and the others are told.
struct Job {
  std::mutex mutex;  // guards the rest
  Handle next = kFirstHandle;
  std::map<Handle, std::shared_ptr<Communicator>> communicators;
  std::map<Handle, std::shared_ptr<Work>> requests;
  bool is_finalized = false;
};

Job& job() {
  static Job& job = *new Job;
  return job;
}

thread_local std::string last_error;

[[noreturn]] void refuse(const char* operation, std::string reason, std::string advice) {
  throw Error(ErrorCode::invalid_argument, operation, std::move(reason), std::move(advice));
}

/// MPI's status of `body`; MPI_Error_string has the text of an error, on the same thread.
template <class Body>
int status_of(Body body) {
  try {
    body();
    return static_cast<int>(MPIABI_SUCCESS);
  } catch (const std::exception& error) {
    last_error = error.what();
    return static_cast<int>(MPIABI_ERR_OTHER);
  }
}

template <class Object>
Handle add(std::map<Handle, std::shared_ptr<Object>>& objects, std::shared_ptr<Object> object) {
  const std::lock_guard lock(job().mutex);
  objects.emplace(job().next, std::move(object));
  return job().next++;
}

template <class Object>
std::shared_ptr<Object> take(std::map<Handle, std::shared_ptr<Object>>& objects, Handle handle) {
  const std::lock_guard lock(job().mutex);
  const auto node = objects.extract(handle);
  return node ? node.mapped() : nullptr;
}

std::shared_ptr<Communicator> communicator(const char* operation, Handle handle) {
  const std::lock_guard lock(job().mutex);
  const auto found = job().communicators.find(handle);
  if (found == job().communicators.end())
    refuse(operation, "the communicator is none that is in use",
           "call it between MPI_Init_thread and MPI_Finalize");
  return found->second;
}

struct Type {
  DataType type;
  size_t count = 1;  // elements of Ropewalk in one of MPI's
};

Type type_of(const char* operation, Handle datatype) {
  static const std::map<Handle, Type> types{
      {MPIABI_BYTE, {DataType::uint8}},
      {MPIABI_INT8_T, {DataType::int8}},
      {MPIABI_UINT8_T, {DataType::uint8}},
      {MPIABI_INT16_T, {DataType::int16}},
      {MPIABI_UINT16_T, {DataType::uint16}},
      {MPIABI_INT32_T, {DataType::int32}},
      {MPIABI_UINT32_T, {DataType::uint32}},
      {MPIABI_INT64_T, {DataType::int64}},
      {MPIABI_UINT64_T, {DataType::uint64}},
      {MPIABI_FLOAT, {DataType::float32}},
      {MPIABI_DOUBLE, {DataType::float64}},
      {MPIABI_C_COMPLEX, {DataType::float32, 2}},
      {MPIABI_C_FLOAT_COMPLEX, {DataType::float32, 2}},
      {MPIABI_C_DOUBLE_COMPLEX, {DataType::float64, 2}},
  };
  const auto found = types.find(datatype);
  if (found == types.end())
    refuse(operation, "a datatype of MPI that XLA did not use when this was written",
           "use JAX_CPU_COLLECTIVES_IMPLEMENTATION=gloo for this program");
  return found->second;
}

ReduceOp op_of(const char* operation, Handle op, const Type& type) {
  if (op == MPIABI_SUM) return kSum;
  const bool is_complex = type.count > 1;
  if (op == MPIABI_PROD && !is_complex) return kProd;
  if (op == MPIABI_MIN && !is_complex) return kMin;
  if (op == MPIABI_MAX && !is_complex) return kMax;
  refuse(operation, "sum, prod, min and max are taken, of complex numbers the sum",
         "use JAX_CPU_COLLECTIVES_IMPLEMENTATION=gloo for this program");
}

Call call_of(Collective collective, const Type& type, const void* in, void* out, int count) {
  if (count < 0 || reinterpret_cast<Handle>(in) == MPIABI_IN_PLACE)
    refuse(name_of(collective).data(), "a negative count, or MPI_IN_PLACE where XLA has none",
           "use JAX_CPU_COLLECTIVES_IMPLEMENTATION=gloo for this program");
  Call call;
  call.collective = collective;
  call.type = type.type;
  call.in = in;
  call.out = out;
  call.count = static_cast<size_t>(count) * type.count;
  return call;
}

Call message_of(Collective collective, const char* operation, const void* in, void* out, int count,
                Handle datatype, int peer, int tag) {
  Call call = call_of(collective, type_of(operation, datatype), in, out, count);
  call.root = peer;
  call.tag = static_cast<uint32_t>(tag);
  return call;
}

void fill(Status* status, int source, int tag) {
  if (status == nullptr) return;
  status->source = source;
  status->tag = tag;
  status->error = static_cast<int>(MPIABI_SUCCESS);
}

Handle start(const Call& message, const char* operation, Handle comm) {
  auto work = std::make_shared<Work>(communicator(operation, comm)->start(message));
  return add(job().requests, std::move(work));
}

}  // namespace

int ropewalk::jax::is_missing(const char* symbol) {
  last_error = fmt::format(
      "libropewalk-jax: {} is called, which XLA did not use when this was written; "
      "use JAX_CPU_COLLECTIVES_IMPLEMENTATION=gloo for this program",
      symbol);
  std::fprintf(stderr, "%s\n", last_error.c_str());
  return static_cast<int>(MPIABI_ERR_UNSUPPORTED_OPERATION);
}

#pragma GCC visibility push(default)
extern "C" {

extern const int mpiwrapper_version_major = 2, mpiwrapper_version_minor = 11,
                 mpiwrapper_version_patch = 0, mpiabi_version_major = 2, mpiabi_version_minor = 11,
                 mpiabi_version_patch = 0;
void mpiwrapper_export_fortran_constants_() {}

int MPIABI_Init_thread(int* /*argc*/, char*** /*argv*/, int /*required*/, int* provided) {
  *provided = static_cast<int>(MPIABI_THREAD_MULTIPLE);
  return status_of([] {
    std::shared_ptr<Communicator> world = Communicator::create();
    const std::lock_guard lock(job().mutex);
    job().communicators.emplace(MPIABI_COMM_WORLD, std::move(world));
  });
}

int MPIABI_Initialized(int* flag) {
  const std::lock_guard lock(job().mutex);
  *flag = job().is_finalized || job().communicators.contains(MPIABI_COMM_WORLD);
  return static_cast<int>(MPIABI_SUCCESS);
}

int MPIABI_Finalized(int* flag) {
  const std::lock_guard lock(job().mutex);
  *flag = job().is_finalized;
  return static_cast<int>(MPIABI_SUCCESS);
}

int MPIABI_Finalize() {
  return status_of([] {
    decltype(Job::communicators) communicators;
    {
      const std::lock_guard lock(job().mutex);
      job().is_finalized = true;
      communicators = std::exchange(job().communicators, {});
    }
    const auto world = communicators.extract(MPIABI_COMM_WORLD);
    communicators.clear();
    if (world) world.mapped()->leave();
  });
}

/// Every thread will do.
int MPIABI_Is_thread_main(int* flag) {
  *flag = 1;
  return static_cast<int>(MPIABI_SUCCESS);
}

int MPIABI_Comm_rank(Handle comm, int* rank) {
  return status_of([&] { *rank = communicator("MPI_Comm_rank", comm)->rank(); });
}

int MPIABI_Comm_size(Handle comm, int* size) {
  return status_of([&] { *size = communicator("MPI_Comm_size", comm)->size(); });
}

int MPIABI_Comm_split(Handle comm, int color, int key, Handle* part) {
  return status_of([&] {
    *part = MPIABI_COMM_NULL;
    std::shared_ptr<Communicator> made =
        communicator("MPI_Comm_split", comm)
            ->split(color == static_cast<int>(MPIABI_UNDEFINED) ? -1 : color, key);
    if (made) *part = add(job().communicators, std::move(made));
  });
}

int MPIABI_Comm_free(Handle* comm) {
  const Handle handle = std::exchange(*comm, MPIABI_COMM_NULL);
  return status_of([&] { take(job().communicators, handle).reset(); });
}

int MPIABI_Allreduce(const void* in, void* out, int count, Handle datatype, Handle op,
                     Handle comm) {
  constexpr const char* kName = "MPI_Allreduce";
  return status_of([&] {
    const Type type = type_of(kName, datatype);
    const bool in_place = reinterpret_cast<Handle>(in) == MPIABI_IN_PLACE;
    Call call = call_of(Collective::all_reduce, type, in_place ? out : in, out, count);
    call.op = op_of(kName, op, type);
    communicator(kName, comm)->run(call);
  });
}

int MPIABI_Reduce_scatter(const void* in, void* out, const int* counts, Handle datatype, Handle op,
                          Handle comm) {
  constexpr const char* kName = "MPI_Reduce_scatter";
  return status_of([&] {
    const Type type = type_of(kName, datatype);
    const auto group = communicator(kName, comm);
    Call call = call_of(Collective::reduce_scatter, type, in, out, 0);
    call.op = op_of(kName, op, type);
    for (const int count : std::span(counts, static_cast<size_t>(group->size())))
      call.counts.push_back(static_cast<size_t>(count) * type.count);
    group->run(call);
  });
}

int MPIABI_Allgather(const void* in, int count, Handle datatype, void* out, int /*out_count*/,
                     Handle /*out_type*/, Handle comm) {
  constexpr const char* kName = "MPI_Allgather";
  return status_of([&] {
    const Type type = type_of(kName, datatype);
    communicator(kName, comm)->run(call_of(Collective::all_gather, type, in, out, count));
  });
}

int MPIABI_Isend(const void* in, int count, Handle datatype, int to, int tag, Handle comm,
                 Handle* request) {
  constexpr const char* kName = "MPI_Isend";
  return status_of([&] {
    *request = start(message_of(Collective::send, kName, in, nullptr, count, datatype, to, tag),
                     kName, comm);
  });
}

int MPIABI_Irecv(void* out, int count, Handle datatype, int from, int tag, Handle comm,
                 Handle* request) {
  constexpr const char* kName = "MPI_Irecv";
  return status_of([&] {
    *request = start(message_of(Collective::recv, kName, nullptr, out, count, datatype, from, tag),
                     kName, comm);
  });
}

int MPIABI_Wait(Handle* request, Status* status) {
  return status_of([&] {
    const auto work = take(job().requests, std::exchange(*request, MPIABI_REQUEST_NULL));
    if (work) work->wait();
    fill(status, static_cast<int>(MPIABI_ANY_SOURCE), static_cast<int>(MPIABI_ANY_TAG));
  });
}

int MPIABI_Sendrecv(const void* in, int in_count, Handle in_type, int to, int send_tag, void* out,
                    int out_count, Handle out_type, int from, int recv_tag, Handle comm,
                    Status* status) {
  constexpr const char* kName = "MPI_Sendrecv";
  return status_of([&] {
    const std::vector calls{
        message_of(Collective::recv, kName, nullptr, out, out_count, out_type, from, recv_tag),
        message_of(Collective::send, kName, in, nullptr, in_count, in_type, to, send_tag)};
    communicator(kName, comm)->start_group(calls).wait();
    fill(status, from, recv_tag);
  });
}

int MPIABI_Error_string(int /*error*/, char* text, int* length) {
  constexpr size_t kMax = 511;  // MPI_MAX_ERROR_STRING of the ABI, and the 0
  const size_t size = std::min(last_error.size(), kMax);
  std::memcpy(text, last_error.data(), size);
  text[size] = 0;
  *length = static_cast<int>(size);
  return static_cast<int>(MPIABI_SUCCESS);
}

int MPIABI_Get_library_version(char* text, int* length) {
  static constexpr std::string_view kVersion = "Ropewalk, as far as JAX needs MPI";
  std::memcpy(text, kVersion.data(), kVersion.size());
  text[kVersion.size()] = 0;
  *length = static_cast<int>(kVersion.size());
  return static_cast<int>(MPIABI_SUCCESS);
}

}  // extern "C"
#pragma GCC visibility pop
