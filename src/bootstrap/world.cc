#include "bootstrap/world.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <functional>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "bootstrap/auth.h"
#include "bootstrap/control.h"
#include "bootstrap/ended_ranks.h"
#include "bootstrap/job_monitor.h"
#include "bootstrap/net.h"
#include "bootstrap/socket_broker.h"
#include "topology/cpu_share.h"
#include "topology/topology.h"

namespace ropewalk {
namespace {

using namespace bootstrap;

/// What a process holds open while one epoch follows another: a table that grows then would make
/// all wait.
constexpr int kDescriptors = 128, kDescriptorsPerRank = 32, kManyRanks = 64;

[[noreturn]] void fail(ErrorCode code, int rank, std::string reason, std::string advice) {
  throw Error(Failure{code, "bootstrap", std::move(reason), std::move(advice), rank, -1});
}

Failure stopped(const JobIdentity& identity, const std::string& waits_for) {
  return {ErrorCode::aborted,
          "bootstrap",
          fmt::format("rank {} was stopped by its caller, as it waited for {}", identity.rank,
                      waits_for),
          {},
          identity.rank,
          identity.rank};
}

PeerRecord make_record(const JobIdentity& identity, const Config& config,
                       TransportInfos transport_infos) {
  PeerRecord record;
  record.rank = identity.rank;
  record.pid = getpid();
  record.host_name = host_name().substr(0, kNameBytesMax);
  record.host_id = host_identity().substr(0, kNameBytesMax);
  record.transport = config.transport;
  record.cpus = cpu_list_text(allowed_cpu_list());
  record.locality = own_locality();
  record.transport_infos = std::move(transport_infos);
  if (const size_t bytes = transport_bytes(record); bytes > kTransportBytesMax)
    fail(ErrorCode::invalid_argument, identity.rank,
         fmt::format("{} bytes about CPUs and transports; at most {} travel", bytes,
                     kTransportBytesMax),
         {});
  return record;
}

/// Rank 0 holds a descriptor for each rank that joins there: one of each group at least. Where more
/// are on hosts of their own it finds out later.
void check_descriptor_limit(const JobIdentity& identity) {
  constexpr rlim_t kOthers = 64;  // half of them for the program
  const auto needed = static_cast<rlim_t>(join_group(identity.size, identity.size)) + kOthers;
  raise_descriptor_limit();
  const rlimit limit = descriptor_limits();
  const rlim_t most = static_cast<rlim_t>(identity.size) + kOthers;
  if (identity.rank == 0 && needed <= limit.rlim_cur && limit.rlim_cur < most)
    log(LogLevel::info, 0, "{} files may be open; if each rank is on a host of its own, {} will be",
        limit.rlim_cur, most);
  if (identity.rank != 0 || limit.rlim_cur >= needed) return;
  fail(ErrorCode::exhausted, 0,
       fmt::format("{} ranks need {} open files at rank 0; the limit is {}", identity.size, needed,
                   limit.rlim_cur),
       fmt::format("ulimit -n {}", needed));
}

/// The coordinator's address where that, or each of several, means this host only: then every rank
/// is on this host, and nobody else needs to reach it.
std::optional<SocketAddress> loopback_of(const std::vector<Endpoint>& coordinators,
                                         const Config& config) {
  if (!config.socket_ifname.empty() || !is_loopback(coordinators)) return {};
  return loopback_literal(coordinators[0]);
}

std::vector<UniqueFd> only(UniqueFd fd) {
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(fd));
  return fds;
}

/// Rank 0 waits for the others at the coordinator's address. The other listener is at a free port,
/// of this host only where the job is. Not at the coordinator's, which is free for the next job of
/// this process as soon as all have joined.
void open_listeners(const JobIdentity& identity, const Config& config, ControlSetup& setup) {
  const auto coordinators = parse_endpoints(identity.coordinator);
  if (coordinators.empty() && identity.coordinator_fd < 0)
    fail(ErrorCode::invalid_argument, identity.rank,
         fmt::format("the coordinator \"{}\" is not host:port", identity.coordinator),
         "set ROPEWALK_COORDINATOR=host:port");
  auto local = loopback_of(coordinators, config);
  if (identity.rank == 0) {
    setup.coordinator_listeners =
        identity.coordinator_fd >= 0 ? only(duplicate_listener(identity.coordinator_fd))
        : local                      ? only(listen_at(*local))
                                     : listen_at_coordinator(coordinators[0], config.socket_ifname);
    const SocketAddress bound = local_address(setup.coordinator_listeners[0].get());
    local = bound.is_any() || !config.socket_ifname.empty() ? std::nullopt : std::optional(bound);
  }
  setup.coordinator_text = identity.coordinator.empty()
                               ? local_address(setup.coordinator_listeners[0].get()).text()
                               : identity.coordinator;
  if (local) local->set_port(0);
  setup.listeners = local                          ? only(listen_at(*local))
                    : config.socket_ifname.empty() ? only(listen_everywhere(0))
                                                   : listen_on_interfaces(config.socket_ifname, 0);
  bool is_local = true;
  for (const auto* listeners : {&setup.listeners, &setup.coordinator_listeners})
    for (const UniqueFd& fd : *listeners)
      is_local = is_local && local_address(fd.get()).is_loopback();
  check_key(config, setup.coordinator_text, is_local, identity.rank);
}

/// Names may appear late (a pod's, for one): asks again until there is an address.
void resolve_coordinator(const JobIdentity& identity, ControlSetup& setup) {
  constexpr auto kPause = std::chrono::milliseconds(100);
  constexpr int64_t kTellAfterNs = 5'000'000'000;
  const MonotonicClock clock;
  const int64_t begun_ns = clock.now_ns();
  bool told = false;
  std::string why;
  while (!setup.look_up_coordinator(why)) {
    if (clock.now_ns() >= setup.deadline_ns)
      fail(ErrorCode::timeout, identity.rank,
           fmt::format("the coordinator {} has no address: {}", identity.coordinator, why),
           "is rank 0's host, or pod, up? Else correct ROPEWALK_COORDINATOR, or give an address "
           "instead of a name");
    if (setup.config.stop.stop_requested())
      throw Error(stopped(identity, identity.coordinator + " to have an address"));
    if (clock.now_ns() >= begun_ns + kTellAfterNs && !std::exchange(told, true))
      log(LogLevel::warn, identity.rank, "waiting for rank 0: {} has no address yet ({})",
          identity.coordinator, why);
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

namespace bootstrap {

void check_key(const Config& config, const std::string& coordinator, bool is_local, int rank) {
  if (config.secure && config.job_key.empty())
    fail(ErrorCode::invalid_argument, rank,
         "ROPEWALK_SECURE=1 and no job key: whoever is on the network could join",
         fmt::format("{} (`ropewalk run` makes one)", kKeyAdvice));
  if (is_local || config.job_key.is_strong()) return;
  if (!config.job_key.empty()) refuse_weak_key(rank);
  if (!config.open)
    fail(ErrorCode::invalid_argument, rank,
         fmt::format("there is no job key, and {} can be reached from other hosts: whoever does "
                     "could join, read and write",
                     coordinator),
         fmt::format("{} (`ropewalk run` makes one); or 127.0.0.1 as the coordinator's host, for "
                     "ranks of one host; or ROPEWALK_OPEN=1 for a job that is open to all",
                     kKeyAdvice));
  log(LogLevel::warn, rank, "ROPEWALK_OPEN=1 and no job key: anyone who reaches {} can join",
      coordinator);
}

}  // namespace bootstrap

World::World(int rank, int size, const Config& config)
    : rank_(rank),
      size_(size),
      monitor_(std::make_unique<JobMonitor>(rank, size)),
      parts_(std::make_unique<Parts>()),
      socket_broker_(std::make_unique<SocketBroker>(rank, size, config.timeout.count())) {}

World::~World() = default;

std::unique_ptr<World> World::join(const JobIdentity& identity, const Config& config,
                                   TransportInfos transport_infos,
                                   std::shared_ptr<Predecessor> predecessor,
                                   EndedRanks* ended_ranks) {
  start_cryptography();
  std::unique_ptr<World> world(new World(identity.rank, identity.size, config));
  if (identity.size == 1) {
    world->alone_ = std::make_unique<PeerTable>(
        std::vector{make_record(identity, config, std::move(transport_infos))});
    return world;
  }
  check_descriptor_limit(identity);
  reserve_descriptors(kDescriptors + kDescriptorsPerRank * std::min(identity.size, kManyRanks));
  ControlSetup setup;
  setup.death_watch = std::make_unique<DeathWatch>(identity.size);
  if (std::string address = setup.death_watch->address(); !address.empty())
    transport_infos.emplace(DeathWatch::kInfo, std::move(address));
  PeerRecord record = make_record(identity, config, std::move(transport_infos));
  setup.rank = identity.rank;
  setup.size = identity.size;
  setup.config = config;
  setup.predecessor = predecessor;
  setup.deadline_ns = MonotonicClock().now_ns() + config.time_to_join().count();
  open_listeners(identity, config, setup);
  std::string choice;
  record.addresses = advertised_addresses(setup.listeners, config.socket_ifname, choice);
  if (record.addresses.empty())
    fail(ErrorCode::unavailable, identity.rank, "no network interface is up",
         "ip link set lo up, at least");
  log(LogLevel::info, identity.rank, "rank {} of {} from {}; other ranks may dial {}",
      identity.rank, identity.size, identity.source, choice);
  if (identity.rank != 0) resolve_coordinator(identity, setup);
  setup.record = std::move(record);
  world->control_ = std::make_unique<Control>(std::move(setup), *world->monitor_, *world->parts_,
                                              *world->socket_broker_);
  std::optional<EndedRanks::Listening> listening;
  if (ended_ranks != nullptr)
    listening.emplace(*ended_ranks,
                      [&monitor = *world->monitor_, &identity](const EndedRank& ended) {
                        if (ended.rank < identity.size)
                          monitor.report(ended_before_joining(ended, identity.rank));
                      });
  std::optional<std::stop_callback<std::function<void()>>> stopping;
  stopping.emplace(config.stop, [&monitor = *world->monitor_, &identity] {
    monitor.report(stopped(identity, "all ranks to come"));
  });
  try {
    world->control_->wait_joined();
  } catch (const Error&) {
    stopping.reset();
    listening.reset();
    world->control_->close();
    if (predecessor) predecessor->leave_behind(std::move(world));  // the others agree meanwhile
    throw;
  }
  return world;
}

const PeerRecord& World::record(int rank) const {
  return records()[static_cast<size_t>(rank)];
}

const PeerTable& World::records() const {
  return control_ ? control_->table() : *alone_;
}

Monitor& World::monitor() {
  return *monitor_;
}

SocketSource& World::sockets() {
  return *socket_broker_;
}

void World::leave(const CallsMade& calls) {
  if (control_)
    control_->leave(calls);
  else
    monitor_->mark_left(rank_, calls);
}

void World::give_up(const Error& why) {
  const Failure& own = why.failure();
  monitor_->report({ErrorCode::peer_lost, own.operation,
                    fmt::format("{} gave up: {}", describe(record(rank_)), own.reason), own.advice,
                    rank_, rank_});
}

AgreementEnd World::agree(Agreement::Setup setup, int64_t deadline_ns) {
  if (control_) return control_->agree(std::move(setup), deadline_ns);
  return {Decision{.members = setup.members,
                   .ended = {},
                   .bits = setup.contribution.bits,
                   .call = setup.contribution.call,
                   .text = setup.contribution.text},
          {}};
}

std::shared_ptr<Monitor> World::renew(std::vector<int> members) {
  assert(control_);
  return control_->renew(std::move(members));
}

std::shared_ptr<Monitor> World::epoch_monitor() {
  return monitor_->of_epoch();
}

uint32_t World::epoch() const {
  return monitor_->epoch();
}

void World::keep(std::shared_ptr<void> object) {
  assert(object);
  kept_.push_back(std::move(object));
}

void World::set_successor(std::shared_ptr<Predecessor> successor) {
  if (control_) control_->set_successor(std::move(successor));
}

void World::tell_newcomers(std::vector<uint32_t> numbers) {
  if (control_) return control_->tell_newcomers(std::move(numbers));
  const std::lock_guard lock(newcomers_mutex_);
  newcomers_here_.clear();
  for (const uint32_t number : numbers) newcomers_here_.push_back({rank_, number});
}

std::vector<Newcomer> World::newcomers() const {
  if (control_) return control_->newcomers();
  const std::lock_guard lock(newcomers_mutex_);
  return newcomers_here_;
}

std::shared_ptr<Part> World::add_part(uint32_t number, std::vector<int> members) {
  auto part = std::make_shared<Part>(number, std::move(members), *monitor_);
  parts_->add(part);
  part->monitor().tell_control_thread();  // the job may have failed meanwhile
  return part;
}

void World::remove_part(Part& part) {
  control_ ? part.end() : parts_->remove(part);
}

}  // namespace ropewalk
