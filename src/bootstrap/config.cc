#include "bootstrap/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>

#include "base/text.h"
#include "bootstrap/net.h"
#include "fabric/select_ports.h"
#include "ropewalk/status.h"
#include "ropewalk/types.h"
#include "transport_choice/provider.h"

namespace ropewalk {
namespace {

using std::chrono::nanoseconds;

constexpr long kRanksMax = 1 << 20;

struct TransportNames {
  std::string_view name, other;
};
#define ROPEWALK_NAMES(name, other_name) {#name, other_name},
constexpr TransportNames kTransports[] = {{"auto", ""}, ROPEWALK_TRANSPORTS(ROPEWALK_NAMES)};
#undef ROPEWALK_NAMES

[[noreturn]] void refuse(std::string_view name, std::string_view value, std::string_view allowed) {
  throw Error(ErrorCode::invalid_argument, "environment",
              fmt::format("{}=\"{}\" is not allowed; it must be {}", name, value, allowed),
              name.starts_with("ROPEWALK_")
                  ? fmt::format("correct or unset {}", name)
                  : "the launcher or a script set it; correct or unset it");
}

double seconds(nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// `parse`, which then takes only values from `low` to `high`.
template <class Parse, class Value>
auto within(Parse parse, Value low, Value high) {
  return [=](std::string_view text) {
    const auto value = parse(text);
    return value && low <= *value && *value <= high ? value : std::nullopt;
  };
}

/// Reads variables one by one into settings, which keep their values where a variable is not set.
class Reader {
 public:
  explicit Reader(const Lookup& get) : get_(get) {}

  void text(const char* name, auto& setting) const {
    if (auto value = variable(get_, name)) setting = std::move(*value);
  }
  /// `parse` gives nothing for what is not `allowed`.
  template <class Parse>
  void parsed(const char* name, auto& setting, std::string_view allowed, Parse parse) const {
    const auto value = variable(get_, name);
    if (!value) return;
    auto meaning = parse(*value);
    if (!meaning) refuse(name, *value, allowed);
    setting = std::move(*meaning);
  }
  void integer(const char* name, auto& setting, long low, long high) const {
    if (const auto value = integer_variable(get_, name, low, high)) setting = *value;
  }
  void one_of(const char* name, std::string& setting, const std::vector<std::string>& words) const {
    parsed(name, setting, fmt::format("one of: {}", fmt::join(words, ", ")), [&](const auto& text) {
      return std::ranges::count(words, text) == 0 ? std::nullopt : std::optional(text);
    });
  }
  void duration(const char* name, auto& setting, nanoseconds low, nanoseconds high) const {
    parsed(name, setting,
           fmt::format("a time from {} to {} s: \"1.5\" (seconds), \"200ms\", \"3s\", \"2m\"",
                       seconds(low), seconds(high)),
           within(parse_duration, low, high));
  }
  void size(const char* name, size_t& setting, size_t low, size_t high) const {
    parsed(name, setting, fmt::format("bytes from {} to {}: \"4096\", \"64K\", \"1M\"", low, high),
           within(parse_size, low, high));
  }

 private:
  const Lookup& get_;
};

void parse_ib(const Reader& read, Config& config) {
  const auto if_filter = [](const std::string& text) {
    return verbs::PortFilter::parse(text) ? std::optional(text) : std::nullopt;
  };
  read.parsed("ROPEWALK_IB_HCA", config.ib_hca,
              "a list of RDMA devices: mlx5_0, mlx5_0:1,mlx5_1, =mlx5_1 or ^mlx5_3", if_filter);
  read.integer("ROPEWALK_IB_GID_INDEX", config.ib_gid_index, 0, 255);
  read.integer("ROPEWALK_IB_TC", config.ib_traffic_class, 0, 255);
  read.integer("ROPEWALK_IB_SL", config.ib_service_level, 0, 15);
  read.integer("ROPEWALK_IB_PKEY", config.ib_pkey_index, 0, 65535);
  read.integer("ROPEWALK_IB_TIMEOUT", config.ib_timeout, 1, 22);
  read.integer("ROPEWALK_IB_RETRY", config.ib_retry, 0, 7);
  read.integer("ROPEWALK_IB_LANES", config.ib_lanes, 1, 8);
  std::string mtu = std::to_string(config.ib_mtu);
  read.one_of("ROPEWALK_IB_MTU", mtu, {"256", "512", "1024", "2048", "4096"});
  config.ib_mtu = std::stoi(mtu);
}

std::string algorithm_words_text() {
  std::vector<std::string_view> names;
  for (int i = 0; i < kAlgorithms; ++i) names.push_back(name_of(static_cast<Algorithm>(i)));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::optional<std::string> variable(const Lookup& get, const char* name) {
  const char* value = get(name);
  if (value == nullptr || *value == '\0') return {};
  return std::string(value);
}

std::optional<int> integer_variable(const Lookup& get, const char* name, long low, long high) {
  const auto value = variable(get, name);
  if (!value) return {};
  const auto number = parse_number<long>(*value);
  if (!number || *number < low || *number > high)
    refuse(name, *value, fmt::format("a whole number from {} to {}", low, high));
  return static_cast<int>(*number);
}

std::vector<std::string> transport_words() {
  std::vector<std::string> words;
  for (const TransportNames& each : kTransports)
    for (const std::string_view word : {each.name, each.other})
      if (!word.empty()) words.emplace_back(word);
  return words;
}

std::string transport_words_text() {
  std::vector<std::string> words;
  for (const TransportNames& each : kTransports)
    words.push_back(each.other.empty() ? std::string(each.name)
                                       : fmt::format("{} (or {})", each.name, each.other));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::optional<std::string_view> transport_named(std::string_view word) {
  for (const TransportNames& each : kTransports)
    if (word == each.name || (!each.other.empty() && word == each.other)) return each.name;
  return {};
}

namespace {

std::vector<VariableInfo> ib_variable_infos() {
  return {
      {"ROPEWALK_IB_HCA", "all that are usable",
       "RDMA devices by name or prefix: mlx5_0,mlx5_1 or mlx5_0:1 (port 1); =mlx5_1 for exactly "
       "this name; ^mlx5_3 for all but these"},
      {"ROPEWALK_IB_GID_INDEX", "chosen",
       "row of the ports' GID table, 0 to 255; see `ropewalk doctor`"},
      {"ROPEWALK_IB_TC", "0", "RoCE: traffic class, 0 to 255; DSCP is its upper six bits"},
      {"ROPEWALK_IB_SL", "0", "InfiniBand: service level; RoCE: priority; 0 to 15"},
      {"ROPEWALK_IB_PKEY", "0", "row of the ports' table of partition keys"},
      {"ROPEWALK_IB_TIMEOUT", "by ROPEWALK_LINK_TIMEOUT: 19",
       "1 to 22: a packet is sent again when no answer came for 4.096 us * 2^this"},
      {"ROPEWALK_IB_RETRY", "6",
       "0 to 7: how often it is sent again. A peer that answers nothing is lost after (this + 1) * "
       "4.096 us * 2^ROPEWALK_IB_TIMEOUT: 15 s; some adapters take up to four times as long"},
      {"ROPEWALK_IB_LANES", "one per port", "queue pairs per peer, 1 to 8; the same on every rank"},
      {"ROPEWALK_IB_MTU", "4096", "longest packet: 256, 512, 1024, 2048 or 4096 bytes"},
  };
}

/// By what the planner chooses.
std::vector<VariableInfo> cost_variable_infos() {
  return {
      {"ROPEWALK_PROBE", "1",
       "0 or 1: in jobs on several hosts, measure the links between them at the start, some 50 ms, "
       "instead of taking the rate that the system tells of adapters; and try other algorithms in "
       "calls that come again and again, and take longer than predicted; rank 0's counts"},
      {"ROPEWALK_TUNING", "what `ropewalk tune` has saved",
       "a tuning profile of these hosts, in place of the probe; none: not even a saved one; rank "
       "0's counts"},
      {"ROPEWALK_NETWORK", "none",
       "a description of the network, or a template (docs/network.md): then schedules are made for "
       "it where hosts are not alike and that gains; rank 0's counts"},
  };
}

std::vector<VariableInfo> general_variable_infos() {
  static const std::string algorithm_list = algorithm_words_text();
  static const std::string transport_help = transport_words_text() + "; the same on every rank";
  return {
      {"ROPEWALK_RANK", "from the launcher", "this process's rank, 0 to size-1"},
      {"ROPEWALK_SIZE", "from the launcher", "how many ranks the job has"},
      {"ROPEWALK_LOCAL_RANK", "from the launcher",
       "set by `ropewalk run` for the program's own use: the rank among those of its host"},
      {"ROPEWALK_LOCAL_SIZE", "from the launcher",
       "set by `ropewalk run` for the program's own use: how many ranks its host has"},
      {"ROPEWALK_COORDINATOR", "from the launcher",
       "host:port at which rank 0 listens; several with commas between, of which the first is on "
       "rank 0's host"},
      {"ROPEWALK_COORDINATOR_FD", "none", "rank 0: an inherited socket that listens there already"},
      {"ROPEWALK_JOB_KEY", "none",
       "the job's secret, the same on every rank: openssl rand -hex 32. Wiped from the environment "
       "when it has been read. Needed where rank 0 can be reached from other hosts"},
      {"ROPEWALK_JOB_KEY_FILE", "none",
       "a file of mode 600, or /dev/fd/N, whose first line is the job's secret, where "
       "ROPEWALK_JOB_KEY is not set"},
      {"ROPEWALK_KEEP_JOB_KEY", "0",
       "1: leave ROPEWALK_JOB_KEY in the environment, for programs that this one starts"},
      {"ROPEWALK_OPEN", "0",
       "1: join beyond this host without a key, where whoever reaches rank 0 can join, read and "
       "write"},
      {"ROPEWALK_SECURE", "0",
       "1: nobody on the network can read or change data: TCP, sealed; the same on every rank"},
      {"ROPEWALK_TRANSPORT", "auto", transport_help},
      {"ROPEWALK_REQUIRE", "none", "rdma, shm, tcp: an error instead of a slower transport"},
      {"ROPEWALK_ALGORITHM", "auto", algorithm_list},
      {"ROPEWALK_SOCKET_IFNAME", "all that are up",
       "interface name or prefix whose addresses other ranks may dial"},
      {"ROPEWALK_TIMEOUT", "30", "longest wait: seconds, or 200ms, 3s, 2m"},
      {"ROPEWALK_JOIN_TIMEOUT", "ROPEWALK_TIMEOUT", "longest wait until all ranks have come"},
      {"ROPEWALK_LINK_TIMEOUT", "22",
       "how long nothing may be acknowledged on a TCP connection between two hosts; then the path "
       "is taken for cut: seconds, or 200ms, 3s, 2m. TCP waits twice as long each time before it "
       "tries again: outages of half of it, less a second, are survived. Adapters go by it, too"},
      {"ROPEWALK_TCP_STREAMS", "one a network",
       "sockets per pair of ranks, 1 to 16; by default one for each of the networks of one speed "
       "that all hosts share"},
      {"ROPEWALK_SLICE_BYTES", "1M", "largest slice of a message; the same on every rank"},
      {"ROPEWALK_PROGRESS_THREAD", "1", "0 or 1: drive started operations in the background"},
      {"ROPEWALK_PROGRESS_CPU", "none", "bind the progress thread to this CPU"},
      {"ROPEWALK_ELASTIC", "0",
       "1: processes may join while the job runs (docs/elastic.md); the same on every rank"},
      {"ROPEWALK_QUORUM_TIE_BREAKER", "0",
       "1: after a failure half of the ranks may go on, where the lowest is among them; else only "
       "more than half; the same on every rank"},
      {"ROPEWALK_QUORUM_MIN", "1", "and so many at least; the same on every rank"},
      {"ROPEWALK_JOIN_RUNNING", "0",
       "1: this process joins a job that runs, with its ROPEWALK_COORDINATOR and key, instead of "
       "having a rank from the start; auto: where the job runs already, for processes that are "
       "started again with the same variables"},
      {"ROPEWALK_ADMISSION_TIMEOUT", "none",
       "how long such a process waits to be admitted: seconds, or 200ms, 3s, 2m"},
      {"ROPEWALK_JOINED_FD", "none",
       "from the launcher: an inherited descriptor at which such a process says that it has "
       "joined"},
      {"ROPEWALK_MPI_REPORT", "0", "1: MPI programs (ropewalk mpi) tell at the end what was taken"},
      {"ROPEWALK_LOG", "warn", "error, warn, info, debug"},
      {"ROPEWALK_TORCH_CACHE", "~/.cache/ropewalk",
       "folder for the PyTorch backend, which is compiled when it is first used"},
      {"ROPEWALK_SEEDS", "all", "for Ropewalk's own tests: seeds of the simulation, 17 or 1:100"},
  };
}

}  // namespace

const std::vector<VariableInfo>& variable_infos() {
  static const std::vector<VariableInfo> infos = [] {
    std::vector<VariableInfo> all = general_variable_infos();
    std::ranges::copy(cost_variable_infos(), std::back_inserter(all));
    std::ranges::copy(ib_variable_infos(), std::back_inserter(all));
    return all;
  }();
  return infos;
}

Config parse_config(const Lookup& get) {
  using namespace std::chrono_literals;
  const Reader read(get);
  Config config;
  read.integer("ROPEWALK_RANK", config.rank, 0, kRanksMax - 1);
  read.integer("ROPEWALK_SIZE", config.size, 1, kRanksMax);
  const auto if_endpoints = [](const std::string& text) {
    return bootstrap::parse_endpoints(text).empty() ? std::nullopt : std::optional(text);
  };
  read.parsed(
      "ROPEWALK_COORDINATOR", config.coordinator,
      "host:port, 1.2.3.4:port or [v6-address]:port with a port from 1 to 65535, or several "
      "of them with commas between",
      if_endpoints);
  read.integer("ROPEWALK_COORDINATOR_FD", config.coordinator_fd, 0,
               std::numeric_limits<int>::max());
  read.integer("ROPEWALK_OPEN", config.open, 0, 1);
  read.integer("ROPEWALK_SECURE", config.secure, 0, 1);
  read.parsed("ROPEWALK_TRANSPORT", config.transport, "one of: " + transport_words_text(),
              transport_named);
  read.one_of("ROPEWALK_REQUIRE", config.require, {"rdma", "shm", "tcp"});
  read.parsed("ROPEWALK_ALGORITHM", config.algorithm, "one of: " + algorithm_words_text(),
              algorithm_named);
  read.text("ROPEWALK_SOCKET_IFNAME", config.socket_ifname);
  read.duration("ROPEWALK_TIMEOUT", config.timeout, 1ms, 24h);
  read.duration("ROPEWALK_JOIN_TIMEOUT", config.join_timeout, 1ms, 24h);
  read.duration("ROPEWALK_LINK_TIMEOUT", config.link_timeout, 10ms, 1h);
  read.integer("ROPEWALK_TCP_STREAMS", config.tcp_streams, 1, 16);
  parse_ib(read, config);
  read.size("ROPEWALK_SLICE_BYTES", config.slice_bytes, size_t{1} << 10, size_t{1} << 30);
  read.integer("ROPEWALK_PROBE", config.probe, 0, 1);
  read.text("ROPEWALK_TUNING", config.tuning);
  read.text("ROPEWALK_NETWORK", config.network);
  read.integer("ROPEWALK_PROGRESS_THREAD", config.progress_thread, 0, 1);
  read.integer("ROPEWALK_PROGRESS_CPU", config.progress_cpu, 0, 65535);
  read.integer("ROPEWALK_ELASTIC", config.elastic, 0, 1);
  read.integer("ROPEWALK_QUORUM_TIE_BREAKER", config.tie_breaker, 0, 1);
  read.integer("ROPEWALK_QUORUM_MIN", config.quorum_min, 1, kRanksMax);
  int joins = 0;
  read.parsed("ROPEWALK_JOIN_RUNNING", joins, "0, 1 or auto", [](const std::string& text) {
    return text == "auto" ? std::optional(2) : within(parse_number<int>, 0, 1)(text);
  });
  config.join_running = joins == 1;
  config.join_if_running = joins == 2;
  read.duration("ROPEWALK_ADMISSION_TIMEOUT", config.admission_timeout, 1ms, 8760h);
  read.integer("ROPEWALK_JOINED_FD", config.joined_fd, 0, std::numeric_limits<int>::max());
  read.parsed("ROPEWALK_LOG", config.log, "one of: error, warn, info, debug", log_level_named);
  return config;
}

Config config_from_environment() {
  Config config = parse_config([](const char* name) { return std::getenv(name); });
  config.job_key = take_job_key();
  return config;
}

std::vector<std::string> unknown_variables(const char* const* environ) {
  constexpr std::string_view kPrefix = "ROPEWALK_";
  std::vector<std::string> unknown;
  for (; environ != nullptr && *environ != nullptr; ++environ) {
    const std::string_view entry = *environ;
    if (!entry.starts_with(kPrefix)) continue;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (std::ranges::count(variable_infos(), name, &VariableInfo::name) == 0)
      unknown.emplace_back(name);
  }
  return unknown;
}

namespace {

/// How far a unit shifts: 10 for "K", "kB", "KiB"; 0 for "" and "B".
std::optional<int> shift_of(std::string_view unit) {
  constexpr std::string_view kUnits = "KMGT";
  const auto is = [](char c, char upper) { return c == upper || c == upper + ('a' - 'A'); };
  int shift = 0;
  for (size_t i = 0; i < kUnits.size() && !unit.empty() && shift == 0; ++i)
    if (is(unit.front(), kUnits[i])) shift = static_cast<int>(10 * (i + 1));
  if (shift > 0) unit.remove_prefix(1);
  if (shift > 0 && unit.size() == 2 && is(unit.front(), 'I')) unit.remove_prefix(1);
  if (unit.size() == 1 && is(unit.front(), 'B')) unit.remove_prefix(1);
  return unit.empty() ? std::optional(shift) : std::nullopt;
}

}  // namespace

std::optional<size_t> parse_size(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto shift = shift_of(text.substr(digits));
  if (!shift) return {};
  const std::string_view amount = text.substr(0, digits);
  if (amount.find('.') == amount.npos) {
    const auto number = parse_number<size_t>(amount);
    if (!number || *number > (std::numeric_limits<size_t>::max() >> *shift)) return {};
    return *number << *shift;
  }
  constexpr double kBytesMax = 1ULL << 53;  // up to here a double tells whole numbers apart
  const auto number = parse_number<double>(amount);
  if (!number) return {};
  const double bytes = *number * static_cast<double>(size_t{1} << *shift);
  if (!(bytes < kBytesMax) || bytes != std::floor(bytes)) return {};
  return static_cast<size_t>(bytes);
}

std::optional<nanoseconds> parse_duration(std::string_view text) {
  struct Unit {
    std::string_view name;
    double seconds;
  };
  constexpr Unit kUnits[] = {{"", 1}, {"s", 1}, {"us", 1e-6}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}};
  constexpr double kSecondsMax = 1e9;  // keeps nanoseconds far inside 64 bits
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto number = parse_number<double>(text.substr(0, digits));
  const auto unit = std::ranges::find(kUnits, text.substr(digits), &Unit::name);
  if (!number || unit == std::end(kUnits)) return {};
  const double seconds = *number * unit->seconds;
  if (!(seconds <= kSecondsMax)) return {};
  return nanoseconds(static_cast<int64_t>(seconds * 1e9 + 0.5));
}

}  // namespace ropewalk
