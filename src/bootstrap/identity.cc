#include <algorithm>
#include <limits>
#include <span>

#include "base/text.h"
#include "bootstrap/kubernetes.h"
#include "bootstrap/net.h"
#include "bootstrap/wire.h"
#include "bootstrap/world.h"

namespace ropewalk {
namespace {

using bootstrap::Endpoint;

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

/// 0 where it is not set.
uint32_t slurm_number(const Lookup& get, const char* name) {
  const std::string text = variable(get, name).value_or("0");
  const auto number = parse_number<uint32_t>(text);
  if (!number) fail(fmt::format("{}=\"{}\" is no number of Slurm's", name, text), "correct it");
  return *number;
}

/// Processes of a step. Slurm numbers steps that run no ranks, such as salloc's shell, from the top
/// of 32 bits.
bool is_in_slurm_step(const Lookup& get) {
  constexpr uint32_t kSpecialSteps = 0xfffffff0;
  return variable(get, "SLURM_STEP_NODELIST") && slurm_number(get, "SLURM_STEP_ID") < kSpecialSteps;
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
  const uint32_t job = slurm_number(get, "SLURM_JOB_ID");
  const uint32_t step = slurm_number(get, "SLURM_STEP_ID");
  return to_text(Endpoint{*host, static_cast<uint16_t>(20000 + (job + 131UL * step) % 10000)});
}

std::string slurm_step(const Lookup& get) {
  return fmt::format("{}.{}", variable(get, "SLURM_JOB_ID").value_or("0"),
                     variable(get, "SLURM_STEP_ID").value_or("0"));
}

bool is_in_torchrun(const Lookup& get) {
  return variable(get, "TORCHELASTIC_RUN_ID").has_value();
}
bool has_pmix(const Lookup& get) {
  return variable(get, "PMIX_NAMESPACE").has_value();
}
/// Slurm's plugin is the server.
bool has_slurms_pmix(const Lookup& get) {
  return variable(get, "PMIX_NAMESPACE").value_or("").starts_with("slurm.") &&
         is_in_slurm_step(get);
}

/// How launchers may run within each other.
enum class Level : uint8_t {
  host,     // starts whatever it is given, once or several times on a host: other launchers, too
  job,      // starts the ranks
  process,  // starts processes within what the others have started
  script,   // somebody has set its variables by hand, and nobody knows where
};

struct Launcher {
  std::string_view name;
  Level level;
  const char* rank;                            // the variables that it sets
  const char* size = nullptr;                  // null: it does not tell
  bool (*runs_here)(const Lookup&) = nullptr;  // null: wherever `rank` is set
  const char* mark = nullptr;                  // one that it sets wherever it sets `rank`
  const char* elsewhere = nullptr;             // said where it does not run here; null: nothing
};

/// A true torchrun is the innermost launcher where there are several (srun torchrun; torchrun in a
/// Kubernetes job): the outer one numbers torchrun's agents, not the ranks. RANK and WORLD_SIZE
/// without it are somebody's script and come last.
/// Inside an sbatch script, but outside srun, SLURM_PROCID and SLURM_NTASKS are set as well while
/// only one process runs; the step's node list tells the two apart.
constexpr Launcher kLaunchers[] = {
    {"torchrun", Level::process, "RANK", "WORLD_SIZE", is_in_torchrun},
    {"Open MPI", Level::job, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr,
     "OMPI_COMM_WORLD_SIZE"},
    {"PMIx", Level::job, "PMIX_RANK", "SLURM_NTASKS", has_slurms_pmix},
    {"PMIx", Level::job, "PMIX_RANK", nullptr, has_pmix, "PMIX_NAMESPACE",
     "PMIX_NAMESPACE is not set"},
    {"PMI", Level::job, "PMI_RANK", "PMI_SIZE", nullptr, "PMI_SIZE"},
    {"Slurm", Level::host, "SLURM_PROCID", "SLURM_NTASKS", is_in_slurm_step, "SLURM_STEP_NODELIST",
     "this is no process of a step of srun's"},
    {"PALS", Level::host, "PALS_RANKID"},
    {"Kubernetes", Level::host, "JOB_COMPLETION_INDEX"},
    {"torchrun", Level::script, "RANK", "WORLD_SIZE", nullptr, "WORLD_SIZE"},
};

/// What one launcher says; what it does not say stays empty.
struct Found {
  const Launcher* launcher = nullptr;
  std::optional<int> rank, size;

