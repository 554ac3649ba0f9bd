#include <limits>

#include "bootstrap/net.h"
#include "bootstrap/wire.h"
#include "bootstrap/world.h"

namespace ropewalk {
namespace {

using bootstrap::Endpoint;

/// What one launcher says; what it does not say stays empty.
struct Found {
  std::optional<int> rank, size;
  std::string source;
  bool may_be_slurm = false;
  bool is_pmi = false;
};

[[noreturn]] void fail(std::string reason, std::string advice) {
  throw Error(ErrorCode::invalid_argument, "identity", std::move(reason), std::move(advice));
}

/// MASTER_PORT belongs to torch's store, so another port must follow from it on every rank alike.
/// The neighbour MASTER_PORT+1 will not do: users give two jobs on one host ports in a row. The
/// last four digits in 10000..19999 (20000..29999 when it lies there itself) keep neighbours apart
/// and stay below the ephemeral ports, which start at 32768.
int port_beside(int master_port) {
  return (master_port >= 10000 && master_port < 20000 ? 20000 : 10000) + master_port % 10000;
}

std::optional<std::string> torch_coordinator(const Lookup& get) {
  const auto address = variable(get, "MASTER_ADDR");
  const auto port = integer_variable(get, "MASTER_PORT", 1, 65535);
  if (!address || !port) return {};
  std::string text = to_text(Endpoint{*address, static_cast<uint16_t>(port_beside(*port))});
  if (!bootstrap::parse_endpoint(text))
    fail(fmt::format("MASTER_ADDR=\"{}\" is neither a host name nor an address", *address),
         "correct MASTER_ADDR or set ROPEWALK_COORDINATOR=host:port");
  return text;
}

std::optional<int> rank_in(const Lookup& get, const char* name) {
  return integer_variable(get, name, 0, bootstrap::kRanksMax - 1);
}
std::optional<int> size_in(const Lookup& get, const char* name) {
  return integer_variable(get, name, 1, bootstrap::kRanksMax);
}

/// Two steps of one job, and two jobs on one host, should differ: job and step id make the port,
/// in 20000..29999, below the ephemeral ports.
std::optional<std::string> slurm_coordinator(const Lookup& get) {
  const auto nodes = variable(get, "SLURM_STEP_NODELIST");
  if (!nodes) return {};
  const auto host = bootstrap::first_host(*nodes);
  if (!host)
    fail(fmt::format("SLURM_STEP_NODELIST=\"{}\" is no list of hosts", nodes->substr(0, 200)),
         "set ROPEWALK_COORDINATOR=host:port, where rank 0 runs on host");
  constexpr long kIdMax = std::numeric_limits<int>::max();
  // Slurm numbers special steps from the top of 32 bits; those never run ranks.
  const int64_t job = integer_variable(get, "SLURM_JOB_ID", 0, kIdMax).value_or(0);
  const int64_t step = integer_variable(get, "SLURM_STEP_ID", 0, kIdMax).value_or(0);
  return to_text(Endpoint{*host, static_cast<uint16_t>(20000 + (job + 131 * step) % 10000)});
}

struct Launcher {
  std::string_view name;
  const char* rank;              // the variables that it sets
  const char* size = nullptr;    // null: it does not tell
  const char* needed = nullptr;  // without this variable it is not what runs here
};

/// A true torchrun is the innermost launcher where there are several (srun torchrun; torchrun in a
/// Kubernetes job): the outer one numbers torchrun's agents, not the ranks. RANK and WORLD_SIZE
/// without it are somebody's script and come last.
/// Inside an sbatch script, but outside srun, SLURM_PROCID and SLURM_NTASKS are set as well while
/// only one process runs; the step's node list tells the two apart.
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NODELIST"},
    {"PALS", "PALS_RANKID"},
    {"Kubernetes", "JOB_COMPLETION_INDEX"},
    {"torchrun", "RANK", "WORLD_SIZE"},
};

/// What the first says that names a rank; where none does, perhaps a size from WORLD_SIZE.
Found find_launcher(const Lookup& get) {
  Found found;
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.needed != nullptr && !variable(get, launcher.needed)) continue;
    found = {rank_in(get, launcher.rank), {}, fmt::format("{}'s {}", launcher.name, launcher.rank)};
    if (launcher.size != nullptr) {
      found.size = size_in(get, launcher.size);
      found.source += fmt::format(", {}", launcher.size);
    }
    found.is_pmi = launcher.name == "PMI";
    found.may_be_slurm = launcher.name == "Slurm" || found.is_pmi;
    // A true torchrun sets both; its variables may have been handed on to another launcher's ranks.
    const bool is_true = launcher.needed == nullptr || launcher.name != "torchrun" || found.size;
    if (found.rank && is_true) break;
  }
  return found;
}

