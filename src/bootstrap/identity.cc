#include <charconv>
#include <limits>

#include "bootstrap/net.h"
#include "bootstrap/node_list.h"
#include "bootstrap/wire.h"
#include "bootstrap/world.h"

namespace ropewalk {
namespace {

using bootstrap::Endpoint;
using Lookup = std::function<const char*(const char*)>;

constexpr const char* kOperation = "identity";

/// What one launcher says; what it does not say stays empty.
struct Found {
  std::optional<int> rank, size;
  std::optional<std::string> coordinator;
  std::string source;
};

[[noreturn]] void fail(std::string reason, std::string advice) {
  throw Error(ErrorCode::invalid_argument, kOperation, std::move(reason), std::move(advice));
}

class Environment {
 public:
  explicit Environment(const Lookup& get) : get_(get) {}

  std::optional<std::string> text(const char* name) const {
    const char* value = get_(name);
    if (value == nullptr || *value == '\0') return {};
    return std::string(value);
  }
  std::optional<int> number(const char* name, long low, long high) const {
    const auto value = text(name);
    if (!value) return {};
    long parsed = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, parsed);
    if (error != std::errc() || stop != end || parsed < low || parsed > high)
      fail(fmt::format("{}=\"{}\" must be a whole number from {} to {}", name, *value, low, high),
           "the launcher or a script set it; correct or unset it");
    return static_cast<int>(parsed);
  }
  std::optional<int> rank(const char* name) const {
    return number(name, 0, bootstrap::kRanksMax - 1);
  }
  std::optional<int> size(const char* name) const { return number(name, 1, bootstrap::kRanksMax); }