  bool is(std::string_view name) const { return launcher != nullptr && launcher->name == name; }
  /// "Slurm's SLURM_PROCID, SLURM_NTASKS".
  std::string names() const {
    return fmt::format("{}'s {}{}{}", launcher->name, launcher->rank, size ? ", " : "",
                       size ? launcher->size : "");
  }
  /// "Slurm's SLURM_PROCID=1, SLURM_NTASKS=2".
  std::string text() const {
    return fmt::format("{}'s {}={}{}", launcher->name, launcher->rank, *rank,
                       size ? fmt::format(", {}={}", launcher->size, *size) : "");
  }
};

/// "Slurm's SLURM_PROCID=1 (this is no process of a step of srun's)".
std::string passed_over(const Launcher& launcher, const Lookup& get, std::string_view why) {
  return fmt::format("{}'s {}={} ({})", launcher.name, launcher.rank,
                     variable(get, launcher.rank).value_or(""), why);
}

/// All that name a rank, the one that counts first; `others`: those whose rank is none here.
std::vector<Found> find_launchers(const Lookup& get, std::vector<std::string>& others) {
  std::vector<Found> all;
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.runs_here != nullptr && !launcher.runs_here(get)) {
      if (launcher.elsewhere != nullptr && variable(get, launcher.rank))
        others.push_back(passed_over(launcher, get, launcher.elsewhere));
      continue;
    }
    Found found{&launcher, rank_in(get, launcher.rank), {}};
    if (launcher.size != nullptr) found.size = size_in(get, launcher.size);
    // A true torchrun sets both; its variables may have been handed on to another launcher's ranks.
    const bool is_half = launcher.level == Level::process && !found.size;
    const bool is_said = std::ranges::any_of(all, [&](const Found& other) {
      return std::string_view(other.launcher->rank) == launcher.rank;
    });
    const bool is_doubtful = launcher.level == Level::script && !found.size && !all.empty();
    if (found.rank && is_doubtful && !is_said)
      others.push_back(passed_over(launcher, get, fmt::format("{} is not set", launcher.size)));
    else if (found.rank && !is_half && !is_said)
      all.push_back(found);
  }
  // One that has started a single process has started another launcher, where there is one.
  std::stable_partition(all.begin(), all.end(), [](const Found& found) { return found.size != 1; });
  return all;
}

/// Why `taken` counts and `other` does not; empty: they contradict each other.
std::string reason_against(const Found& other, const Found& taken) {
  if (other.rank == taken.rank && (!other.size || !taken.size || other.size == taken.size))
    return fmt::format("{} says the same", taken.launcher->name);
  if (other.size == 1 && taken.size.value_or(1) != 1)
    return fmt::format("it has started one process, and {} the ranks", taken.launcher->name);
  if (other.launcher->level < taken.launcher->level)
    return fmt::format("{} runs within it", taken.launcher->name);
  return {};
}

/// Of two launchers that could not have run one within the other, one has left its variables here.
void check_agreement(const std::vector<Found>& all) {
  for (const Found& other : all) {
    const Found& taken = all[0];
    if (reason_against(other, taken).empty())
      fail(fmt::format("two launchers disagree: {}, and {}", taken.text(), other.text()),
           "unset those of the launcher that does not run these ranks, or set ROPEWALK_RANK and "
           "ROPEWALK_SIZE");
  }
}

/// Where nothing names a rank: what a launcher has set on each, and only a part of which is here,
/// would make each a job of one. Not so the variables of Slurm outside its steps: an allocation's
/// shell has them, and a batch script.
void refuse_half(const Lookup& get) {
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.mark == nullptr) continue;
    const bool has_rank = variable(get, launcher.rank).has_value();
    const auto mark = variable(get, launcher.mark);
    const bool is_size = std::string_view(launcher.mark) == (launcher.size ? launcher.size : "");
    const bool is_of_one = mark == "1" && is_size;
    const bool is_outside = launcher.level == Level::host && !launcher.runs_here(get);
    if (has_rank == mark.has_value() || is_of_one || is_outside) continue;
    const char* const present = has_rank ? launcher.rank : launcher.mark;
    fail(fmt::format("{}={} is set, and {} is not, although {} sets both", present,
                     *variable(get, present), has_rank ? launcher.mark : launcher.rank,
                     launcher.name),
         "hand on all variables of the launcher, or unset what another has left; for a process on "
         "its own set ROPEWALK_RANK=0 and ROPEWALK_SIZE=1");
  }
}

