// ropewalk run: starts the ranks of a job. ropewalk run-agent: its part on another host.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>

#include "base/text.h"
#include "bootstrap/config.h"
#include "ropewalk/status.h"
#include "tools/command/command.h"
#include "tools/command/words.h"
#include "tools/launcher/agent.h"
#include "tools/launcher/hosts.h"
#include "tools/launcher/jax.h"
#include "tools/launcher/launcher.h"
#include "tools/launcher/nodes.h"
#include "tools/launcher/rank_environment.h"

namespace ropewalk::tools {
namespace {

struct RunFlags {
  std::optional<std::string> ranks, hosts, transport, timeout, workdir, remote_ropewalk, time_limit;
  std::optional<std::string> elastic, restarts, host_timeout;
  NodeFlags node;
  std::string grace = "2";
  std::vector<std::string> exports;
  bool bind = false, no_prefix = false, no_stdin = false, secure = false, jax = false;
};

constexpr const char* kRunExamples =
    "Examples:\n"
    "  ropewalk run -n 4 -- ./train --epochs 3\n"
    "  ropewalk run -n 4 --bind --transport shm -- python3 train.py\n"
    "  ropewalk run --hosts node1:2,node2:2 -x PYTHONPATH -- python3 train.py\n"
    "  ropewalk run --elastic 2:4 --restart 10 -- ./train    # goes on without ranks that are "
    "lost\n"
    "  ropewalk run --hosts a:4,b:4,c:4,d:4 --elastic 6:12 --restart 100 -- ./train    # d: spare\n"
    "  ropewalk run --nnodes 4 -n 2 -- ./train    # in each pod of an Indexed Job of Kubernetes\n"
    "Options stand before the program; every word after its name is the program's own.\n"
    "Exit status: that of the first rank to fail (128 + signal); 127: program not found; 126: it, "
    "or\n"
    "--workdir, cannot be used; 124: time limit; 255: a host was lost; 2: wrong command line; 1: "
    "the job\n"
    "could not be started; 74: all ranks succeeded, but output was lost, as on a full disk (where "
    "the job\n"
    "goes on); 141: standard output was closed, which ends the job.";

constexpr std::chrono::hours kTimeMax{365 * 24};
constexpr std::chrono::seconds kHostTimeoutMin{3};  // agents show life each second
constexpr std::chrono::hours kHostTimeoutMax{24};

[[noreturn]] void refuse(const std::string& flag, const std::string& value, const std::string& why,
                         const std::string& advice) {
  throw Error(ErrorCode::invalid_argument, "run", fmt::format("{} \"{}\": {}", flag, value, why),
              advice);
}

int count_of_ranks(const std::string& text) {
  const auto ranks = parse_number<int>(text);
  if (!ranks || *ranks < 1 || *ranks > kRanksMax)
    refuse("-n", text, fmt::format("the number of ranks must be 1 to {}", kRanksMax), "write -n 4");
  return *ranks;
}

struct RankRange {
  int min = 1, max = 1;
};

RankRange range_of(const std::string& text) {
  const size_t colon = std::min(text.find(':'), text.size());
  const auto min = parse_number<int>(text.substr(0, colon));
  const auto max = parse_number<int>(text.substr(std::min(colon + 1, text.size())));
  if (!min || !max || *min < 1 || *min > *max || *max > kRanksMax)
    refuse("--elastic", text,
           fmt::format("it must be MIN:MAX with 1 <= MIN <= MAX <= {}", kRanksMax),
           "write --elastic 2:4");
  return {*min, *max};
}

/// How many ranks an elastic job starts with. `ranks`, `slots`: 0 where not given.
int elastic_ranks(const RunFlags& flags, int ranks, int64_t slots) {
  const RankRange range = range_of(*flags.elastic);
  if (flags.node.nnodes)
    refuse("--elastic", *flags.elastic, "with --nnodes no launcher knows all ranks",
           "leave one of them out");
  if (ranks == 0)
    ranks = slots == 0 ? range.max : static_cast<int>(std::min<int64_t>(range.max, slots));
  if (ranks < range.min || ranks > range.max)
    refuse("--elastic", *flags.elastic, fmt::format("the job would start with {} ranks", ranks),
           "write MIN:MAX with that number between, or another -n");
  return ranks;
}

std::optional<Elastic> elastic_of(const RunFlags& flags) {
  const auto restarts = parse_number<int>(flags.restarts.value_or("0"));
  if (!restarts || *restarts < 0)
    refuse("--restart", *flags.restarts, "it must be a number of restarts", "write --restart 10");
  if (flags.restarts && !flags.elastic)
    refuse("--restart", *flags.restarts, "only in an elastic job can ranks join again",
           "write --elastic 2:4 with it");
  if (!flags.elastic) return {};
  return Elastic{range_of(*flags.elastic).min, *restarts};
}

std::chrono::milliseconds time_of(const char* flag, const std::string& text, bool may_be_zero) {
  const auto time = parse_duration(text);
  if (!time || *time > kTimeMax || (*time <= std::chrono::nanoseconds(0) && !may_be_zero)) {
    refuse(flag, text,
           may_be_zero ? "it must be a time, at most a year"
                       : "it must be a time above 0, at most a year",
           fmt::format("write {0} 30 (seconds), {0} 500ms or {0} 2m", flag));
  }
  return std::chrono::ceil<std::chrono::milliseconds>(*time);
}

std::chrono::milliseconds host_timeout_of(const std::string& text) {
  const auto time = time_of("--host-timeout", text, false);
  if (time < kHostTimeoutMin || time > kHostTimeoutMax)
    refuse("--host-timeout", text,
           fmt::format("it must be {} s to {} h", kHostTimeoutMin.count(), kHostTimeoutMax.count()),
           "write --host-timeout 26");
  return time;
}

// "NAME" takes this process's value; "NAME=value" is taken as it is.
std::string export_entry(const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  if (name.empty()) {
    refuse("-x", word, "it names no variable", "write -x NAME or -x NAME=value");
  }
  if (is_identity_variable(name)) {
    refuse("-x", word, "the launcher gives each rank one of its own", "leave it out");
  }
  if (word.find('=') != std::string::npos) return word;
  const char* value = getenv(word.c_str());
  if (value == nullptr) {
    refuse("-x", word, "there is no such variable", "set it, or write -x " + word + "=value");
  }
  return word + "=" + value;
}

// Refuses what the library would refuse on every rank; `flag` is what the user has written.
void check_variable(const std::string& flag, const std::string& name, const std::string& value) {
  if (!name.starts_with("ROPEWALK_")) return;
  try {
    parse_config([&](const char* asked) { return asked == name ? value.c_str() : nullptr; });
  } catch (const Error& error) {
    // Its reason begins with the variable, which the user may not have named.
    const std::string subject = fmt::format("{}=\"{}\" is not allowed; ", name, value);
    const std::string& reason = error.failure().reason;
    if (!reason.starts_with(subject)) throw;
    refuse(flag, flag == "-x" ? name + "=" + value : value, reason.substr(subject.size()),
           "see: ropewalk env");
  }
}

std::vector<std::string> environment_of(const RunFlags& flags) {
  std::vector<std::string> entries;
  for (const std::string& word : flags.exports) {
    entries.push_back(export_entry(word));
    const size_t name_end = entries.back().find('=');
    check_variable("-x", entries.back().substr(0, name_end), entries.back().substr(name_end + 1));
  }
  const auto add = [&entries](const char* flag, const char* name,
                              const std::optional<std::string>& value) {
    if (!value) return;
    if (value->empty()) refuse(flag, *value, "it is empty", "give a value, or leave it out");
    check_variable(flag, name, *value);
    entries.push_back(std::string(name) + "=" + *value);
  };
  add("--transport", "ROPEWALK_TRANSPORT", flags.transport);
  add("--timeout", "ROPEWALK_TIMEOUT", flags.timeout);
  if (flags.elastic) entries.push_back("ROPEWALK_ELASTIC=1");
  if (flags.secure) entries.push_back("ROPEWALK_SECURE=1");
  return entries;
}

std::vector<std::string> jax_of(const RunFlags& flags, const JobSpec& job) {
  if (flags.node.nnodes && getenv("JAX_COORDINATOR_ADDRESS") == nullptr)
    throw Error(ErrorCode::invalid_argument, "run",
                "with --nnodes no launcher knows where JAX's processes are to meet",
                "set JAX_COORDINATOR_ADDRESS=host:port, of node 0, on every node");
  return jax_environment(job.hosts, job.environment);
}

void check_nodes(const RunFlags& flags, const JobSpec& job) {
  if (flags.hosts)
    refuse("--hosts", *flags.hosts, "with --nnodes each node starts its own ranks",
           "leave one of them out");
  if (job.ranks > kRanksMax / job.node.count)
    refuse("--nnodes", *flags.node.nnodes,
           fmt::format("the job would have more than {} ranks", kRanksMax), "write fewer");
  check_common_key(getenv);
}

JobSpec job_of(const RunFlags& flags, std::vector<std::string> program) {
  JobSpec job;
  int ranks = flags.ranks ? count_of_ranks(*flags.ranks) : 0;
  std::vector<HostSlots> hosts;
  if (flags.hosts) hosts = parse_hosts(*flags.hosts);
  job.elastic = elastic_of(flags);
  if (job.elastic) ranks = elastic_ranks(flags, ranks, slots_of(hosts));
  if (flags.hosts) {
    job.hosts = assign_ranks(std::move(hosts), ranks, job.elastic.has_value());
    job.ranks = 0;
    for (const HostSlots& host : job.hosts) job.ranks += host.slots;
  } else {
    job.ranks = ranks;
  }
  job.node = node_of(flags.node, getenv);
  if (job.node.count > 1) check_nodes(flags, job);
  job.bind = flags.bind;
  job.prefix = !flags.no_prefix;
  job.give_stdin = !flags.no_stdin && job.node.rank == 0;
  if (flags.workdir) {
    if (flags.workdir->empty()) refuse("--workdir", "", "it is empty", "name a directory");
    job.workdir = *flags.workdir;
  }
  job.remote_ropewalk = flags.remote_ropewalk.value_or("");
  job.grace = time_of("--grace", flags.grace, true);
  if (flags.host_timeout) job.host_timeout = host_timeout_of(*flags.host_timeout);
  if (flags.time_limit) job.time_limit = time_of("--time-limit", *flags.time_limit, false);
  job.environment = environment_of(flags);
  if (flags.jax) std::ranges::copy(jax_of(flags, job), std::back_inserter(job.environment));
  job.program = std::move(program);
  if (job.program.empty() || job.program[0].empty()) {
    throw Error(ErrorCode::invalid_argument, "run", "no program given",
                "write: ropewalk run -n 4 -- program arguments");
  }
  if (job.ranks == 0) {
    throw Error(ErrorCode::invalid_argument, "run", "how many ranks?", "write -n 4, or --hosts");
  }
  return job;
}

void add_flags(Command run, RunFlags& flags) {
  run.add_option("-n,--np,--ranks", flags.ranks, "how many ranks; with --hosts: at most its slots");
  run.add_option("--hosts", flags.hosts,
                 "hosts and their ranks, by ssh: node1:2,node2:2; they are filled in this order");
  run.add_option("--nnodes", flags.node.nnodes,
                 "nodes that no ssh reaches: each runs this command, with equal -n, for its ranks");
  run.add_option("--node-rank", flags.node.node_rank,
                 "which of them this is; default: JOB_COMPLETION_INDEX, PET_NODE_RANK");
  run.add_option("--coordinator", flags.node.coordinator,
                 "HOST:PORT of node 0 for rank 0 to listen at; default: ROPEWALK_COORDINATOR, "
                 "PET_MASTER_ADDR and PET_MASTER_PORT, Kubernetes's first pod");
  run.add_option("--timeout", flags.timeout,
                 "deadline of every wait of the library: 30, 500ms (ROPEWALK_TIMEOUT)");
  run.add_option("--transport", flags.transport, "of the library (ROPEWALK_TRANSPORT)")
      .type_name(type_of(transport_words()));
  run.add_flag("--jax", flags.jax,
               "JAX's collectives on CPUs go over Ropewalk (MPITRAMPOLINE_LIB, "
               "JAX_CPU_COLLECTIVES_IMPLEMENTATION, JAX_COORDINATOR_ADDRESS)");
  run.add_flag("--secure", flags.secure,
               "seal what is sent between hosts, which takes TCP (ROPEWALK_SECURE=1)");
  run.add_option(
      "--elastic", flags.elastic,
      "MIN:MAX ranks: the job, which starts with -n or MAX of them, goes on without those "
      "that are lost as long as MIN are left (ROPEWALK_ELASTIC=1)");
  run.add_option("--restart", flags.restarts,
                 "with --elastic: so many lost ranks, in all, are started again, and join the job; "
                 "those of a lost host in slots of --hosts that are free");
  run.add_option("--host-timeout", flags.host_timeout,
                 "a host of which the launcher hears nothing for so long is lost; default: 26");
  run.add_flag("--bind", flags.bind, "bind one rank to a core, while there are cores");
  run.add_flag("--no-prefix", flags.no_prefix, "print output as it comes, without \"[rank] \"");
  run.add_flag("--no-stdin", flags.no_stdin, "give rank 0 /dev/null instead of standard input");
  run.add_option("-x,--export", flags.exports, "NAME or NAME=value for every rank; repeatable")
      .one_word_each();
  run.add_option("--workdir", flags.workdir, "directory of the ranks; default: this one");
  run.add_option("--grace", flags.grace,
                 "how long ranks may take to end: others after a failure, all after Ctrl-C; then "
                 "again after SIGTERM; and what they left behind, since it last printed")
      .show_default();
  run.add_option("--time-limit", flags.time_limit, "end the whole job after so long: 90, 2h");
  run.add_option("--remote-ropewalk", flags.remote_ropewalk,
                 "path of ropewalk on the other hosts; default: as here");
}

}  // namespace

void add_run_command(Command app, Request& request) {
  auto flags = std::make_shared<RunFlags>();
  Command run = app.add_command(
      "run",
      "start the ranks of a job, here or on several hosts: run [OPTIONS] [--] program [arguments]",
      kRunExamples);
  run.take_program();
  add_flags(run, *flags);
  run.set_action(request, [flags, &request] { return launch(job_of(*flags, request.program)); });

  app.add_hidden_command("run-agent", "what `ropewalk run` starts on other hosts")
      .set_action(request, [] {
        return run_agent(UniqueFd(dup(STDIN_FILENO)), UniqueFd(dup(STDOUT_FILENO)), UniqueFd());
      });
}

}  // namespace ropewalk::tools
