// A collective as this rank takes part in it.
#pragma once

#include <cstring>
#include <memory>
#include <optional>

#include "bytes.h"
#include "ropewalk/communicator.h"

namespace ropewalk::mpi {

/// The call, and the memory that it needs until it has ended: of data that the MPI packs, and of
/// results that go to another place.
struct Prepared {
  Call call;
  std::optional<Bytes> from, to;
  std::unique_ptr<std::byte[]> result;
  void* result_to = nullptr;
  size_t result_bytes = 0;

  /// The caller may free the types that it has named.
  void keep_types() {
    if (from) from->keep_type();
    if (to) to->keep_type();
  }
  /// What is sent may have changed since.
  void read_again() {
    if (from) from->read_again();
  }
  /// It has ended: its result goes to where the program wants it.
  void finish() {
    if (to) to->finish();
    if (result_bytes > 0) std::memcpy(result_to, result.get(), result_bytes);
  }
};

}  // namespace ropewalk::mpi
