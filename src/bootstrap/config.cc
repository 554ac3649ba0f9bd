#include "bootstrap/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "bootstrap/net.h"
#include "fabric/port_filter.h"
#include "ropewalk/status.h"
#include "ropewalk/types.h"
#include "transport_choice/provider.h"

namespace ropewalk {
namespace {

using std::chrono::nanoseconds;

constexpr size_t kJobKeyBytesMax = 4096;
constexpr long kRanksMax = 1 << 20;

struct TransportNames {
  std::string_view name, other;
};
#define ROPEWALK_NAMES(name, other_name) {#name, other_name},
constexpr TransportNames kTransports[] = {{"auto", ""}, ROPEWALK_TRANSPORTS(ROPEWALK_NAMES)};
#undef ROPEWALK_NAMES

/// Reads variables one by one; every bad value is an Error that names variable, value and rule.
class Reader {
 public:
  explicit Reader(const std::function<const char*(const char*)>& get) : get_(get) {}

  /// A variable that is set but empty counts as unset.
  std::optional<std::string> text(const char* name) const {
    const char* value = get_(name);
    if (value == nullptr || *value == '\0') return {};
    return std::string(value);
  }

  std::optional<int> integer(const char* name, long low, long high) const {
    const auto value = text(name);
    if (!value) return {};
    long number = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, number);
    if (error != std::errc() || stop != end || number < low || number > high)
      bad(name, *value, fmt::format("a whole number from {} to {}", low, high));
    return static_cast<int>(number);
  }

  std::string choice(const char* name, const std::vector<std::string_view>& allowed,
                     std::string otherwise) const {
    const auto value = text(name);
    if (!value) return otherwise;
    if (std::find(allowed.begin(), allowed.end(), *value) == allowed.end())
      bad(name, *value, fmt::format("one of: {}", fmt::join(allowed, ", ")));
    return *value;
  }

  std::string transport(const char* name, std::string otherwise) const {
    const auto value = text(name);
    if (!value) return otherwise;
    const auto named = transport_named(*value);
    if (!named) bad(name, *value, "one of: " + transport_words_text());
    return std::string(*named);
  }

  nanoseconds duration(const char* name, nanoseconds low, nanoseconds high,
                       nanoseconds otherwise) const {
    const auto value = text(name);
    if (!value) return otherwise;
    const auto parsed = parse_duration(*value);
    if (!parsed || *parsed < low || *parsed > high)
      bad(name, *value,
          fmt::format("a time from {} to {} s: \"1.5\" (seconds), \"200ms\", \"3s\", \"2m\"",
                      std::chrono::duration<double>(low).count(),
                      std::chrono::duration<double>(high).count()));
    return *parsed;
  }

  size_t size(const char* name, size_t low, size_t high, size_t otherwise) const {
    const auto value = text(name);
    if (!value) return otherwise;
    const auto parsed = parse_size(*value);
    if (!parsed || *parsed < low || *parsed > high)
      bad(name, *value, fmt::format("bytes from {} to {}: \"4096\", \"64K\", \"1M\"", low, high));
    return *parsed;
  }

  [[noreturn]] static void bad(const char* name, std::string_view value, std::string allowed) {
    throw Error(ErrorCode::invalid_argument, "environment",
                fmt::format("{}=\"{}\" is not allowed; it must be {}", name, value, allowed),
                fmt::format("correct or unset {}", name));
  }

 private:
  const std::function<const char*(const char*)>& get_;
};

LogLevel level_named(std::string_view word) {
  if (word == "error") return LogLevel::error;
  if (word == "info") return LogLevel::info;
  if (word == "debug") return LogLevel::debug;
  return LogLevel::warn;
}

void parse_ib(const Reader& read, Config& config) {
  constexpr int kPkeyIndexMax = 65535;
  config.ib_hca = read.text("ROPEWALK_IB_HCA").value_or("");
  if (!verbs::PortFilter::parse(config.ib_hca))
    Reader::bad("ROPEWALK_IB_HCA", config.ib_hca,
                "a list of RDMA devices: mlx5_0, mlx5_0:1,mlx5_1, =mlx5_1 or ^mlx5_3");
  config.ib_gid_index = read.integer("ROPEWALK_IB_GID_INDEX", 0, 255);
  const auto number = [&read](const char* name, long low, long high, int& into) {
    into = read.integer(name, low, high).value_or(into);
  };
  number("ROPEWALK_IB_TC", 0, 255, config.ib_traffic_class);
  number("ROPEWALK_IB_SL", 0, 15, config.ib_service_level);
  number("ROPEWALK_IB_PKEY", 0, kPkeyIndexMax, config.ib_pkey_index);
  number("ROPEWALK_IB_TIMEOUT", 1, 22, config.ib_timeout);
  number("ROPEWALK_IB_RETRY", 0, 7, config.ib_retry);
  number("ROPEWALK_IB_LANES", 1, 8, config.ib_lanes);
  config.ib_mtu = std::stoi(read.choice("ROPEWALK_IB_MTU", {"256", "512", "1024", "2048", "4096"},
                                        std::to_string(config.ib_mtu)));
}

std::vector<std::string_view> algorithm_names() {
  std::vector<std::string_view> names;
  for (int i = 0; i < kAlgorithms; ++i) names.push_back(name_of(static_cast<Algorithm>(i)));
  return names;
}

}  // namespace

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

