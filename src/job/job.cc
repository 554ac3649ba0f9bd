#include "job/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <thread>

#include "base/log.h"
#include "base/start_thread.h"
#include "job/options.h"
#include "topology/cgroup.h"
#include "topology/cpu_share.h"
#include "topology/topology.h"
#include "transport_choice/rank_info.h"
#include "transport_choice/rdma.h"
#include "transport_choice/ucx.h"
#include "transports/tcp/tcp_transport.h"

namespace ropewalk {
namespace {

/// Options win over the environment.
Config merge(Config config, const Options& options) {
  visit_settings(options, config, [](const auto& option, auto& setting) {
    if (option) setting = *option;
  });
  const auto transport = transport_named(config.transport);
  if (!transport)
    throw Error(ErrorCode::unavailable, "communicator",
                fmt::format("there is no transport \"{}\"", config.transport),
                fmt::format("use {}", kTransportNamesText));
  config.transport = *transport;
  return config;
}

}  // namespace

Job::Job(const Options& options) : config_(merge(config_from_environment(), options)) {
  set_log_level(config_.log);
  for (const std::string& name : unknown_variables(environ))
    log(LogLevel::warn, -1, "{} is no variable that Ropewalk knows; see `ropewalk env`", name);
  const JobIdentity identity =
      find_identity(options, config_, [](const char* name) { return std::getenv(name); });
  const auto wants = [this](const char* name) {
    return config_.transport == name || config_.transport == "auto";
  };
  RankInfo info{config_.transport, allowed_cpu_list(), ""};
  if (identity.size > 1 && wants("shm")) {
    shm_ = std::make_unique<ShmTransport>(identity.rank, identity.size);
    info.mailbox = shm_->info();
  }
  if (identity.size > 1 && wants("verbs")) {
    rdma_ = std::make_unique<Rdma>(config_);
    info.ports = rdma_->ports();
    info.no_ports = fmt::format("{}", fmt::join(rdma_->why_not(), ", and "));
    const LogLevel level = info.ports.empty() ? LogLevel::debug : LogLevel::info;
    log(level, identity.rank, "RDMA ports: {}", verbs::port_list_text(info.ports));
    for (const std::string& why : rdma_->why_not()) log(level, identity.rank, "{}", why);
  }
  // To look opens devices, so only where verbs will not do.
  if (identity.size > 1 && wants("ucx") && info.ports.empty()) {
    UcxReport report = look_at_ucx();
    info.ucx = std::move(report.version);
    info.fabrics = std::move(report.fabrics);
    if (config_.transport == "ucx" && report.shares_memory) share_through_ucx(identity, info);
    if (info.ucx.empty())
      log(config_.transport == "ucx" ? LogLevel::warn : LogLevel::debug, identity.rank,
          "UCX cannot be used: {}", report.why_not);
    else
      log(LogLevel::debug, identity.rank, "UCX {}: {}", info.ucx, fmt::join(info.fabrics, ", "));
  }
  world_ = World::join(identity, config_, info.text());
  make_transports(meet_others());
}

/// Without it ranks of this host talk by UCX's messages, if UCX_TLS has another wire for them.
void Job::share_through_ucx(const JobIdentity& identity, RankInfo& info) try {
  shm_ = std::make_unique<ShmTransport>(identity.rank, identity.size, make_ucx_sharing());
  info.mailbox = shm_->info();
} catch (const Error& error) {
  log(LogLevel::warn, identity.rank, "no shared memory through UCX: {}", error.failure().text());
}

void Job::report_exception() {
  if (size() > 1 && std::uncaught_exceptions() > exceptions_)
    monitor().report({ErrorCode::aborted, "communicator",
                      fmt::format("rank {} left because of an exception", rank()),
                      fmt::format("see the output of rank {}", rank()), rank(), rank()});
}

void Job::leave(const CallsMade& calls, const std::function<void()>& progress) {
  if (size() == 1) return;
  if (monitor().failure() == nullptr) {
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
    while (left.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) progress();
    if (leaver.joinable()) leaver.join();
  }
  const Failure* failure = monitor().failure();
  if (failure != nullptr && failure->code == ErrorCode::mismatch) throw Error(*failure);
}

/// A peer whose mailbox is gone has failed already: then it, or its neighbour, says why.
void Job::open_mailboxes(const std::vector<std::string>& mailboxes) {
  constexpr auto kNewsTravel = std::chrono::seconds(1);
  try {
    shm_->set_peers(mailboxes);
  } catch (const Error&) {
    const auto deadline = std::chrono::steady_clock::now() + kNewsTravel;
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

std::string Job::transport_names() const {
  std::string names;
  for (const Transport* transport : transports_)
    names += (names.empty() ? "" : "+") + std::string(transport->name());
  return names.empty() ? "self" : names;
}

/// Finds out who is where; what each rank said of itself, by rank.
std::vector<RankInfo> Job::meet_others() {
  std::map<std::string, int> host_numbers;
  std::vector<RankInfo> infos;
  std::vector<std::vector<int>> local_cpus;
  for (int peer = 0; peer < size(); ++peer) {
    const PeerRecord& record = world_->record(peer);
    hosts_.push_back(host_numbers.try_emplace(record.host_id, static_cast<int>(host_numbers.size()))
                         .first->second);
    infos.push_back(RankInfo::parse(record.transport_info));
    if (infos.back().transport != config_.transport)
      throw Error(ErrorCode::mismatch, "communicator",
                  fmt::format("rank {} wants transport {}, rank {} wants {}", rank(),
                              config_.transport, peer, infos.back().transport),
                  "set ROPEWALK_TRANSPORT alike on every rank");
  }
  local_size_ = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (!is_local(peer)) continue;
    if (peer == rank()) local_rank_ = local_size_;
    ++local_size_;
    local_cpus.push_back(infos[static_cast<size_t>(peer)].cpus);
  }
  const auto quota = cgroup_cpu_quota();
  shares_cpus_ = !can_have_own_cpus(local_cpus) || (quota && *quota < local_size_);
  return infos;
}

void Job::make_transports(const std::vector<RankInfo>& infos) {
  std::vector<RankTransports> reports;
  for (int peer = 0; peer < size(); ++peer) {
    const auto at = static_cast<size_t>(peer);
    reports.push_back({infos[at], world_->record(peer).host_name, hosts_[at]});
  }
  choice_ = choose_transports(config_.transport, config_.require, reports);
  if (rank() == 0 && size() > 1)
    log(choice_.is_fallback ? LogLevel::warn : LogLevel::info, 0, "{} ranks on {} hosts: {}; {}",
        size(), *std::max_element(hosts_.begin(), hosts_.end()) + 1, text_of(choice_),
        choice_.reason);
  const bool use_shm = choice_.maps() && local_size_ > 1;
  if (use_shm) {
    std::vector<std::string> mailboxes(infos.size());
    for (int peer = 0; peer < size(); ++peer)
      if (is_local(peer))
        mailboxes[static_cast<size_t>(peer)] = infos[static_cast<size_t>(peer)].mailbox;
    open_mailboxes(mailboxes);
    transports_.push_back(shm_.get());
  } else {
    shm_.reset();
  }
  if (choice_.uses(TransportKind::verbs)) {
    std::vector<std::vector<verbs::PortInfo>> ports;
    for (const RankInfo& info : infos) ports.push_back(info.ports);
    network_ = rdma_->make_transport(rank(), world_->sockets(), ports);
  } else if (choice_.uses(TransportKind::ucx)) {
    network_ = make_ucx_transport(rank(), size(), world_->sockets());
  } else if (choice_.uses(TransportKind::tcp)) {
    network_ =
        std::make_unique<TcpTransport>(rank(), size(), world_->sockets(), config_.tcp_streams);
  }
  if (network_) transports_.push_back(network_.get());
  check_slices();
  if (!choice_.uses(TransportKind::verbs)) rdma_.reset();
  for (int peer = 0; peer < size(); ++peer) route_.push_back(use_shm && !is_local(peer) ? 1 : 0);
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
