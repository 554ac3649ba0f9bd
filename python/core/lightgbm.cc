// LightGBM's network, replaced: the two functions that LGBM_NetworkInitWithFunctions takes. It has
// one network a thread, and hands nothing of the caller's to them: the thread tells whose they are.
#include "lightgbm.h"

#include <fmt/format.h>
#include <nanobind/stl/pair.h>

#include <cstring>
#include <span>
#include <vector>

#include "session.h"

namespace ropewalk::python {
namespace {

// As LightGBM declares it (LightGBM/meta.h). All sizes and starts are bytes.
using Reduce = void (*)(const char* in, char* inout, int record_bytes, int32_t bytes);

thread_local Session* network = nullptr;
thread_local std::vector<uint8_t> received;  // grows to the largest that this thread has needed

Communicator& communicator_of_thread() {
  if (network == nullptr)
    throw Error(ErrorCode::invalid_argument, "ropewalk.lightgbm", "this thread has no network",
                "call ropewalk.lightgbm.use(comm) on the thread that trains");
  return network->open();
}

/// The parts of the ranks, which must lie one after another.
std::vector<size_t> part_sizes(const int32_t* starts, const int32_t* bytes, int ranks) {
  if (ranks != network->size)
    throw Error(
        ErrorCode::invalid_argument, "ropewalk.lightgbm",
        fmt::format("LightGBM has {} machines, the communicator {} ranks", ranks, network->size),
        "pass num_machines as in Network.parameters");
  std::vector<size_t> sizes;
  int64_t end = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (starts[rank] != end)
      throw Error(ErrorCode::invalid_argument, "ropewalk.lightgbm",
                  fmt::format("the part of machine {} begins at byte {}, not at {}", rank,
                              starts[rank], end),
                  "use a version of LightGBM that ropewalk names as tested");
    sizes.push_back(static_cast<size_t>(bytes[rank]));
    end += bytes[rank];
  }
  return sizes;
}

std::span<uint8_t> bytes_at(char* data, int32_t bytes) {
  return {reinterpret_cast<uint8_t*>(data), static_cast<size_t>(bytes)};
}

void all_gather(char* in, int32_t in_bytes, const int32_t* starts, const int32_t* bytes, int ranks,
                char* out, int32_t out_bytes) {
  Communicator& comm = communicator_of_thread();
  auto sizes = part_sizes(starts, bytes, ranks);
  char* own = out + starts[comm.rank()];
  std::memmove(own, in, static_cast<size_t>(in_bytes));  // `in` may overlap it
  comm.run(Call::all_gather_v(bytes_at(own, in_bytes), bytes_at(out, out_bytes), std::move(sizes)));
}

/// Not a reduce_scatter with a user's op: such are cut into slices, and a slice might end within a
/// record. Adds in the order of ranks, so that equal input gives equal bits.
void reduce_scatter(char* in, int32_t in_bytes, int record_bytes, const int32_t* starts,
                    const int32_t* bytes, int ranks, char* out, int32_t /*out_bytes*/,
                    const Reduce& reduce) {
  Communicator& comm = communicator_of_thread();
  auto sizes = part_sizes(starts, bytes, ranks);
  const int32_t own_bytes = bytes[comm.rank()];
  const auto own = static_cast<size_t>(own_bytes);
  received.resize(own * static_cast<size_t>(ranks));
  comm.run(Call::all_to_all_v(bytes_at(in, in_bytes), std::move(sizes), received,
                              std::vector<size_t>(static_cast<size_t>(ranks), own)));
  auto* parts = reinterpret_cast<char*>(received.data());
  for (size_t rank = 1; rank < static_cast<size_t>(ranks); ++rank)
    reduce(parts + rank * own, parts, record_bytes, own_bytes);
  std::memcpy(out, parts, own);
}

template <class Function>
uintptr_t address_of(Function* function) {
  return reinterpret_cast<uintptr_t>(function);
}

}  // namespace

void bind_lightgbm(nb::module_& module) {
  module.def("lightgbm_functions",
             [] { return std::pair(address_of(&reduce_scatter), address_of(&all_gather)); });
  module.def(
      "lightgbm_use", [](Session* session) { network = session; }, nb::arg("session").none());
}

}  // namespace ropewalk::python
