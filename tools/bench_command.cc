// ropewalk bench: measures one collective, in the job it runs in or in one of its own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <fstream>
#include <memory>

#include "bench_options.h"
#include "bench_rank.h"
#include "bootstrap/knobs.h"
#include "bootstrap/world.h"
#include "cli.h"
#include "command.h"
#include "launcher.h"
#include "ropewalk/status.h"

namespace ropewalk::tools {
namespace {

constexpr const char* kDefaultSizes = "8:64M";
constexpr const char* kExamples =
    "Examples:\n"
    "  ropewalk bench all_reduce -n 2 --transport shm --sizes 8,64K,1M,64M\n"
    "  ropewalk bench all_reduce -n 4 --sizes 8:64M --dtype bfloat16 --op avg --json\n"
    "  ropewalk bench broadcast -n 4 --root 2 --algorithm tree --buffers plain\n"
    "  ropewalk bench all_reduce --hosts node1:1,node2:1 --transport tcp\n"
    "  srun -n 16 ropewalk bench all_gather --sizes 1M      (joins the job)\n"
    "Exit status: 0; 1 where a result was wrong or a rank failed.";

struct BenchFlags {
  std::string collective, hosts, transport, timeout, remote_ropewalk;
  std::string sizes = kDefaultSizes, type = "float32", op = "sum", algorithm = "auto";
  std::string buffers = "registered";
  int ranks = 0, root = 0, iterations = 0, warmup = 5;
  bool in_place = false, out_of_place = false, json = false;
};

// `parse(word)`, or an error that lists what it knows.
template <class Value>
Value named(const char* flag, const std::string& word,
            std::optional<Value> (*parse)(std::string_view),
            const std::vector<std::string>& known) {
  if (const auto value = parse(word)) return *value;
  const std::string nearest = nearest_word(word, known);
  throw Error(ErrorCode::invalid_argument, "bench",
              fmt::format("{}: unknown: \"{}\"{}", flag, word,
                          nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)),
              fmt::format("choose one of {}", fmt::join(known, ", ")));
}

template <class Enum>
std::vector<std::string> names(int count) {
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) words.emplace_back(name_of(static_cast<Enum>(i)));
  return words;
}

std::vector<std::string> kind_names() {
  std::vector<std::string> words = names<Collective>(kCollectives);
  std::erase(words, "send");
  std::erase(words, "recv");
  words.push_back("send_recv");
  return words;
}

BenchOptions options_of(const BenchFlags& flags) {
  BenchOptions options;
  options.kind = named("collective", flags.collective, bench_kind_named, kind_names());
  options.ranks = flags.ranks;
  options.transport = flags.transport;
  options.sizes = parse_size_list(flags.sizes);
  options.type = named("--dtype", flags.type, data_type_named, names<DataType>(kDataTypes));
  options.op = named("--op", flags.op, reduce_kind_named, names<ReduceKind>(kReduceKinds));
  options.algorithm =
      named("--algorithm", flags.algorithm, algorithm_named, names<Algorithm>(kAlgorithms));
  options.root = flags.root;
  options.registered = flags.buffers == "registered";
  options.in_place = flags.in_place || (!flags.out_of_place && options.kind.in_place_by_default());
  options.iterations = flags.iterations;
  options.warmup = flags.warmup;
  options.json = flags.json;
  if (!flags.timeout.empty()) {
    options.timeout = parse_duration(flags.timeout);
    if (!options.timeout) {
      throw Error(ErrorCode::invalid_argument, "bench",
                  fmt::format("--timeout: \"{}\" is not a duration", flags.timeout),
                  "write 30, 1.5 or 500ms");
    }
  }
  check(options);
  return options;
}

bool is_inside_job() {
  if (getenv("ROPEWALK_RANK") != nullptr) return true;
  return find_identity(Options{}, knobs_from_environment(), getenv).size > 1;
}

// This process's own command line: the ranks run it again, and see that they are in a job.
std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty()) words.emplace_back();
  words[0] = own_path();
  return words;
}

int launch_bench(const BenchFlags& flags, const BenchOptions& options) {
  JobSpec job;
  job.command = "ropewalk bench";
  job.program = own_command_line();
  job.ranks = flags.ranks > 0 ? flags.ranks : 2;
  if (!flags.hosts.empty()) {
    job.hosts = assign_ranks(parse_hosts(flags.hosts), flags.ranks);
    job.ranks = 0;
    for (const HostSlots& host : job.hosts) job.ranks += host.slots;
    job.remote_ropewalk = flags.remote_ropewalk;
    if (!flags.remote_ropewalk.empty()) job.program[0] = flags.remote_ropewalk;
  }
  BenchOptions with_ranks = options;
  with_ranks.ranks = job.ranks;
  check(with_ranks);  // before any rank runs
  job.bind = true;
  job.prefix = false;
  job.give_stdin = false;
  return launch(job);
}

void add_flags(CLI::App& bench, BenchFlags& flags) {
  bench
      .add_option("collective", flags.collective,
                  fmt::format("one of {}", fmt::join(kind_names(), ", ")))
      ->required();
  bench.add_option("-n,--ranks", flags.ranks, "how many ranks to start; default 2")
      ->check(CLI::Range(1, kRanksMax));
  bench.add_option("--hosts", flags.hosts, "hosts and their ranks, by ssh: node1:1,node2:1");
  bench.add_option("--remote-ropewalk", flags.remote_ropewalk,
                   "path of ropewalk on the other hosts; default: as here");
  bench.add_option("--transport", flags.transport, "auto, shm or tcp");
  bench.add_option("--sizes", flags.sizes, "bytes: 8,64K,1M or 8:64M (doubling)")
      ->capture_default_str();
  bench.add_option("--dtype", flags.type, "element type")->capture_default_str();
  bench.add_option("--op", flags.op, "reduction")->capture_default_str();
  bench.add_option("--algorithm", flags.algorithm, "force one")->capture_default_str();
  bench.add_option("--buffers", flags.buffers, "kind of memory")
      ->check(CLI::IsMember({"registered", "plain"}))
      ->capture_default_str();
  bench.add_option("--iterations", flags.iterations, "default: about a second's worth")
      ->check(CLI::Range(1, 100000000));
  bench.add_option("--warmup", flags.warmup, "iterations before the measured ones")
      ->check(CLI::Range(1, 100000000))
      ->capture_default_str();
  bench.add_option("--timeout", flags.timeout, "deadline of every wait: 30, 500ms");
  bench.add_option("--root", flags.root, "of broadcast, reduce, gather, scatter")
      ->check(CLI::Range(0, kRanksMax - 1));
  CLI::Option* in_place = bench.add_flag("--in-place", flags.in_place, "one buffer for both sides");
  bench.add_flag("--out-of-place", flags.out_of_place, "two buffers")->excludes(in_place);
  bench.add_flag("--json", flags.json, "one JSON object a line, and nothing else");
}

}  // namespace

void add_bench_command(CLI::App& app, Request& request) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* bench = app.add_subcommand("bench", "measure a collective and check its results");
  bench->footer(kExamples);
  add_flags(*bench, *flags);
  bench->callback([flags, &request] {
    request.action = [flags] {
      const BenchOptions options = options_of(*flags);
      return is_inside_job() ? run_bench_rank(options) : launch_bench(*flags, options);
    };
  });
}

}  // namespace ropewalk::tools