const std::vector<VariableInfo>& variable_infos() {
  static const std::string algorithm_list = fmt::format("{}", fmt::join(algorithm_names(), ", "));
  static const std::string transport_help = transport_words_text() + "; the same on every rank";
  static const std::vector<VariableInfo> infos = {
      {"ROPEWALK_RANK", "from the launcher", "this process's rank, 0 to size-1"},
      {"ROPEWALK_SIZE", "from the launcher", "how many ranks the job has"},
      {"ROPEWALK_LOCAL_RANK", "from the launcher",
       "set by `ropewalk run` for the program's own use: the rank among those of its host"},
      {"ROPEWALK_LOCAL_SIZE", "from the launcher",
       "set by `ropewalk run` for the program's own use: how many ranks its host has"},
      {"ROPEWALK_COORDINATOR", "from the launcher", "host:port at which rank 0 listens"},
      {"ROPEWALK_COORDINATOR_FD", "none", "rank 0: an inherited socket that listens there already"},
      {"ROPEWALK_JOB_KEY", "a fixed public key",
       "the job's secret, the same on every rank; without it anyone who reaches rank 0 can join"},
      {"ROPEWALK_TRANSPORT", "auto", transport_help},
      {"ROPEWALK_REQUIRE", "none", "rdma, shm, tcp: an error instead of a slower transport"},
      {"ROPEWALK_ALGORITHM", "auto", algorithm_list},
      {"ROPEWALK_SOCKET_IFNAME", "all that are up",
       "interface name or prefix whose addresses other ranks may dial"},
      {"ROPEWALK_TIMEOUT", "30", "longest wait: seconds, or 200ms, 3s, 2m"},
      {"ROPEWALK_LINK_TIMEOUT", "0.8",
       "a link on which nothing is acknowledged for so long is cut: seconds, or 200ms, 3s, 2m"},
      {"ROPEWALK_TCP_STREAMS", "1", "sockets per pair of ranks, 1 to 16"},
      {"ROPEWALK_IB_HCA", "all that are usable",
       "RDMA devices by name or prefix: mlx5_0,mlx5_1 or mlx5_0:1 (port 1); =mlx5_1 for exactly "
       "this name; ^mlx5_3 for all but these"},
      {"ROPEWALK_IB_GID_INDEX", "chosen",
       "row of the ports' GID table, 0 to 255; see `ropewalk doctor`"},
      {"ROPEWALK_IB_TC", "0", "RoCE: traffic class, 0 to 255; DSCP is its upper six bits"},
      {"ROPEWALK_IB_SL", "0", "InfiniBand: service level; RoCE: priority; 0 to 15"},
      {"ROPEWALK_IB_PKEY", "0", "row of the ports' table of partition keys"},
      {"ROPEWALK_IB_TIMEOUT", "15",
       "1 to 22: a packet is sent again when no answer came for 4.096 us * 2^this: 134 ms"},
      {"ROPEWALK_IB_RETRY", "4",
       "0 to 7: how often it is sent again. A peer that answers nothing is lost after (this + 1) * "
       "4.096 us * 2^ROPEWALK_IB_TIMEOUT: 0.7 s; some adapters take up to four times as long"},
      {"ROPEWALK_IB_LANES", "one per port", "queue pairs per peer, 1 to 8; the same on every rank"},
      {"ROPEWALK_IB_MTU", "4096", "longest packet: 256, 512, 1024, 2048 or 4096 bytes"},
      {"ROPEWALK_PROBE", "1",
       "0 or 1: measure the links between hosts as the job starts, at most 50 ms; rank 0's counts"},
      {"ROPEWALK_SLICE_BYTES", "1M", "largest slice of a message; the same on every rank"},
      {"ROPEWALK_PROGRESS_THREAD", "1", "0 or 1: drive started operations in the background"},
      {"ROPEWALK_PROGRESS_CPU", "none", "bind the progress thread to this CPU"},
      {"ROPEWALK_LOG", "warn", "error, warn, info, debug"},
      {"ROPEWALK_TORCH_CACHE", "~/.cache/ropewalk",
       "folder for the PyTorch backend, which is compiled when it is first used"},
      {"ROPEWALK_SEEDS", "all", "for Ropewalk's own tests: seeds of the simulation, 17 or 1:100"},
  };
  return infos;
}

