#include "job/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/start_thread.h"
#include "bootstrap/discovery.h"
#include "job/tuning.h"
#include "topology/cgroup.h"
#include "topology/cpu_share.h"

namespace ropewalk {
namespace {

/// Between two looks at what peers still want of a rank that leaves. Where more than kFewPerCpu
/// ranks share a CPU, some of which still work, the longest pause grows with their number.
constexpr std::chrono::milliseconds kLeavePauseMin{1}, kLeavePauseMax{16};
constexpr double kFewPerCpu = 16;

}  // namespace

Config merged_config(const Options& options) {
  Config config = config_from_environment();
  visit_settings(options, config, [](const auto& option, auto& setting) {
    if (option) setting = *option;
  });
  if (options.join_running) config.join_if_running = false;
  const auto transport = transport_named(config.transport);
  if (!transport)
    throw Error(ErrorCode::unavailable, "communicator",
                fmt::format("there is no transport \"{}\"", config.transport),
                "use one of: " + transport_words_text());
  config.transport = *transport;
  if (config.quorum_min < 1)
    throw Error(ErrorCode::invalid_argument, "communicator",
                fmt::format("quorum_min is {}", config.quorum_min), "give 1 or more");
  return config;
}

Job::Job(const Options& options, std::shared_ptr<bootstrap::Predecessor> predecessor)
    : config_(merged_config(options)) {
  set_log_level(config_.log);
  for (const std::string& name : unknown_variables(environ))
    log(LogLevel::warn, -1, "{} is no variable that Ropewalk knows; see `ropewalk env`", name);
  JobIdentity identity =
      find_identity(options, config_, [](const char* name) { return std::getenv(name); });
  const bootstrap::Discovery until_all_have_joined = bootstrap::discover(identity, config_);
  TransportInfos infos;
  if (identity.size > 1) offers_ = find_transports(config_, identity.rank, identity.size);
  for (const TransportOffer& offer : offers_) {
    for (const auto& [level, text] : offer.notes) log(level, identity.rank, "{}", text);
    if (!offer.info.empty()) infos.emplace(offer.provider->name, offer.info);
  }
  if (identity.rank == 0 && identity.size > 1) {
    std::string costs;
    if (config_.probe) costs += kProbe;
    if (ropewalk::may_have_tuning(config_.tuning)) costs += kTuning;
    if (!config_.network.empty()) costs += kNetwork;
    if (!costs.empty()) infos.emplace(kCosts, costs);
  }
  coordinator_ = !identity.coordinator.empty()
                     ? identity.coordinator
                     : options.coordinator.value_or(config_.coordinator.value_or(std::string()));
  world_ = World::join(identity, config_, std::move(infos), std::move(predecessor),
                       until_all_have_joined.ended_ranks);
  set_up([this] {
    join_world();
    make_transports(world_->records());
  });
}

void Job::leave(const CallsMade& calls, const std::function<bool()>& progress) {
  if (size() == 1) return;
  if (monitor().failure() != nullptr) {
    world_->leave(calls);
  } else {
    std::promise<void> ended;
    const auto left = ended.get_future();
    std::thread leaver;
    try {
      leaver = start_thread("leave", "ropewalk-leave", [&] {
        world_->leave(calls);
        ended.set_value();
      });
    } catch (const Error&) {  // no thread is to be had: then without progress
      world_->leave(calls);
      ended.set_value();
    }
    const auto crowd = static_cast<int>(std::max(1.0, ranks_per_cpu_ / kFewPerCpu));
    auto pause = kLeavePauseMin;
    while (left.wait_for(pause) != std::future_status::ready)
      pause = progress() ? kLeavePauseMin : std::min(2 * pause, crowd * kLeavePauseMax);
    if (leaver.joinable()) leaver.join();
  }
}

/// Of what this rank has offered; each is made once.
std::unique_ptr<Transport> Job::make(const TransportProvider& provider, const PeerTable& ranks) {
  std::vector<std::string> infos;
  infos.reserve(ranks.size());
  for (const PeerRecord& record : ranks)
    infos.emplace_back(provider.maps && !is_local(record.rank) ? "" : info_of(record, provider));
  const auto offer = std::ranges::find(offers_, &provider, &TransportOffer::provider);
  assert(offer != offers_.end() && offer->make);
  return offer->make(infos, world_->sockets());
}

/// A peer whose memory is gone has failed already: then it, or its neighbour, says why.
std::unique_ptr<Transport> Job::map_neighbours(const TransportProvider& provider,
                                               const PeerTable& ranks) {
  constexpr auto kPropagationMax = std::chrono::seconds(1);
  try {
    return make(provider, ranks);
  } catch (const Error&) {
    const auto deadline = std::chrono::steady_clock::now() + kPropagationMax;
    while (monitor().failure() == nullptr && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (const Failure* failure = monitor().failure()) throw Error(*failure);
    throw;
  }
}

std::optional<int64_t> Job::local_process(int peer) const {
  if (peer < 0 || peer >= size() || !is_local(peer)) return {};
  return world_->record(peer).pid;
}

std::vector<std::string> Job::host_names() const {
  std::vector<std::string> names;
  for (int peer = 0; peer < size(); ++peer) names.push_back(world_->record(peer).host_name);
  return names;
}

Placement Job::placement() const {
  std::vector<int> all(static_cast<size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  return placement(all);
}

Placement Job::placement(const std::vector<int>& ranks) const {
  Placement all{.hosts = {}, .rows = {}, .ranks_per_cpu = ranks_per_cpu_};
  std::vector<Locality> localities;
  for (const int rank : ranks) {
    all.hosts.push_back(hosts_[static_cast<size_t>(rank)]);
    localities.push_back(localities_[static_cast<size_t>(rank)]);
  }
  if (is_one_host_with_rows(all.hosts)) all.rows = rows_of(localities);
  return all;
}

bool Job::rank_zero_says(std::string_view word) const {
  const TransportInfos& infos = world_->record(0).transport_infos;
  const auto said = infos.find(kCosts);
  return said != infos.end() && said->second.find(word) != std::string::npos;
}

/// Finds out who is where.
void Job::join_world() {
  std::map<std::string_view, int> host_numbers;
  struct OnHost {
    int ranks = 0;
    std::map<std::string_view, std::vector<int>> lists;  // of CPUs that ranks may use, by texts
    std::set<int> cpus;                                  // all of them
  };
  std::vector<OnHost> on_hosts;
  const PeerTable& ranks = world_->records();
  const PeerRecord* before = nullptr;
  for (const PeerRecord& record : ranks) {
    // Most are.
    const bool is_like_before =
        before != nullptr && record.host_id == before->host_id && record.cpus == before->cpus;
    before = &record;
    hosts_.push_back(
        is_like_before
            ? hosts_.back()
            : host_numbers.try_emplace(record.host_id, host_numbers.size()).first->second);
    localities_.push_back(record.locality);
    on_hosts.resize(host_numbers.size());
    OnHost& host = on_hosts[static_cast<size_t>(hosts_.back())];
    ++host.ranks;
    if (record.transport != config_.transport)
      throw Error(ErrorCode::mismatch, "communicator",
                  fmt::format("rank {} wants transport {}, rank {} wants {}", rank(),
                              config_.transport, record.rank, record.transport),
                  "set ROPEWALK_TRANSPORT alike on every rank");
    if (is_like_before) continue;
    if (const auto [list, is_new] = host.lists.try_emplace(record.cpus); is_new) {
      list->second = parse_cpu_list(record.cpus);
      host.cpus.insert(list->second.begin(), list->second.end());
    }
  }
  for (const OnHost& host : on_hosts)
    ranks_per_cpu_ = std::max(ranks_per_cpu_, static_cast<double>(host.ranks) /
                                                  std::max<double>(1, std::ssize(host.cpus)));
  const OnHost& own = on_hosts[static_cast<size_t>(hosts_[static_cast<size_t>(rank())])];
  const bool are_few = own.ranks <= std::ssize(own.cpus);
  std::vector<std::vector<int>> local_cpus;
  local_size_ = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (!is_local(peer)) continue;
    if (peer == rank()) local_rank_ = local_size_;
    ++local_size_;
    if (are_few) local_cpus.push_back(own.lists.at(ranks[static_cast<size_t>(peer)].cpus));
  }
  const auto quota = cgroup_cpu_quota();
  shares_cpus_ = !are_few || !can_have_own_cpus(local_cpus) || (quota && *quota < local_size_);
}

void Job::make_transports(const PeerTable& ranks) {
  choice_ = choose_transports(config_.transport, config_.require, ranks, config_.secure,
                              config_.tcp_streams);
  if (rank() == 0 && size() > 1)
    log(choice_.is_fallback ? LogLevel::warn : LogLevel::info, 0, "{} ranks on {} hosts: {}{}; {}",
        size(), *std::max_element(hosts_.begin(), hosts_.end()) + 1, text_of(choice_),
        config_.secure && choice_.network() != nullptr ? ", sealed" : "", choice_.reason);
  const bool has_neighbours = choice_.maps() && local_size_ > 1;
  if (has_neighbours) within_ = map_neighbours(*choice_.within, ranks);
  if (const TransportProvider* network = choice_.network()) between_ = make(*network, ranks);
  offers_.clear();
  for (const auto* transport : {&within_, &between_})
    if (*transport != nullptr) transports_.push_back(transport->get());
  check_slices();
  for (int peer = 0; peer < size(); ++peer)
    route_.push_back(has_neighbours && !is_local(peer) ? 1 : 0);
}

void Job::check_slices() const {
  for (const Transport* transport : transports_) {
    const size_t most = transport->capabilities().op_bytes_max;
    if (config_.slice_bytes <= most) continue;
    const Failure failure{
        ErrorCode::invalid_argument, "communicator",
        fmt::format("ROPEWALK_SLICE_BYTES is {}, but on rank {} {} moves at most {} bytes at once",
                    config_.slice_bytes, rank(), transport->name(), most),
        fmt::format("set ROPEWALK_SLICE_BYTES={} on every rank", most), rank()};
    monitor().report(failure);
    throw Error(failure);
  }
}

}  // namespace ropewalk