/// What has been found of rank and size, from several sources.
struct Job {
  std::optional<int> rank, size;
  std::string source;

  void complete(std::optional<int> other_rank, std::optional<int> other_size,
                std::string_view other_source) {
    const bool adds = (other_rank && !rank) || (other_size && !size);
    if (!rank) rank = other_rank;
    if (!size) size = other_size;
    if (adds) source += fmt::format("{}{}", source.empty() ? "" : "; ", other_source);
  }
};

/// Those of ROPEWALK_RANK and ROPEWALK_SIZE that complete `job`.
std::string names_of(const Config& config, const Job& job) {
  const bool has_rank = config.rank && !job.rank, has_size = config.size && !job.size;
  return fmt::format("{}{}{}", has_rank ? "ROPEWALK_RANK" : "", has_rank && has_size ? ", " : "",
                     has_size ? "ROPEWALK_SIZE" : "");
}

/// Launchers that have left variables here, whatever they say: `source` comes first.
std::vector<std::string> all_passed_over(const Lookup& get, std::string_view source) {
  std::vector<std::string> all;
  for (const Launcher& launcher : kLaunchers) {
    std::string text = passed_over(launcher, get, fmt::format("overridden by {}", source));
    if (variable(get, launcher.rank) && std::ranges::count(all, text) == 0)
      all.push_back(std::move(text));
  }
  return all;
}

void check(const Job& job, const Found& launcher) {
  if (job.size && !job.rank)
    fail(fmt::format("the job's size is {} ({}), but this process's rank is not known", *job.size,
                     job.source),
         "set ROPEWALK_RANK, or start the ranks with `ropewalk run` or another launcher");
  if (!job.size)
    fail(fmt::format("this process's rank is {} ({}), but the job's size is not known{}", *job.rank,
                     job.source,
                     launcher.launcher != nullptr && launcher.launcher->size != nullptr
                         ? fmt::format(": {} is not set", launcher.launcher->size)
                         : ""),
         "set ROPEWALK_SIZE (1 for a process on its own, with ROPEWALK_RANK=0)");
  if (*job.rank < 0 || *job.size < 0 || (*job.size > 0 && *job.rank >= *job.size))
    fail(fmt::format("rank {} is out of range for a job of {} ({})", *job.rank, *job.size,
                     job.source),
         "ranks are 0 to size-1");
}

/// Slurm may have started what speaks PMI or PMIx here: rank and size are also Slurm's then.
bool is_slurm(const JobIdentity& identity, const Lookup& get) {
  return is_in_slurm_step(get) && rank_in(get, "SLURM_PROCID") == identity.rank &&
         (identity.size == 0 || size_in(get, "SLURM_NTASKS") == identity.size);
}

/// Where the launcher itself tells rank 0's address.
void take_meeting(JobIdentity& identity, const Found& launcher, const Config& config,
                  const Lookup& get) {
  const bool runs_job = launcher.launcher != nullptr && launcher.launcher->level == Level::job;
  const bool has_slurm = is_slurm(identity, get);
  const bool has_pmi = launcher.is("PMI") && variable(get, "PMI_FD");
  if (runs_job && !has_pmi && has_pmix(get) && rank_in(get, "PMIX_RANK") == identity.rank) {
    identity.discovery = DiscoveryMethod::pmix;
    if (launcher.is("PMIx") && has_slurms_pmix(get)) {
      identity.coordinator = slurm_coordinator(get).value_or("");
      identity.launcher_job = slurm_step(get);
    }
  } else if (has_pmi) {
    identity.discovery = DiscoveryMethod::pmi;
    identity.pmi_fd = *integer_variable(get, "PMI_FD", 0, std::numeric_limits<int>::max());
    identity.launcher_job = variable(get, "PMI_JOBID").value_or("");
    if (has_slurm) identity.coordinator = slurm_coordinator(get).value_or("");
  } else if (launcher.is("Slurm") || (runs_job && has_slurm)) {
    identity.coordinator = slurm_coordinator(get).value_or("");
    identity.launcher_job = slurm_step(get);
    if (config.job_key.empty() && !config.open) identity.discovery = DiscoveryMethod::munge;
  } else if (launcher.is("Kubernetes") && !torch_coordinator(get)) {
    identity.coordinator = bootstrap::kubernetes_coordinator(*launcher.rank, get);
  }
}