Config parse_config(const std::function<const char*(const char*)>& get) {
  const Reader read(get);
  Config config;
  config.rank = read.integer("ROPEWALK_RANK", 0, kRanksMax - 1);
  config.size = read.integer("ROPEWALK_SIZE", 1, kRanksMax);
  config.coordinator = read.text("ROPEWALK_COORDINATOR");
  if (config.coordinator && !bootstrap::parse_endpoint(*config.coordinator))
    Reader::bad("ROPEWALK_COORDINATOR", *config.coordinator,
                "host:port, 1.2.3.4:port or [v6-address]:port with a port from 1 to 65535");
  config.coordinator_fd =
      read.integer("ROPEWALK_COORDINATOR_FD", 0, std::numeric_limits<int>::max());
  config.job_key = read.text("ROPEWALK_JOB_KEY").value_or("");
  if (config.job_key.size() > kJobKeyBytesMax)
    Reader::bad("ROPEWALK_JOB_KEY", "(hidden)",
                fmt::format("at most {} bytes long", kJobKeyBytesMax));
  config.transport = read.transport("ROPEWALK_TRANSPORT", config.transport);
  config.require = read.choice("ROPEWALK_REQUIRE", {"rdma", "shm", "tcp"}, config.require);
  config.algorithm = read.choice("ROPEWALK_ALGORITHM", algorithm_names(), config.algorithm);
  config.socket_ifname = read.text("ROPEWALK_SOCKET_IFNAME").value_or("");
  using namespace std::chrono_literals;
  config.timeout = read.duration("ROPEWALK_TIMEOUT", 1ms, 24h, config.timeout);
  config.link_timeout = read.duration("ROPEWALK_LINK_TIMEOUT", 10ms, 1h, config.link_timeout);
  config.tcp_streams = read.integer("ROPEWALK_TCP_STREAMS", 1, 16).value_or(config.tcp_streams);
  parse_ib(read, config);
  config.slice_bytes =
      read.size("ROPEWALK_SLICE_BYTES", size_t{1} << 10, size_t{1} << 30, config.slice_bytes);
  const auto flag = [&read](const char* name, bool& into) {
    into = read.integer(name, 0, 1).value_or(into ? 1 : 0) == 1;
  };
  flag("ROPEWALK_PROBE", config.probe);
  flag("ROPEWALK_PROGRESS_THREAD", config.progress_thread);
  config.progress_cpu = read.integer("ROPEWALK_PROGRESS_CPU", 0, 65535);
  config.log = level_named(read.choice("ROPEWALK_LOG", {"error", "warn", "info", "debug"}, "warn"));
  return config;
}

Config config_from_environment() {
  return parse_config([](const char* name) { return std::getenv(name); });
}

std::vector<std::string> unknown_variables(const char* const* environ) {
  constexpr std::string_view kPrefix = "ROPEWALK_";
  std::vector<std::string> unknown;
  for (; environ != nullptr && *environ != nullptr; ++environ) {
    const std::string_view entry = *environ;
    if (!entry.starts_with(kPrefix)) continue;
    const std::string_view name = entry.substr(0, entry.find('='));
    const auto& infos = variable_infos();
    if (std::none_of(infos.begin(), infos.end(), [&](const auto& i) { return i.name == name; }))
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
  const char* end = text.data() + digits;
  if (size_t number = 0; text.substr(0, digits).find('.') == text.npos) {
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end) return {};
    if (number > (std::numeric_limits<size_t>::max() >> *shift)) return {};
    return number << *shift;
  }
  constexpr double kBytesMax = 1ULL << 53;  // up to here a double tells whole numbers apart
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || stop != end) return {};
  number *= static_cast<double>(size_t{1} << *shift);
  if (!(number < kBytesMax) || number != std::floor(number)) return {};
  return static_cast<size_t>(number);
}

std::optional<nanoseconds> parse_duration(std::string_view text) {
  constexpr double kSecondsMax = 1e9;  // keeps nanoseconds far inside 64 bits
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  const auto [stop, error] =
      std::from_chars(text.data(), text.data() + digits, number, std::chars_format::fixed);
  if (error != std::errc() || stop != text.data() + digits) return {};
  const std::string_view unit = text.substr(digits);
  double seconds = 0;
  if (unit.empty() || unit == "s")
    seconds = 1;
  else if (unit == "us")
    seconds = 1e-6;
  else if (unit == "ms")
    seconds = 1e-3;
  else if (unit == "m")
    seconds = 60;
  else if (unit == "h")
    seconds = 3600;
  else
    return {};
  seconds *= number;
  if (!(seconds <= kSecondsMax)) return {};
  return nanoseconds(static_cast<int64_t>(seconds * 1e9 + 0.5));
}

}  // namespace ropewalk
