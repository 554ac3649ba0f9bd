#include "bootstrap/discovery.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <mutex>

#include "base/log.h"
#include "bootstrap/pmi.h"
#include "bootstrap/pmix.h"

namespace ropewalk::bootstrap {
namespace {

/// PMI has no blanks, and a unique id has no slashes.
std::string swap_chars(std::string text, char from, char to) {
  std::ranges::replace(text, from, to);
  return text;
}

/// Then it talks to the launcher itself, which serves a process once.
bool is_mpi_loaded() {
  return ::dlsym(RTLD_DEFAULT, "MPI_Initialized") != nullptr;
}

Pmi& pmi_of_process(const JobIdentity& identity, const Config& config) {
  if (is_mpi_loaded())
    throw Error(ErrorCode::unavailable, "pmi",
                "MPI is loaded in this process, and talks to the launcher itself",
                "have MPI_Bcast tell all ranks what Rendezvous::unique_id() says on rank 0, or set "
                "ROPEWALK_COORDINATOR=host:port on every rank");
  static Pmi pmi(identity.pmi_fd, identity.rank, identity.launcher_job, config.time_to_join());
  return pmi;
}

/// Completes the size, which not all of these launchers tell in their variables.
Pmix& pmix_of_process(JobIdentity& identity, const Config& config) {
  static Pmix pmix(config.time_to_join());
  const int size = pmix.size();
  if (pmix.rank() != identity.rank || (identity.size != 0 && size != identity.size))
    throw Error(ErrorCode::invalid_argument, "identity",
                fmt::format("rank {} of {} ({}), and PMIx says rank {} of {}", identity.rank,
                            identity.size, identity.source, pmix.rank(), size),
                "unset what another launcher has left, or set ROPEWALK_RANK, ROPEWALK_SIZE and "
                "ROPEWALK_COORDINATOR");
  identity.size = size;
  return pmix;
}

/// Nothing where Slurm's own way is to be taken: its PMIx plugin runs where libpmix may be missing.
KeyValueStore* store_of_launcher(JobIdentity& identity, const Config& config) {
  if (identity.discovery == DiscoveryMethod::munge) return nullptr;
  KeyValueStore* store = nullptr;
  try {
    if (identity.discovery == DiscoveryMethod::pmi) store = &pmi_of_process(identity, config);
    if (identity.discovery == DiscoveryMethod::pmix) store = &pmix_of_process(identity, config);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unavailable || identity.coordinator.empty()) throw;
    log(LogLevel::info, identity.rank, "Slurm's variables tell where rank 0 is, since {}",
        error.what());
    return nullptr;
  }
  if (store->is_forked())
    throw Error(
        ErrorCode::unavailable, "bootstrap",
        "a forked child cannot talk to the launcher, which knows its parent alone",
        "start the program anew instead of forking, or set ROPEWALK_RANK, ROPEWALK_SIZE and "
        "ROPEWALK_COORDINATOR in the child");
  return store;
}

/// The others look for rank 0 on the first host of the step.
std::unique_ptr<CredentialServer> serve(const Endpoint& server, std::string text) {
  std::string why;
  const auto addresses = resolve(server, why);
  if (!addresses.empty() && std::ranges::none_of(addresses, is_of_this_host))
    throw Error(ErrorCode::invalid_argument, "munge",
                fmt::format("rank 0 is not on {}, the first host of SLURM_STEP_NODELIST, where the "
                            "others look for it",
                            server.host),
                "srun --mpi=pmix or pmi2, or set ROPEWALK_COORDINATOR=host:port and a "
                "ROPEWALK_JOB_KEY");
  return std::make_unique<CredentialServer>(listen_everywhere(server.port), std::move(text));
}

void join_at(const Options& met, JobIdentity& identity, Config& config) {
  identity.coordinator = met.coordinator.value_or("");
  identity.coordinator_fd = met.coordinator_fd.value_or(-1);
  config.job_key = met.key.value();
}

}  // namespace

Discovery discover(JobIdentity& identity, Config& config) {
  static std::mutex mutex;
  static int meetings = 0;
  Discovery found;
  if (identity.discovery == DiscoveryMethod::coordinator) return found;
  const std::lock_guard lock(mutex);
  KeyValueStore* const store = store_of_launcher(identity, config);
  const bool has_key = !config.job_key.empty() || config.open;
  if (identity.size == 1 || (store == nullptr && has_key)) return found;
  const int number = meetings++;
  Options common;
  common.elastic = false;  // who joins later does not come this way
  if (!config.job_key.empty()) common.key = std::string(config.job_key.text());
  if (identity.rank == 0) found.rendezvous.emplace(common);
  std::string unique_id = identity.rank == 0 ? found.rendezvous->unique_id() : "";
  if (store != nullptr) {
    found.ended_ranks = store->ended_ranks();
    const std::string key = fmt::format("ropewalk-{}", number);
    if (identity.rank == 0) store->put(key, swap_chars(unique_id, ' ', '/'));
    store->barrier();
    if (identity.rank != 0) unique_id = swap_chars(store->get(key), '/', ' ');
  } else {
    const Endpoint server = *parse_endpoint(identity.coordinator);
    const std::string label = fmt::format("slurm {} {} ", identity.launcher_job, number);
    if (identity.rank == 0)
      found.credentials = serve(server, label + unique_id);
    else
      unique_id = fetch(server, label, config.time_to_join());
  }
  join_at(found.rendezvous ? found.rendezvous->options(0, identity.size, common)
                           : Rendezvous::options(unique_id, identity.rank, identity.size, common),
          identity, config);
  return found;
}

}  // namespace ropewalk::bootstrap
