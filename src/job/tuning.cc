#include "job/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "base/log.h"
#include "base/text_file.h"
#include "ropewalk/status.h"

namespace ropewalk {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kBytesMax = size_t{1} << 44;  // of a vector
constexpr double kLeast = 1e-6, kMost = 1e15;  // of any number except 0
constexpr int kDepthMax = 16;
/// Of the saved profiles no more are read as a job starts.
constexpr size_t kSavedMax = 64;

/// Throws what `parse_tuning` throws; its callers say where.
[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "tuning profile", why,
              "let `ropewalk tune` write it again");
}

double number_of(const Json& json, const std::string& name) {
  const double value = json.at(name).get<double>();
  if (value != 0 && !(value >= kLeast && value <= kMost))
    refuse(fmt::format("{} is {}", name, json.at(name).dump()));
  return value;
}

double rate_of(const Json& json) {
  const double rate = number_of(json, "bytes_per_s");
  if (rate < 1) refuse("bytes_per_s is less than 1");
  return rate;
}

/// Four digits say all that was measured.
double rounded(double value) {
  return std::stod(fmt::format("{:.4g}", value));
}

int count_of(const Json& json, const char* name) {
  const auto value = json.at(name).get<int64_t>();
  if (value < 1 || value > 1 << 20) refuse(fmt::format("{} is {}", name, value));
  return static_cast<int>(value);
}

/// Collectives with their bytes.
using CallsSeen = std::set<std::pair<Collective, size_t>>;

/// Of a call that is in `seen` already nothing may be said.
void parse_call(const Json& json, CallsSeen& seen, std::vector<MeasuredTime>& times) {
  const auto word = json.at("collective").get<std::string>();
  const std::optional<Collective> collective = collective_named(word);
  if (!collective) refuse(fmt::format("there is no collective \"{}\"", word));
  const Json& bytes = json.at("bytes");
  if (!bytes.is_number_unsigned() || bytes > kBytesMax)
    refuse(fmt::format("bytes is {}", bytes.dump()));
  if (!seen.emplace(*collective, bytes.get<size_t>()).second)
    refuse(fmt::format("a job has {} of {} bytes twice", word, bytes.dump()));
  for (const auto& [name, us] : json.at("us").items()) {
    const std::optional<Algorithm> algorithm = algorithm_named(name);
    if (!algorithm || std::ranges::count(algorithms_for(*collective), *algorithm) == 0)
      refuse(fmt::format("{} has no algorithm \"{}\"", word, name));
    const double took_us = number_of(json.at("us"), name);
    if (took_us == 0) refuse(fmt::format("{} takes {} us", name, us.dump()));
    times.push_back({*collective, *algorithm, bytes.get<size_t>(), 1e-6 * took_us});
  }
}

TuningProfile parse(const Json& json) {
  TuningProfile profile;
  for (const Json& host : json.value("hosts", Json::array()))
    profile.hosts.push_back({host.at("name").get<std::string>(), count_of(host, "ranks"),
                             host.contains("rack") ? count_of(host, "rack") - 1 : 0});
  if (const auto link = json.find("between_hosts"); link != json.end()) {
    const double rate = rate_of(*link);
    profile.between_hosts = {
        link->at("transport").get<std::string>(),
        {1e-6 * number_of(*link, "latency_us"), 1e-6 * number_of(*link, "overhead_us"), 1 / rate}};
  }
  if (const auto racks = json.find("between_racks"); racks != json.end())
    profile.racks_s_per_byte = 1 / rate_of(*racks);
  if (const auto network = json.find("network"); network != json.end())
    profile.network = parse_network(network->dump());
  std::set<std::pair<int, std::string>> jobs_seen;
  for (const Json& job : json.at("jobs")) {
    TuningProfile::Calls& calls = profile.jobs.emplace_back();
    calls.ranks = count_of(job, "ranks");
    calls.transport = job.at("transport").get<std::string>();
    if (!jobs_seen.emplace(calls.ranks, calls.transport).second)
      refuse(fmt::format("a job of {} ranks over {} is there twice", calls.ranks, calls.transport));
    CallsSeen calls_seen;
    for (const Json& call : job.at("calls")) parse_call(call, calls_seen, calls.times);
    std::ranges::stable_sort(calls.times, {}, &MeasuredTime::bytes);
  }
  return profile;
}

