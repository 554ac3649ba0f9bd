// How much memory this process may lock, as RDMA adapters need it. Thread-safe.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

namespace ropewalk {

inline constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();
/// Less is of no use to RDMA: a job's inboxes, windows and queues would not fit, let alone data.
inline constexpr size_t kLockedBytesWanted = size_t{64} << 20;

struct LockLimit {
  size_t bytes = kUnlimited;       // RLIMIT_MEMLOCK; unlimited with the capability to ignore it
  size_t hard_bytes = kUnlimited;  // as far as the process may raise it itself
  bool suffices() const { return bytes >= kLockedBytesWanted; }
};
LockLimit lock_limit();

/// "8 MiB can be locked".
std::string text_of(const LockLimit& limit);
/// The command that raises it.
std::string advice(const LockLimit& limit);

}  // namespace ropewalk