 private:
  const Lookup& get_;
};

/// MASTER_PORT belongs to torch's store, so another port must follow from it on every rank alike.
/// The neighbour MASTER_PORT+1 will not do: users give two jobs on one host ports in a row. The
/// last four digits in 10000..19999 (20000..29999 when it lies there itself) keep neighbours apart
/// and stay below the ephemeral ports, which start at 32768.
int port_beside(int master_port) {
  return (master_port >= 10000 && master_port < 20000 ? 20000 : 10000) + master_port % 10000;
}

std::optional<std::string> torch_coordinator(const Environment& environment) {
  const auto address = environment.text("MASTER_ADDR");
  const auto port = environment.number("MASTER_PORT", 1, 65535);
  if (!address || !port) return {};
  std::string text = to_text(Endpoint{*address, static_cast<uint16_t>(port_beside(*port))});
  if (!bootstrap::parse_endpoint(text))
    fail(fmt::format("MASTER_ADDR=\"{}\" is neither a host name nor an address", *address),
         "correct MASTER_ADDR or set ROPEWALK_COORDINATOR=host:port");
  return text;
}

/// Two steps of one job, and two jobs on one host, should differ: job and step id make the port,
/// in 20000..29999, below the ephemeral ports.
std::optional<std::string> slurm_coordinator(const Environment& environment) {
  const auto nodes = environment.text("SLURM_STEP_NODELIST");
  if (!nodes) return {};
  const auto host = bootstrap::first_host(*nodes);
  if (!host)
    fail(fmt::format("SLURM_STEP_NODELIST=\"{}\" is no list of hosts", nodes->substr(0, 200)),
         "set ROPEWALK_COORDINATOR=host:port, where rank 0 runs on host");
  constexpr long kIdMax = std::numeric_limits<int>::max();
  // Slurm numbers special steps from the top of 32 bits; those never run ranks.
  const int64_t job = environment.number("SLURM_JOB_ID", 0, kIdMax).value_or(0);
  const int64_t step = environment.number("SLURM_STEP_ID", 0, kIdMax).value_or(0);
  return to_text(Endpoint{*host, static_cast<uint16_t>(20000 + (job + 131 * step) % 10000)});
}

Found torch(const Environment& e) {
  return {e.rank("RANK"), e.size("WORLD_SIZE"), torch_coordinator(e),
          "torchrun's RANK, WORLD_SIZE"};
}

/// Inside an sbatch script, but outside srun, SLURM_PROCID and SLURM_NTASKS are set as well while
/// only one process runs; the step's node list tells the two apart.
Found slurm(const Environment& e) {
  if (!e.text("SLURM_STEP_NODELIST")) return {};
  return {e.rank("SLURM_PROCID"), e.size("SLURM_NTASKS"), slurm_coordinator(e),
          "Slurm's SLURM_PROCID, SLURM_NTASKS"};
}

Found open_mpi(const Environment& e) {
  return {e.rank("OMPI_COMM_WORLD_RANK"),
          e.size("OMPI_COMM_WORLD_SIZE"),
          {},
          "Open MPI's OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE"};
}

/// srun speaks PMI too; then the coordinator is Slurm's.
Found pmi(const Environment& e) {
  Found found{e.rank("PMI_RANK"), e.size("PMI_SIZE"), {}, "PMI's PMI_RANK, PMI_SIZE"};
  if (!found.rank) return found;
  const Found step = slurm(e);
  if (step.rank == found.rank && step.size == found.size) found.coordinator = step.coordinator;
  return found;
}

Found pals(const Environment& e) {
  return {e.rank("PALS_RANKID"), {}, {}, "PALS's PALS_RANKID"};
}

Found kubernetes(const Environment& e) {
  return {e.rank("JOB_COMPLETION_INDEX"), {}, {}, "Kubernetes's JOB_COMPLETION_INDEX"};
}

/// A true torchrun is the innermost launcher where there are several (srun torchrun; torchrun in a
/// Kubernetes job): the outer one numbers torchrun's agents, not the ranks. RANK and WORLD_SIZE
/// without it are somebody's script and come last.
Found find_launcher(const Environment& e) {
  if (e.text("TORCHELASTIC_RUN_ID")) {
    Found found = torch(e);
    if (found.rank && found.size) return found;
  }
  for (const auto look : {open_mpi, pmi, slurm, pals, kubernetes, torch}) {
    Found found = look(e);
    if (found.rank || (found.size && found.source.starts_with("torchrun"))) return found;
  }
  return {};
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

void take_coordinator(JobIdentity& identity, const Found& launcher, const Options& options,
                      const Config& config, const Environment& environment) {
  if (identity.rank == 0) {
    if (options.coordinator_fd)
      identity.coordinator_fd = *options.coordinator_fd;
    else if (config.coordinator_fd)
      identity.coordinator_fd = *config.coordinator_fd;
  }
  if (options.coordinator)
    identity.coordinator = *options.coordinator;
  else if (config.coordinator)
    identity.coordinator = *config.coordinator;
  else if (launcher.coordinator)
    identity.coordinator = *launcher.coordinator;
  else if (!launcher.source.empty())
    identity.coordinator = torch_coordinator(environment).value_or("");
  if (identity.coordinator.empty() && identity.coordinator_fd < 0)
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
  const Environment environment(get);
  Found job;
  auto complete = [&job](std::optional<int> rank, std::optional<int> size, const char* source) {
    const bool adds = (rank && !job.rank) || (size && !job.size);
    if (!job.rank) job.rank = rank;
    if (!job.size) job.size = size;
    if (adds) job.source += (job.source.empty() ? "" : "; ") + std::string(source);
  };
  complete(options.rank, options.size, "options");
  complete(config.rank, config.size, "ROPEWALK_*");
  Found launcher;
  if (!job.rank || !job.size) {
    launcher = find_launcher(environment);
    complete(launcher.rank, launcher.size, launcher.source.c_str());
    if (!job.size) complete({}, environment.size("WORLD_SIZE"), "WORLD_SIZE");
  }
  if (!job.rank && (!job.size || *job.size == 1)) {
    JobIdentity alone;
    alone.source = "nothing set: a job of one";
    if (job.size) alone.source = job.source;
    return alone;
  }
  check(job);
  JobIdentity identity;
  identity.rank = *job.rank;
  identity.size = *job.size;
  identity.source = job.source;
  if (identity.size > 1) take_coordinator(identity, launcher, options, config, environment);
  return identity;
}

}  // namespace ropewalk
