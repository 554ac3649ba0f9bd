#include "job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <thread>

#include "base/log.h"
#include "rank_info.h"
#include "topology/cgroup.h"
#include "topology/cpu_share.h"
#include "topology/topology.h"
#include "transports/tcp/tcp_transport.h"

namespace ropewalk {
namespace {

/// Options win over the environment.
Knobs merge(Knobs knobs, const Options& options) {
  if (options.key) knobs.job_key = *options.key;
  if (options.transport) knobs.transport = *options.transport;
  if (options.timeout) knobs.timeout = *options.timeout;
  if (options.progress_thread) knobs.progress_thread = *options.progress_thread;
  if (options.progress_cpu) knobs.progress_cpu = options.progress_cpu;
  if (knobs.transport != "auto" && knobs.transport != "shm" && knobs.transport != "tcp")
    throw Error(ErrorCode::unavailable, "communicator",
                fmt::format("there is no transport \"{}\"", knobs.transport),
                "use auto, shm or tcp");
  if (knobs.require == "rdma")
    throw Error(ErrorCode::unavailable, "communicator",
                "ROPEWALK_REQUIRE=rdma, but this build has no RDMA transport",
                "unset ROPEWALK_REQUIRE to run over shared memory and TCP");
  return knobs;
}

}  // namespace

Job::Job(const Options& options) : knobs_(merge(knobs_from_environment(), options)) {
  set_log_level(knobs_.log);
  for (const std::string& name : unknown_knobs(environ))
    log(LogLevel::warn, -1, "{} is no variable that Ropewalk knows; see `ropewalk env`", name);
  const Identity identity =
      find_identity(options, knobs_, [](const char* name) { return std::getenv(name); });
  RankInfo info{knobs_.transport, allowed_cpu_list(), ""};
  if (identity.size > 1 && knobs_.transport != "tcp") {
    shm_ = std::make_unique<ShmTransport>(identity.rank, identity.size);
    info.mailbox = shm_->info();
  }
  world_ = World::join(identity, knobs_, info.text());
  choose_transports();
}

void Job::leave(const std::function<void()>& progress) {
  if (size() == 1) return;
  if (monitor().failure() == nullptr && std::uncaught_exceptions() > exceptions_)
    monitor().report({ErrorCode::aborted, "communicator",
                      fmt::format("rank {} left because of an exception", rank()),
                      fmt::format("see the output of rank {}", rank()), rank(), rank()});
  if (monitor().failure() != nullptr) return;
  auto left = std::async(std::launch::async, [this] { world_->leave(); });
  while (left.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) progress();
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

std::string Job::transport_names() const {
  std::string names;
  for (const Transport* transport : transports_)
    names += (names.empty() ? "" : "+") + std::string(transport->name());
  return names.empty() ? "self" : names;
}

void Job::choose_transports() {
  std::map<std::string, int> host_numbers;
  std::vector<std::string> mailboxes(static_cast<size_t>(size()));
  std::vector<std::vector<int>> local_cpus;
  const Card& own = world_->card(rank());
  local_size_ = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const Card& card = world_->card(peer);
    hosts_.push_back(host_numbers.try_emplace(card.host_id, static_cast<int>(host_numbers.size()))
                         .first->second);
    RankInfo info = RankInfo::parse(card.transport_info);
    if (info.transport != knobs_.transport)
      throw Error(ErrorCode::mismatch, "communicator",
                  fmt::format("rank {} wants transport {}, rank {} wants {}", rank(),
                              knobs_.transport, peer, info.transport),
                  "set ROPEWALK_TRANSPORT alike on every rank");
    if (card.host_id != own.host_id) continue;
    if (peer == rank()) local_rank_ = local_size_;
    ++local_size_;
    local_cpus.push_back(std::move(info.cpus));
    mailboxes[static_cast<size_t>(peer)] = std::move(info.mailbox);
  }
  const auto quota = cgroup_cpu_quota();
  shares_cpus_ = !can_have_own_cpus(local_cpus) || (quota && *quota < local_size_);
  const std::string required = knobs_.require.empty() ? knobs_.transport : knobs_.require;
  if (required == "shm" && local_size_ < size())
    throw Error(ErrorCode::unavailable, "communicator",
                "shared memory was asked for, but the ranks are on several hosts",
                "use ROPEWALK_TRANSPORT=auto, which takes TCP between hosts");
  const bool use_shm = shm_ != nullptr && local_size_ > 1;
  if (use_shm) {
    open_mailboxes(mailboxes);
    transports_.push_back(shm_.get());
  }
  if (!use_shm || local_size_ < size()) {
    if (size() > 1) {
      tcp_ = std::make_unique<TcpTransport>(rank(), size(), world_->sockets(), knobs_.tcp_streams);
      transports_.push_back(tcp_.get());
    }
  }
  for (int peer = 0; peer < size(); ++peer) {
    const bool local = world_->card(peer).host_id == own.host_id;
    route_.push_back(use_shm && !local ? 1 : 0);
  }
  if (rank() == 0 && size() > 1)
    log(LogLevel::info, 0, "{} ranks on {} hosts: {}", size(), host_numbers.size(),
        !use_shm                  ? "TCP between all"
        : transports_.size() == 1 ? "shared memory between all"
                                  : "shared memory within hosts, TCP between them");
}

}  // namespace ropewalk
