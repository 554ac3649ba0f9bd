// A process that joins a job that runs.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/log.h"
#include "bootstrap/net.h"
#include "bootstrap/newcomers.h"
#include "communicator/find_costs.h"
#include "communicator/next_epoch.h"
#include "ropewalk/rendezvous.h"

namespace ropewalk {
namespace {

using Impl = Communicator::Impl;

/// What the members have agreed for this process.
Options options_for(const bootstrap::Admission& admission, const Options& own,
                    const Config& config) {
  Options common = own;
  common.coordinator_fd.reset();
  common.key = std::string(config.job_key.text());
  common.elastic = false;
  common.join_running.reset();
  common.join_timeout = std::chrono::milliseconds(std::max(1u, admission.remaining_ms));
  Options all =
      Rendezvous::options(admission.unique_id, admission.rank, admission.size, std::move(common));
  all.elastic = true;
  return all;
}

/// Whoever comes later knows what it is told as it starts, and nothing that ranks have told each
/// other.
std::string fixed_coordinator(const Options& options, const Config& config) {
  const JobIdentity identity =
      find_identity(options, config, [](const char* name) { return std::getenv(name); });
  std::string coordinator = identity.coordinator;
  if (coordinator.empty())
    coordinator = options.coordinator.value_or(config.coordinator.value_or(std::string()));
  if (identity.discovery == DiscoveryMethod::coordinator && !coordinator.empty())
    return coordinator;
  throw Error(Failure{ErrorCode::invalid_argument, "elastic",
                      fmt::format("ROPEWALK_ELASTIC=1, or Options::elastic, and no "
                                  "ROPEWALK_COORDINATOR: what joins while the job runs could not "
                                  "know where that is, or its key ({})",
                                  describe(identity)),
                      kElasticAdvice, identity.rank, -1});
}

/// With ROPEWALK_JOIN_RUNNING=auto. Null where a job begins.
std::unique_ptr<bootstrap::AdmissionRequest> find_running_job(const std::string& coordinator,
                                                              const Config& config) {
  auto request = std::make_unique<bootstrap::AdmissionRequest>(coordinator, config);
  return request->finds_job(bootstrap::kLookForJob) ? std::move(request) : nullptr;
}

Epoch epoch_of(const bootstrap::Admission& admission, int64_t waited_ns) {
  Epoch epoch{.number = admission.epoch,
              .former_ranks = admission.former_ranks,
              .departures = {},
              .reason = admission.reason,
              .change_time = std::chrono::nanoseconds(waited_ns)};
  epoch.former_ranks.resize(static_cast<size_t>(admission.size), -1);
  return epoch;
}

/// Which may have started this process, and then asks to hear of this.
void tell_launcher(std::optional<int> fd) {
  if (!fd) return;
  [[maybe_unused]] const ssize_t sent = ::write(*fd, "+", 1);
}

/// Null where the job has ended meanwhile (AdmissionRequest::wait).
std::shared_ptr<Impl> wait_for_admission(bootstrap::AdmissionRequest& request,
                                         const std::string& coordinator, const Options& options,
                                         const Config& config) {
  const MonotonicClock clock;
  for (;;) {
    const auto awaited = request.wait();
    if (!awaited) return nullptr;
    const bootstrap::Admission& admission = *awaited;
    const int64_t admitted_ns = clock.now_ns();
    std::shared_ptr<Impl> joined;
    try {
      joined = std::make_shared<Impl>(options_for(admission, options, config));
      open_epoch(*joined, static_cast<size_t>(admission.size) - admission.former_ranks.size(),
                 admitted_ns + config.timeout.count());
      joined->epoch->description = epoch_of(admission, clock.now_ns() - admitted_ns);
      joined->session->first_key = config.job_key;
      listen_for_newcomers(*joined, coordinator, options.coordinator_fd);
      tell_launcher(config.joined_fd);
      return joined;
    } catch (const Error& error) {
      discard(std::move(joined));
      if (!may_try_again(error.code()) && error.code() != ErrorCode::no_quorum) throw;
      log(LogLevel::info, -1, "was admitted, and waits again: {}", error.what());
    }
  }
}

std::shared_ptr<Impl> begin_job(const Options& options, const Config& config) {
  if (config.elastic) fixed_coordinator(options, config);  // or throws
  auto impl = std::make_shared<Impl>(options);
  listen_for_newcomers(*impl, impl->session->job.coordinator(), options.coordinator_fd);
  return impl;
}

}  // namespace

JoinedJob join_job(const Options& options) {
  const Config config = merged_config(options);
  if (!config.join_running && !config.join_if_running) return {begin_job(options, config), false};
  if (config.join_if_running && !config.elastic)
    throw Error(ErrorCode::invalid_argument, "join",
                "ROPEWALK_JOIN_RUNNING=auto, and the job is not elastic",
                "set ROPEWALK_ELASTIC=1 on every rank");
  set_log_level(config.log);
  bootstrap::start_cryptography();
  const std::string coordinator =
      config.join_running ? options.coordinator.value_or(config.coordinator.value_or(std::string()))
                          : fixed_coordinator(options, config);
  std::unique_ptr<bootstrap::AdmissionRequest> request;
  if (config.join_running)
    request = std::make_unique<bootstrap::AdmissionRequest>(coordinator, config);
  else
    request = find_running_job(coordinator, config);
  for (;;) {
    if (request)
      if (auto joined = wait_for_admission(*request, coordinator, options, config))
        return {std::move(joined), true};
    try {
      return {begin_job(options, config), false};
    } catch (const Error& error) {
      // Its members may have listened nowhere for a while.
      request =
          error.code() == ErrorCode::timeout ? find_running_job(coordinator, config) : nullptr;
      if (!request) throw;
    }
  }
}

void open_epoch(const Impl& joined, size_t newcomers, int64_t deadline_ns) {
  assert(newcomers > 0 && newcomers < static_cast<size_t>(joined.size()));
  agree_in(joined,
           {.call = AgreementCall::opening,
            .members = all_ranks(joined.size()),
            .learners = newcomers,
            .deadline_ns = deadline_ns,
            .operation = "join"},
           0, {});
}

void discard(std::shared_ptr<Impl> joined) {
  if (!joined) return;
  joined->monitor().report(
      {ErrorCode::revoked, "shrink", "a member has ended meanwhile", {}, joined->rank(), -1});
  joined->close();
}

void find_costs_anew(Communicator& communicator, Impl& impl) {
  try {
    impl.set_costs(find_costs(communicator, impl.session->job));
  } catch (const Error& error) {
    if (!error.is_survivable()) throw;
  }
}

void listen_for_newcomers(Impl& impl, const std::string& coordinator, std::optional<int> listens) {
  Session& session = *impl.session;
  if (!impl.config().elastic) return;
  session.coordinator = coordinator;
  if (!session.newcomers) {
    const int inherited = listens.value_or(impl.config().coordinator_fd.value_or(-1));
    if (impl.size() == 1)
      bootstrap::check_key(impl.config(), coordinator,
                           bootstrap::is_loopback(bootstrap::parse_endpoints(coordinator)), 0);
    session.newcomers = std::make_shared<bootstrap::NewcomerListener>(
        coordinator, inherited >= 0 ? bootstrap::duplicate_listener(inherited) : UniqueFd(),
        session.first_key, impl.config());
  }
  session.newcomers->serve(session.job.world(), impl.members.local_rank == 0);
}

}  // namespace ropewalk
