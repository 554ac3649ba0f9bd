// ropewalk run: starts the ranks of a job. ropewalk run-agent: its part on another host.
#include <unistd.h>

#include <memory>

#include "agent.h"
#include "bootstrap/knobs.h"
#include "command.h"
#include "launcher.h"
#include "ropewalk/status.h"

namespace ropewalk::tools {
namespace {

struct RunFlags {
  int ranks = 0;
  std::string hosts, transport, timeout, workdir, remote_ropewalk;
  std::vector<std::string> exports;
  bool bind = false, no_prefix = false, no_stdin = false;
  double grace_s = 2, time_limit_s = 0;
};

constexpr const char* kExamples =
    "Examples:\n"
    "  ropewalk run -n 4 -- ./train --epochs 3\n"
    "  ropewalk run -n 4 --bind --transport shm -- python3 train.py\n"
    "  ropewalk run --hosts node1:2,node2:2 -x PYTHONPATH -- python3 train.py\n"
    "Exit status: that of the first rank to fail (128 + signal); 127: program not found; 124: "
    "time\n"
    "limit; 255: a host was lost.";

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

// "NAME" takes this process's value; "NAME=value" is taken as it is.
std::string export_entry(const std::string& word) {
  if (word.find('=') != std::string::npos) return word;
  const char* value = getenv(word.c_str());
  if (value == nullptr) {
    throw Error(ErrorCode::invalid_argument, "run", "-x " + word + ": there is no such variable",
                "set it, or write -x " + word + "=value");
  }
  return word + "=" + value;
}

// "-n 2 -- program ..." or "-n 2 program ... -- ...", where the dashes are the program's own.
std::vector<std::string> program_of(std::vector<std::string> words,
                                    const std::vector<std::string>& after_dashes) {
  const auto first = after_dashes.begin() + (words.empty() && !after_dashes.empty() ? 1 : 0);
  words.insert(words.end(), first, after_dashes.end());
  return words;
}

JobSpec job_of(const RunFlags& flags, std::vector<std::string> program) {
  JobSpec job;
  job.program = std::move(program);
  if (job.program.empty()) {
    throw Error(ErrorCode::invalid_argument, "run", "no program given",
                "write: ropewalk run -n 4 -- program arguments");
  }
  if (!flags.hosts.empty()) {
    job.hosts = assign_ranks(parse_hosts(flags.hosts), flags.ranks);
    job.ranks = 0;
    for (const HostSlots& host : job.hosts) job.ranks += host.slots;
  } else if (flags.ranks == 0) {
    throw Error(ErrorCode::invalid_argument, "run", "how many ranks?", "write -n 4, or --hosts");
  } else {
    job.ranks = flags.ranks;
  }
  job.bind = flags.bind;
  job.prefix = !flags.no_prefix;
  job.give_stdin = !flags.no_stdin;
  job.workdir = flags.workdir;
  job.remote_ropewalk = flags.remote_ropewalk;
  job.grace = to_ms(flags.grace_s);
  if (flags.time_limit_s > 0) job.time_limit = to_ms(flags.time_limit_s);
  for (const std::string& word : flags.exports) job.environment.push_back(export_entry(word));
  if (!flags.transport.empty()) job.environment.push_back("ROPEWALK_TRANSPORT=" + flags.transport);
  if (!flags.timeout.empty()) job.environment.push_back("ROPEWALK_TIMEOUT=" + flags.timeout);
  return job;
}

void add_flags(CLI::App& run, RunFlags& flags) {
  run.add_option("-n,--ranks", flags.ranks, "how many ranks; with --hosts: at most its slots")
      ->check(CLI::Range(1, kRanksMax));
  run.add_option("--hosts", flags.hosts, "hosts and their ranks, by ssh: node1:2,node2:2");
  run.add_option("--timeout", flags.timeout,
                 "deadline of every wait of the library: 30, 500ms (ROPEWALK_TIMEOUT)");
  run.add_option("--transport", flags.transport,
                 std::string(kTransportNamesText) + " (ROPEWALK_TRANSPORT)");
  run.add_flag("--bind", flags.bind, "bind one rank to a core, while there are cores");
  run.add_flag("--no-prefix", flags.no_prefix, "print output as it comes, without \"[rank] \"");
  run.add_flag("--no-stdin", flags.no_stdin, "give rank 0 /dev/null instead of standard input");
  run.add_option("-x,--export", flags.exports, "NAME or NAME=value for every rank; repeatable")
      ->allow_extra_args(false);
  run.add_option("--workdir", flags.workdir, "directory of the ranks; default: this one");
  run.add_option("--grace", flags.grace_s,
                 "seconds for the others to end after a failure, then again after SIGTERM")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  run.add_option("--time-limit", flags.time_limit_s, "end the whole job after so many seconds")
      ->check(CLI::PositiveNumber);
  run.add_option("--remote-ropewalk", flags.remote_ropewalk,
                 "path of ropewalk on the other hosts; default: as here");
}

}  // namespace

void add_run_command(CLI::App& app, Request& request) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* run = app.add_subcommand(
      "run",
      "start the ranks of a job, here or on several hosts: run [OPTIONS] [--] program [arguments]");
  run->footer(kExamples);
  run->prefix_command();
  add_flags(*run, *flags);
  run->callback([run, flags, &request] {
    request.action = [run, flags, &request] {
      return launch(job_of(*flags, program_of(run->remaining(), request.after_dashes)));
    };
  });

  CLI::App* agent = app.add_subcommand("run-agent", "what `ropewalk run` starts on other hosts");
  agent->group("");  // not for people
  agent->callback([&request] {
    request.action = [] {
      return run_agent(UniqueFd(dup(STDIN_FILENO)), UniqueFd(dup(STDOUT_FILENO)), UniqueFd());
    };
  });
}

}  // namespace ropewalk::tools