void take_coordinator(JobIdentity& identity, const Found& launcher, const Options& options,
                      const Config& config, const Lookup& get) {
  if (identity.rank == 0)
    identity.coordinator_fd = options.coordinator_fd.value_or(config.coordinator_fd.value_or(-1));
  const auto told = options.coordinator ? options.coordinator : config.coordinator;
  identity.coordinator = told.value_or("");
  if (!told && identity.coordinator_fd < 0) take_meeting(identity, launcher, config, get);
  const bool is_found =
      identity.coordinator_fd >= 0 || identity.discovery != DiscoveryMethod::coordinator;
  if (identity.coordinator.empty() && !is_found && launcher.launcher != nullptr)
    identity.coordinator = torch_coordinator(get).value_or("");
  if (identity.coordinator.empty() && !is_found)
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

std::string describe(const JobIdentity& identity) {
  std::string where = identity.coordinator;
  if (identity.discovery == DiscoveryMethod::pmi)
    where = fmt::format("told by the launcher (PMI_FD={})", identity.pmi_fd);
  if (identity.discovery == DiscoveryMethod::pmix)
    where = "told by the launcher's PMIx server (PMIX_NAMESPACE)";
  if (identity.discovery == DiscoveryMethod::munge) where += ", key and port told over munge";
  std::string text = fmt::format(
      "{}: rank {} of {}{}", identity.source.empty() ? "none" : identity.source, identity.rank,
      identity.size == 0 ? "as many as PMIx tells" : std::to_string(identity.size),
      where.empty() ? "" : ", coordinator " + where);
  for (const std::string& other : identity.passed_over)
    text += fmt::format("; not taken: {}", other);
  return text;
}

JobIdentity find_identity(const Options& options, const Config& config, const Lookup& get) {
  if (options.size && *options.size < 1)  // 0 is one that PMIx tells later
    fail(fmt::format("the job's size is {} (options)", *options.size), "a job has 1 rank or more");
  Job job;
  job.complete(options.rank, options.size, "options");
  job.complete(config.rank, config.size, names_of(config, job));
  Found launcher;
  JobIdentity identity;
  if (job.rank && job.size) {
    identity.passed_over = all_passed_over(get, job.source);
  } else {
    const std::vector<Found> all = find_launchers(get, identity.passed_over);
    if (all.empty() && !job.rank && !job.size) refuse_half(get);
    if (!all.empty()) {
      if (!job.rank) check_agreement(all);
      launcher = all[0];
      job.complete(launcher.rank, launcher.size, launcher.names());
      for (const Found& other : std::span(all).subspan(1)) {
        const std::string why = reason_against(other, launcher);
        identity.passed_over.push_back(fmt::format(
            "{} ({})", other.text(), why.empty() ? "overridden by " + job.source : why));
      }
    }
    const bool is_told = options.coordinator || options.coordinator_fd || config.coordinator ||
                         config.coordinator_fd;
    for (const Found& other : all)
      if (other.rank == launcher.rank && (is_told || other.launcher->level == Level::job))
        job.complete({}, other.size, other.names());
    if (launcher.is("PMIx") && !is_told) job.complete({}, 0, "PMIx's pmix.job.size");
    if (!job.size) job.complete({}, size_in(get, "WORLD_SIZE"), "WORLD_SIZE");
  }
  if (!job.rank && job.size.value_or(1) == 1) {
    identity.source = job.size ? job.source : "nothing set: a job of one";
    return identity;
  }
  check(job, launcher);
  identity.rank = *job.rank;
  identity.size = *job.size;
  identity.source = job.source;
  if (identity.size != 1) take_coordinator(identity, launcher, options, config, get);
  return identity;
}

}  // namespace ropewalk
