#include "bootstrap/world.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "bootstrap/auth.h"
#include "bootstrap/control.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/job_monitor.h"
#include "bootstrap/net.h"
#include "bootstrap/socket_broker.h"
#include "topology/cpu_share.h"
#include "topology/topology.h"

namespace ropewalk {
namespace {

using namespace bootstrap;

class JoinedWorld final : public World {
 public:
  JoinedWorld(int rank, int size, const Config& config)
      : rank_(rank),
        size_(size),
        monitor_(rank, size),
        socket_broker_(rank, size, config.timeout.count()) {}

  /// Size 1: nobody to talk to.
  void stay_alone(PeerRecord record) { alone_ = std::move(record); }
  void join(ControlSetup setup) {
    control_ = std::make_unique<Control>(std::move(setup), monitor_, socket_broker_);
    control_->wait_joined();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const PeerRecord& record(int rank) const override {
    return control_ ? control_->table()[static_cast<size_t>(rank)] : alone_;
  }
  Monitor& monitor() override { return monitor_; }
  SocketSource& sockets() override { return socket_broker_; }
  void leave(const CallsMade& calls) override {
    if (control_)
      control_->leave(calls);
    else
      monitor_.mark_left(rank_, calls);
  }

 private:
  const int rank_, size_;
  JobMonitor monitor_;
  SocketBroker socket_broker_;
  PeerRecord alone_;
  std::unique_ptr<Control> control_;  // last: its thread uses the others
};

[[noreturn]] void fail(ErrorCode code, int rank, std::string reason, std::string advice) {
  throw Error(Failure{code, "bootstrap", std::move(reason), std::move(advice), rank, -1});
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
  record.transport_infos = std::move(transport_infos);
  if (const size_t bytes = transport_bytes(record); bytes > kTransportBytesMax)
    fail(ErrorCode::invalid_argument, identity.rank,
         fmt::format("{} bytes about CPUs and transports; at most {} travel", bytes,
                     kTransportBytesMax),
         {});
  return record;
}

/// Rank 0 holds a descriptor per rank while the job joins.
void check_descriptor_limit(const JobIdentity& identity) {
  constexpr rlim_t kOthers = 32;  // half of them for the program
  const auto needed = static_cast<rlim_t>(identity.size) + kOthers;
  rlimit limit = {};
  if (identity.rank != 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
    return;
  fail(ErrorCode::exhausted, 0,
       fmt::format("{} ranks need {} open files at rank 0; the limit is {}", identity.size, needed,
                   limit.rlim_cur),
       fmt::format("ulimit -n {}", needed));
}

/// A duplicate: the caller's descriptor stays open, so that a later job can use it again.
UniqueFd inherited_listener(int inherited) {
  int listens = 0;
  socklen_t length = sizeof listens;
  UniqueFd fd(fcntl(inherited, F_DUPFD_CLOEXEC, 3));
  if (!fd || getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 ||
      listens == 0)
    fail(ErrorCode::invalid_argument, 0,
         fmt::format("descriptor {} is not a listening socket", inherited),
         "ROPEWALK_COORDINATOR_FD must be a socket that listens at ROPEWALK_COORDINATOR");
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
  return fd;
}

/// Where rank 0 waits for the others to join. Where the coordinator's address means this host only,
/// every rank is on this host, and nobody else needs to reach it.
UniqueFd open_coordinator(const JobIdentity& identity, const Config& config,
                          const std::vector<Endpoint>& coordinators) {
  if (identity.coordinator_fd >= 0) return inherited_listener(identity.coordinator_fd);
  const auto local = loopback_literal(coordinators[0]);
  return local && coordinators.size() == 1 && config.socket_ifname.empty()
             ? listen_at(*local)
             : listen_everywhere(coordinators[0].port);
}

/// At a free port, of this host only where the job is. Not the coordinator's, which is free for the
/// next job of this process as soon as all have joined.
void open_listeners(const JobIdentity& identity, const Config& config, ControlSetup& setup) {
  const auto coordinators = parse_endpoints(identity.coordinator);
  if (coordinators.empty() && identity.coordinator_fd < 0)
    fail(ErrorCode::invalid_argument, identity.rank,
         fmt::format("the coordinator \"{}\" is not host:port", identity.coordinator),
         "set ROPEWALK_COORDINATOR=host:port");
  std::optional<SocketAddress> local;
  if (identity.rank == 0) {
    setup.coordinator_listener = open_coordinator(identity, config, coordinators);
    const SocketAddress bound = local_address(setup.coordinator_listener.get());
    if (!bound.is_any()) local = bound;
  } else if (coordinators.size() == 1 && config.socket_ifname.empty()) {
    local = loopback_literal(coordinators[0]);
  }
  if (local) local->set_port(0);
  setup.listener = local ? listen_at(*local) : listen_everywhere(0);
}

/// Names may appear late (a pod's, for one): asks again until there is an address.
void resolve_coordinator(const JobIdentity& identity, ControlSetup& setup) {
  constexpr auto kPause = std::chrono::milliseconds(100);
  const MonotonicClock clock;
  const auto endpoints = parse_endpoints(identity.coordinator);
  std::string why;
  for (;;) {
    for (size_t name = 0; name < endpoints.size(); ++name) {
      std::ranges::copy(resolve(endpoints[name], why), std::back_inserter(setup.coordinator));
      setup.coordinator_names.resize(setup.coordinator.size(), name);
    }
    if (!setup.coordinator.empty()) return;
    if (clock.now_ns() >= setup.deadline_ns)
      fail(ErrorCode::timeout, identity.rank,
           fmt::format("the coordinator {} has no address: {}", identity.coordinator, why),
           "correct ROPEWALK_COORDINATOR, or give an address instead of a name");
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

std::unique_ptr<World> World::join(const JobIdentity& identity, const Config& config,
                                   TransportInfos transport_infos) {
  start_cryptography();
  auto world = std::make_unique<JoinedWorld>(identity.rank, identity.size, config);
  PeerRecord record = make_record(identity, config, std::move(transport_infos));
  if (identity.size == 1) {
    world->stay_alone(std::move(record));
    return world;
  }
  check_descriptor_limit(identity);
  ControlSetup setup;
  setup.rank = identity.rank;
  setup.size = identity.size;
  setup.config = config;
  setup.deadline_ns = MonotonicClock().now_ns() + config.timeout.count();
  open_listeners(identity, config, setup);
  setup.coordinator_text = identity.coordinator.empty()
                               ? local_address(setup.coordinator_listener.get()).text()
                               : identity.coordinator;
  std::string choice;
  record.addresses = advertised_addresses(setup.listener.get(), config.socket_ifname, choice);
  if (record.addresses.empty())
    fail(ErrorCode::unavailable, identity.rank, "no network interface is up",
         "ip link set lo up, at least");
  log(LogLevel::info, identity.rank, "rank {} of {} from {}; other ranks may dial {}",
      identity.rank, identity.size, identity.source, choice);
  if (config.job_key.empty())
    log(LogLevel::info, identity.rank,
        "no ROPEWALK_JOB_KEY: anyone who reaches {} could join this job", setup.coordinator_text);
  if (identity.rank != 0) resolve_coordinator(identity, setup);
  setup.record = std::move(record);
  world->join(std::move(setup));
  return world;
}

}  // namespace ropewalk
