#include "tools/bench/job.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "bootstrap/config.h"
#include "bootstrap/world.h"
#include "tools/launcher/launcher.h"
#include "tools/launcher/processes.h"

namespace ropewalk::tools {
namespace {

// This process's own command line: the ranks run it again, and see that they are in a job.
std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty()) words.emplace_back();
  words[0] = own_path();
  return words;
}

JobSpec job_of(const BenchRanks& ranks) {
  JobSpec job;
  job.command = ranks.command;
  job.ranks = ranks.count > 0 ? ranks.count : 2;
  if (!ranks.hosts.empty()) {
    job.hosts = assign_ranks(parse_hosts(ranks.hosts), ranks.count);
    job.ranks = 0;
    for (const HostSlots& host : job.hosts) job.ranks += host.slots;
    job.remote_ropewalk = ranks.remote_ropewalk;
  }
  job.bind = true;
  job.prefix = false;
  job.give_stdin = false;
  return job;
}

}  // namespace

bool is_inside_job() {
  if (getenv("ROPEWALK_RANK") != nullptr) return true;
  return find_identity(Options{}, config_from_environment(), getenv).size != 1;
}

int count_of(const BenchRanks& ranks) {
  return job_of(ranks).ranks;
}

int launch_bench(const BenchRanks& ranks) {
  JobSpec job = job_of(ranks);
  job.program = own_command_line();
  if (!job.hosts.empty() && !ranks.remote_ropewalk.empty()) job.program[0] = ranks.remote_ropewalk;
  return launch(job);
}

std::shared_ptr<Communicator> join_job(std::string_view command, int ranks,
                                       const Options& options) {
  auto comm = Communicator::create(options);
  if (ranks > 0 && ranks != comm->size())
    throw Error(ErrorCode::invalid_argument, std::string(command),
                fmt::format("-n {} inside a job of {} ranks", ranks, comm->size()),
                "leave -n away to measure the job that this runs in");
  return comm;
}

Options join_options(const std::string& transport, bool secure,
                     std::optional<std::chrono::nanoseconds> timeout) {
  Options join;
  if (!transport.empty()) join.transport = transport;
  if (secure) join.secure = true;
  join.timeout = timeout;
  return join;
}

std::optional<std::chrono::nanoseconds> parse_timeout(const std::string& text) {
  if (text.empty()) return {};
  const auto timeout = parse_duration(text);
  if (!timeout)
    throw Error(ErrorCode::invalid_argument, "bench",
                fmt::format("--timeout: \"{}\" is not a duration", text), "write 30, 1.5 or 500ms");
  return timeout;
}

}  // namespace ropewalk::tools