/// By rank: number of its host, of the first `ranks` ranks.
std::vector<int> hosts_of_first(const TuningProfile& profile, size_t ranks) {
  std::vector<int> hosts;
  for (size_t host = 0; host < profile.hosts.size() && hosts.size() < ranks; ++host)
    hosts.insert(hosts.end(), static_cast<size_t>(profile.hosts[host].ranks),
                 static_cast<int>(host));
  hosts.resize(std::min(hosts.size(), ranks));
  return hosts;
}

const TuningProfile::Calls* calls_for(const TuningProfile& profile, const TunedJob& job) {
  const size_t ranks = job.hosts.size();
  if (!profile.hosts.empty() && hosts_of_first(profile, ranks) != job.hosts) return nullptr;
  for (const TuningProfile::Calls& calls : profile.jobs)
    if (calls.ranks == static_cast<int>(ranks) && calls.transport == job.transport) return &calls;
  return nullptr;
}

const TuningProfile::Link* link_for(const TuningProfile& profile, const TunedJob& job) {
  const auto& link = profile.between_hosts;
  assert(!job.hosts.empty());
  const bool one_host = std::ranges::count(job.hosts, job.hosts[0]) == std::ssize(job.hosts);
  return link && !one_host && link->transport == network_of(job.transport) ? &*link : nullptr;
}

void warn_of(const std::string& path, const std::string& why, const std::string& advice) {
  log(LogLevel::warn, 0, "the tuning profile {} is not used: {}; {}, or set ROPEWALK_TUNING=none",
      path, why, advice);
}

/// By rank, as `Costs` has them; nothing where some host's is not known: by its name, and of
/// several of one name only where they share a rack.
std::optional<std::vector<int>> racks_for(const TuningProfile& profile, const TunedJob& job) {
  if (profile.racks_s_per_byte == 0) return std::vector<int>();
  if (job.host_names.size() != job.hosts.size()) return {};
  std::vector<int> racks;
  for (const std::string& name : job.host_names) {
    std::set<int> found;
    for (const TuningProfile::Host& host : profile.hosts)
      if (host.name == name) found.insert(host.rack);
    if (found.size() != 1) return {};
    racks.push_back(*found.begin());
  }
  const auto differs = std::ranges::adjacent_find(racks, std::not_equal_to());
  return differs == racks.end() ? std::vector<int>() : racks;
}

std::string tuning_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/ropewalk/tuning";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/ropewalk/tuning" : "";
}

/// The newest first.
std::vector<std::string> saved_profiles() {
  std::vector<std::pair<std::filesystem::file_time_type, std::string>> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(tuning_folder(), error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().extension() == ".json")
      found.emplace_back(entry->last_write_time(ignored), entry->path().string());
  }
  std::ranges::sort(found, std::greater());
  found.resize(std::min(found.size(), kSavedMax));
  std::vector<std::string> paths;
  for (auto& [time, path] : found) paths.push_back(std::move(path));
  return paths;
}

/// The newest that has times of such a job, else the newest that knows its links.
std::string find_saved(const TunedJob& job) {
  std::string links, links_path;
  for (const std::string& path : saved_profiles()) {
    try {
      std::string text = read_tuning(path);
      const TuningProfile profile = parse_tuning(text);
      if (!why_not_for(profile, job).empty()) continue;
      const bool knows_calls = calls_for(profile, job) != nullptr;
      if (!knows_calls && !links.empty()) continue;
      links = std::move(text);
      links_path = path;
      if (knows_calls) break;
    } catch (const Error& error) {
      warn_of(path, error.failure().reason, "remove it, or run `ropewalk tune` again");
    }
  }
  if (!links.empty()) log(LogLevel::info, 0, "the saved tuning profile {} serves", links_path);
  return links;
}

}  // namespace

std::string network_of(const std::string& transport) {
  return transport.substr(transport.find('+') + 1);
}

std::string read_tuning(const std::string& path) {
  return read_text_file(path, kTuningBytesMax, "tuning profile",
                        "ROPEWALK_TUNING names a file on rank 0's host");
}

TuningProfile parse_tuning(std::string_view text) {
  if (text.size() > kTuningBytesMax)
    refuse(fmt::format("it is longer than {} bytes", kTuningBytesMax));
  // The library's dump() calls itself at each level.
  const auto limit_depth = [](int depth, Json::parse_event_t, const Json&) {
    if (depth > kDepthMax) refuse("values are nested too deeply");
    return true;
  };
  try {
    return parse(Json::parse(text, limit_depth));
  } catch (const Json::exception& error) {
    refuse(error.what());
  }
}

