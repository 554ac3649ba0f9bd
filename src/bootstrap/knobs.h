// Every environment variable that Ropewalk reads, in one place. `ropewalk env` prints them.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace ropewalk {

/// Parsed once per communicator; plain data. Defaults are the values here.
struct Knobs {
  std::optional<int> rank, size;           // ROPEWALK_RANK, ROPEWALK_SIZE
  std::optional<std::string> coordinator;  // ROPEWALK_COORDINATOR=host:port
  std::optional<int> coordinator_fd;       // ROPEWALK_COORDINATOR_FD: inherited listening socket
  std::string job_key;             // ROPEWALK_JOB_KEY: the job's secret; empty: a fixed public key
  std::string transport = "auto";  // ROPEWALK_TRANSPORT: auto, shm, tcp
  std::string require;             // ROPEWALK_REQUIRE: "", rdma, shm, tcp: refuse to fall back
  std::string algorithm = "auto";  // ROPEWALK_ALGORITHM: force one where it applies
  std::string socket_ifname;       // ROPEWALK_SOCKET_IFNAME: interface name or prefix
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // ROPEWALK_TIMEOUT (s)
  std::chrono::nanoseconds link_timeout =
      std::chrono::milliseconds(800);  // ROPEWALK_LINK_TIMEOUT (s)
  int tcp_streams = 1;                 // ROPEWALK_TCP_STREAMS: sockets per peer
  size_t slice_bytes = 1 << 20;        // ROPEWALK_SLICE_BYTES: largest slice, same on all ranks
  bool progress_thread = true;         // ROPEWALK_PROGRESS_THREAD: 0 or 1
  std::optional<int> progress_cpu;     // ROPEWALK_PROGRESS_CPU
  LogLevel log = LogLevel::warn;       // ROPEWALK_LOG: error, warn, info, debug
};

/// One row of documentation per variable, for `ropewalk env` and the docs.
struct KnobInfo {
  std::string_view name, default_text, help;
};
const std::vector<KnobInfo>& knob_infos();

/// Reads knobs through `get` (normally getenv), throws Error(invalid_argument) that names the
/// variable, its value and what is allowed.
Knobs parse_knobs(const std::function<const char*(const char*)>& get);
Knobs knobs_from_environment();
/// ROPEWALK_* names in `environ` that are none of the above: often typing errors.
std::vector<std::string> unknown_knobs(const char* const* environ);

/// "64K", "1M", "2G", "8" -> bytes (powers of 1024); nothing where it is not a size.
std::optional<size_t> parse_size(std::string_view text);
/// "1.5" -> seconds, "200ms", "3s", "2m" as well.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

}  // namespace ropewalk
