// ropewalk bench: measures one collective, in the job it runs in or in one of its own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <memory>

#include "bootstrap/config.h"
#include "tools/bench/job.h"
#include "tools/bench/memory.h"
#include "tools/bench/options.h"
#include "tools/bench/plot.h"
#include "tools/bench/rank.h"
#include "tools/command/command.h"
#include "tools/command/words.h"
#include "tools/launcher/hosts.h"

namespace ropewalk::tools {
namespace {

constexpr const char* kDefaultSizes = "8:64M";
constexpr std::array kLinkBenchmarks = {"put", "pingpong", "signal"};
constexpr const char* kBenchExamples =
    "Examples:\n"
    "  ropewalk bench all_reduce -n 2 --transport shm --sizes 8,64K,1M,64M\n"
    "  ropewalk bench all_reduce -n 4 --sizes 8:64M --dtype bfloat16 --op avg --json\n"
    "  ropewalk bench broadcast -n 4 --root 2 --algorithm tree --buffers plain\n"
    "  ropewalk bench all_reduce --hosts node1:1,node2:1 --transport tcp\n"
    "  ropewalk bench all_reduce -n 2 --plot now.svg --plot-beside before.json\n"
    "  ropewalk bench put --transport shm --sizes 8,1M      (see: ropewalk bench put --help)\n"
    "  srun -n 16 ropewalk bench all_gather --sizes 1M      (joins the job)\n"
    "Exit status: 0; 1 where a result was wrong or a rank failed; 2 for wrong input.";

struct BenchFlags {
  std::string collective, hosts, transport, timeout, remote_ropewalk;
  std::string sizes = kDefaultSizes, type = "float32", op = "sum", algorithm = "auto";
  std::string buffers = "registered", plot, plot_beside;
  int ranks = 0, root = 0, iterations = 0, warmup = 5;
  bool in_place = false, out_of_place = false, secure = false, json = false;
};

[[noreturn]] void refuse_no_collective() {
  throw Error(ErrorCode::invalid_argument, "bench", "what shall be measured?",
              fmt::format("write one of: {}; or, for the link between two ranks: {}",
                          fmt::join(bench_kind_names(), ", "), fmt::join(kLinkBenchmarks, ", ")));
}

/// What stands for a collective: the benchmarks of links are subcommands, but suggested like one.
void add_collective(Command bench, std::string& collective) {
  std::vector<std::string> words = bench_kind_names();
  words.insert(words.end(), kLinkBenchmarks.begin(), kLinkBenchmarks.end());
  bench.add_option("collective", collective, "what to measure").one_of(words);
}

BenchOptions options_of(const BenchFlags& flags) {
  BenchOptions options;
  options.kind = *bench_kind_named(flags.collective);
  options.ranks = flags.ranks;
  options.transport = flags.transport;
  options.secure = flags.secure;
  options.sizes = parse_size_list(flags.sizes);
  options.type = *data_type_named(flags.type);
  options.op = *reduce_kind_named(flags.op);
  options.algorithm = *algorithm_named(flags.algorithm);
  options.root = flags.root;
  options.registered = flags.buffers == "registered";
  options.in_place = flags.in_place || (!flags.out_of_place && options.kind.in_place_by_default());
  options.iterations = flags.iterations;
  options.warmup = flags.warmup;
  options.json = flags.json;
  options.plot = flags.plot;
  options.plot_beside = flags.plot_beside;
  options.timeout = parse_timeout(flags.timeout);
  check(options);
  return options;
}

int launch(const BenchFlags& flags, const BenchOptions& options) {
  const BenchRanks ranks{
      .count = flags.ranks, .hosts = flags.hosts, .remote_ropewalk = flags.remote_ropewalk};
  BenchOptions with_ranks = options;
  with_ranks.ranks = count_of(ranks);
  check(with_ranks);  // before any rank runs
  if (flags.hosts.empty()) {
    check_memory(options.sizes, buffer_bytes(with_ranks));
    if (!options.plot.empty()) BenchPlot{options};  // throws where it could not be drawn
  }
  return launch_bench(ranks);
}

void add_flags(Command bench, BenchFlags& flags) {
  add_collective(bench, flags.collective);
  bench.add_option("-n,--ranks", flags.ranks, "how many ranks to start; default 2")
      .between(1, kRanksMax);
  bench.add_option("--hosts", flags.hosts, "hosts and their ranks, by ssh: node1:1,node2:1");
  bench.add_option("--remote-ropewalk", flags.remote_ropewalk,
                   "path of ropewalk on the other hosts; default: as here");
  bench.add_option("--transport", flags.transport, "default: ROPEWALK_TRANSPORT, else auto")
      .one_of(transport_words());
  bench.add_flag("--secure", flags.secure, kSecureHelp);
  bench.add_option("--sizes", flags.sizes, kSizesHelp).show_default();
  bench.add_option("--dtype", flags.type, "element type")
      .one_of(names<DataType>(kDataTypes))
      .show_default();
  bench.add_option("--op", flags.op, "reduction").one_of(reduction_words()).show_default();
  bench.add_option("--algorithm", flags.algorithm, "force one")
      .one_of(names<Algorithm>(kAlgorithms))
      .show_default();
  bench.add_option("--buffers", flags.buffers, "kind of memory")
      .one_of({"registered", "plain"})
      .show_default();
  bench.add_option("--iterations", flags.iterations, "default: about a second's worth")
      .between(1, 100000000);
  bench.add_option("--warmup", flags.warmup, "iterations before the measured ones")
      .between(1, 100000000)
      .show_default();
  bench.add_option("--timeout", flags.timeout, "deadline of every wait: 30, 500ms");
  bench.add_option("--root", flags.root, "of broadcast, reduce, gather, scatter")
      .between(0, kRanksMax - 1);
  Option in_place = bench.add_flag("--in-place", flags.in_place, "one buffer for both sides");
  bench.add_flag("--out-of-place", flags.out_of_place, "two buffers").excludes(in_place);
  bench.add_flag("--json", flags.json, "one JSON object a line, and nothing else");
  bench.add_option("--plot", flags.plot,
                   "SVG file for time and bus bandwidth over size; of rank 0");
  bench.add_option("--plot-beside", flags.plot_beside,
                   "draw a saved run, too: file with what --json has printed");
}

}  // namespace

void add_bench_command(Command app, Request& request) {
  auto flags = std::make_shared<BenchFlags>();
  Command bench = app.add_command("bench", "measure a collective, or the link between two ranks",
                                  kBenchExamples);
  add_flags(bench, *flags);
  add_p2p_commands(bench, request);
  bench.set_action(request, [flags] {
    if (flags->collective.empty()) refuse_no_collective();
    const BenchOptions options = options_of(*flags);
    return is_inside_job() ? run_bench_rank(options) : launch(*flags, options);
  });
}

}  // namespace ropewalk::tools