std::string text_of(const TuningProfile& profile) {
  Json json;
  for (const TuningProfile::Host& host : profile.hosts)
    json["hosts"].push_back({{"name", host.name}, {"ranks", host.ranks}, {"rack", host.rack + 1}});
  if (const auto& link = profile.between_hosts)
    json["between_hosts"] = {{"transport", link->transport},
                             {"latency_us", rounded(1e6 * link->cost.latency_s)},
                             {"overhead_us", rounded(1e6 * link->cost.overhead_s)},
                             {"bytes_per_s", rounded(1 / link->cost.s_per_byte)}};
  if (profile.racks_s_per_byte > 0)
    json["between_racks"] = {{"bytes_per_s", rounded(1 / profile.racks_s_per_byte)}};
  if (profile.network) json["network"] = Json::parse(text_of(*profile.network));
  json["jobs"] = Json::array();
  for (const TuningProfile::Calls& job : profile.jobs) {
    Json calls = Json::array();
    const MeasuredTime* before = nullptr;
    for (const MeasuredTime& time : job.times) {
      if (before == nullptr || before->collective != time.collective || before->bytes != time.bytes)
        calls.push_back({{"collective", name_of(time.collective)}, {"bytes", time.bytes}});
      calls.back()["us"][std::string(name_of(time.algorithm))] = rounded(1e6 * time.seconds);
      before = &time;
    }
    json["jobs"].push_back({{"ranks", job.ranks}, {"transport", job.transport}, {"calls", calls}});
  }
  return json.dump(1) + "\n";
}

std::string why_not_for(const TuningProfile& profile, const TunedJob& job) {
  for (const std::string& name : job.host_names)
    if (!profile.hosts.empty() &&
        std::ranges::find(profile.hosts, name, &TuningProfile::Host::name) == profile.hosts.end())
      return fmt::format("it was measured on other hosts than {}", name);
  if (link_for(profile, job) != nullptr || calls_for(profile, job) != nullptr) return {};
  return fmt::format("it has no job of {} ranks so placed over {}", job.hosts.size(),
                     job.transport);
}

void apply_tuning(const TuningProfile& profile, const TunedJob& job, Costs& costs) {
  if (const TuningProfile::Link* link = link_for(profile, job)) {
    costs.model.inter = link->cost;
    costs.inter = CostSource::profile;
    const auto racks = racks_for(profile, job);
    costs.racks = racks.value_or(std::vector<int>());
    costs.model.racks_s_per_byte = costs.racks.empty() ? 0 : profile.racks_s_per_byte;
    // Somewhere there is a slow link: every ring waits for it.
    LinkCost& between = costs.model.inter;
    if (!racks) between.s_per_byte = std::max(between.s_per_byte, profile.racks_s_per_byte);
  }
  if (const TuningProfile::Calls* calls = calls_for(profile, job)) {
    costs.times = calls->times;
    costs.calls = CostSource::profile;
  }
}

std::string saved_tuning_path(const std::vector<TuningProfile::Host>& hosts) {
  const std::string folder = tuning_folder();
  if (folder.empty()) return {};
  std::string name;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const TuningProfile::Host& host : hosts) {
    const std::string text = fmt::format("{}:{}", host.name, host.ranks);
    for (const char c : text + "\n") hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    for (const char c : text) name += std::isalnum(static_cast<uint8_t>(c)) || c == '-' ? c : '_';
    name += '+';
  }
  return fmt::format("{}/{}{:016x}.json", folder, name.substr(0, 64), hash);
}

bool may_have_tuning(const std::string& setting) {
  if (!setting.empty()) return setting != kNoTuning;
  std::error_code ignored;
  const std::string folder = tuning_folder();
  return !folder.empty() && std::filesystem::exists(folder, ignored);
}

std::string find_tuning(const std::string& setting, const TunedJob& job) {
  if (setting == kNoTuning) return {};
  if (setting.empty()) return find_saved(job);
  try {
    std::string text = read_tuning(setting);
    const std::string why = why_not_for(parse_tuning(text), job);
    if (why.empty()) return text;
    warn_of(setting, why, "measure with `ropewalk tune` on these hosts");
  } catch (const Error& error) {
    warn_of(setting, error.failure().reason, error.failure().advice);
  }
  return {};
}

}  // namespace ropewalk
