// Every environment variable that Ropewalk reads, in one place. `ropewalk env` prints them.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "bootstrap/secret.h"
#include "ropewalk/types.h"

namespace ropewalk {

/// Parsed once per communicator; plain data. Defaults are the values here.
struct Config {
  std::optional<int> rank, size;           // ROPEWALK_RANK, ROPEWALK_SIZE
  std::optional<std::string> coordinator;  // ROPEWALK_COORDINATOR=host:port
  std::optional<int> coordinator_fd;       // ROPEWALK_COORDINATOR_FD: inherited listening socket
  Secret job_key;                          // ROPEWALK_JOB_KEY; empty: a fixed public key
  bool open = false;                       // ROPEWALK_OPEN: 0 or 1: beyond this host without a key
  bool secure = false;                     // ROPEWALK_SECURE: 0 or 1: data is sealed
  std::string transport = "auto";          // ROPEWALK_TRANSPORT: what transport_named gives
  std::string require;  // ROPEWALK_REQUIRE: "", rdma, shm, tcp: refuse to fall back
  Algorithm algorithm = Algorithm::automatic;  // ROPEWALK_ALGORITHM: force one where it applies
  std::string socket_ifname;                   // ROPEWALK_SOCKET_IFNAME: interface name or prefix
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);       // ROPEWALK_TIMEOUT (s)
  std::optional<std::chrono::nanoseconds> join_timeout;              // ROPEWALK_JOIN_TIMEOUT (s)
  std::chrono::nanoseconds link_timeout = std::chrono::seconds(22);  // ROPEWALK_LINK_TIMEOUT (s)
  int tcp_streams = 0;              // ROPEWALK_TCP_STREAMS: sockets per peer; 0: by networks
  std::string ib_hca;               // ROPEWALK_IB_HCA: RDMA devices and ports to use
  std::optional<int> ib_gid_index;  // ROPEWALK_IB_GID_INDEX
  int ib_traffic_class = 0;         // ROPEWALK_IB_TC
  int ib_service_level = 0;         // ROPEWALK_IB_SL
  int ib_pkey_index = 0;            // ROPEWALK_IB_PKEY: index into the port's table
  std::optional<int> ib_timeout;    // ROPEWALK_IB_TIMEOUT: 4.096 us * 2^this; else by link_timeout
  int ib_retry = 6;                 // ROPEWALK_IB_RETRY
  int ib_lanes = 0;                 // ROPEWALK_IB_LANES: queue pairs per peer; 0: one per port
  int ib_mtu = 4096;                // ROPEWALK_IB_MTU: bytes of a packet, at most
  bool probe = true;                // ROPEWALK_PROBE: 0 or 1; counts on rank 0
  std::string tuning;               // ROPEWALK_TUNING: a file, or none; counts on rank 0
  std::string network;              // ROPEWALK_NETWORK: a file or a template; counts on rank 0
  size_t slice_bytes = 1 << 20;     // ROPEWALK_SLICE_BYTES: largest slice, same on all ranks
  bool progress_thread = true;      // ROPEWALK_PROGRESS_THREAD: 0 or 1
  std::optional<int> progress_cpu;  // ROPEWALK_PROGRESS_CPU
  bool elastic = false;             // ROPEWALK_ELASTIC: 0 or 1
  bool tie_breaker = false;         // ROPEWALK_QUORUM_TIE_BREAKER: 0 or 1
  int quorum_min = 1;               // ROPEWALK_QUORUM_MIN: members that go on, at least
  bool join_running = false;        // ROPEWALK_JOIN_RUNNING: 0, 1
  bool join_if_running = false;     // or auto
  std::optional<std::chrono::nanoseconds> admission_timeout;  // ROPEWALK_ADMISSION_TIMEOUT (s)
  std::stop_token stop;                                       // Options::stop
  std::optional<int> joined_fd;   // ROPEWALK_JOINED_FD: hears when it has
  LogLevel log = LogLevel::warn;  // ROPEWALK_LOG: error, warn, info, debug

  /// Until all ranks have come.
  std::chrono::nanoseconds time_to_join() const { return join_timeout.value_or(timeout); }
};

/// Where a job is elastic, and nobody who comes later could find it.
inline constexpr const char* kElasticAdvice =
    "set ROPEWALK_COORDINATOR=host:port, with a port below 32768, or several of them with commas "
    "between, and ROPEWALK_JOB_KEY or ROPEWALK_JOB_KEY_FILE, on every rank and on what joins later";

/// What ROPEWALK_TRANSPORT and Options::transport may be: "auto" and ROPEWALK_TRANSPORTS, by all
/// their names.
std::vector<std::string> transport_words();
/// "auto, shm, verbs (or rdma), ...".
std::string transport_words_text();
/// "verbs" for "rdma"; nothing where `word` names no transport.
std::optional<std::string_view> transport_named(std::string_view word);

/// One row of documentation per variable, for `ropewalk env` and the docs.
struct VariableInfo {
  std::string_view name, default_text, help;
};
const std::vector<VariableInfo>& variable_infos();

/// getenv, or a test's table.
using Lookup = std::function<const char*(const char*)>;

// These throw Error(invalid_argument) that names the variable, its value and what is allowed.
Config parse_config(const Lookup& get);
/// Nothing where it is not set; one that is set but empty counts as not set.
std::optional<std::string> variable(const Lookup& get, const char* name);
std::optional<int> integer_variable(const Lookup& get, const char* name, long low, long high);

/// With the job's key as `take_job_key` tells; parse_config gives none.
Config config_from_environment();
/// ROPEWALK_* names in `environ` that are none of the above: often typing errors.
std::vector<std::string> unknown_variables(const char* const* environ);

/// "8", "64K", "1MB", "1.5GiB" -> bytes: K, M, G and T are powers of 1024, in either case, with or
/// without B or iB. Nothing where it is no whole number of bytes.
std::optional<size_t> parse_size(std::string_view text);
/// "1.5" -> seconds, "200ms", "3s", "2m" as well.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

}  // namespace ropewalk