void check(const Found& job) {
  if (job.size && !job.rank)
    fail(fmt::format("the job's size is {} ({}), but this process's rank is not known", *job.size,
                     job.source),
         "set ROPEWALK_RANK, or start the ranks with `ropewalk run` or another launcher");
  if (!job.size)
    fail(fmt::format("this process's rank is {} ({}), but the job's size is not known", *job.rank,
                     job.source),
         "set ROPEWALK_SIZE (1 for a process on its own, with ROPEWALK_RANK=0)");
  if (*job.rank < 0 || *job.size < 1 || *job.rank >= *job.size)
    fail(fmt::format("rank {} is out of range for a job of {} ({})", *job.rank, *job.size,
                     job.source),
         "ranks are 0 to size-1");
}

/// srun speaks PMI too; then rank and size are also Slurm's.
bool is_slurm(const Found& launcher, const Lookup& get) {
  return launcher.may_be_slurm && launcher.rank == rank_in(get, "SLURM_PROCID") &&
         launcher.size == size_in(get, "SLURM_NTASKS");
}

void take_coordinator(JobIdentity& identity, const Found& launcher, const Options& options,
                      const Config& config, const Lookup& get) {
  if (identity.rank == 0)
    identity.coordinator_fd = options.coordinator_fd.value_or(config.coordinator_fd.value_or(-1));
  auto coordinator = options.coordinator ? options.coordinator : config.coordinator;
  if (!coordinator && is_slurm(launcher, get)) coordinator = slurm_coordinator(get);
  if (!coordinator && !launcher.source.empty()) coordinator = torch_coordinator(get);
  identity.coordinator = coordinator.value_or("");
  const bool is_found = coordinator || identity.coordinator_fd >= 0;
  if (!is_found && launcher.is_pmi)
    identity.pmi_fd =
        integer_variable(get, "PMI_FD", 0, std::numeric_limits<int>::max()).value_or(-1);
  if (!is_found && identity.pmi_fd < 0)
    fail(
        fmt::format("the job has {} ranks ({}), but nothing says where rank 0 listens",
                    identity.size, identity.source),
        "set ROPEWALK_COORDINATOR=host:port on every rank (a free port on rank 0's host), or start "
        "the ranks with `ropewalk run`");
  if (!identity.coordinator.empty() && bootstrap::parse_endpoints(identity.coordinator).empty())
    fail(
        fmt::format("the coordinator \"{}\" is not host:port", identity.coordinator),
        "give host:port, 1.2.3.4:port or [v6-address]:port with a port from 1 to 65535, or several "
        "of them with commas between");
}

}  // namespace

JobIdentity find_identity(const Options& options, const Config& config, const Lookup& get) {
  Found job;
  auto complete = [&job](std::optional<int> rank, std::optional<int> size,
                         std::string_view source) {
    const bool adds = (rank && !job.rank) || (size && !job.size);
    if (!job.rank) job.rank = rank;
    if (!job.size) job.size = size;
    if (adds) job.source += fmt::format("{}{}", job.source.empty() ? "" : "; ", source);
  };
  complete(options.rank, options.size, "options");
  complete(config.rank, config.size, "ROPEWALK_*");
  Found launcher;
  if (!job.rank || !job.size) {
    launcher = find_launcher(get);
    complete(launcher.rank, launcher.size, launcher.source);
    if (!job.size) complete({}, size_in(get, "WORLD_SIZE"), "WORLD_SIZE");
  }
  JobIdentity identity;
  if (!job.rank && job.size.value_or(1) == 1) {
    identity.source = job.size ? job.source : "nothing set: a job of one";
    return identity;
  }
  check(job);
  identity.rank = *job.rank;
  identity.size = *job.size;
  identity.source = job.source;
  if (identity.size > 1) take_coordinator(identity, launcher, options, config, get);
  return identity;
}

}  // namespace ropewalk
