// ropewalk simulate: what collectives would take on a network that is described.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>

#include "base/text.h"
#include "bootstrap/config.h"
#include "ropewalk/status.h"
#include "tools/bench/shape.h"
#include "tools/command/command.h"
#include "tools/command/words.h"
#include "tools/launcher/hosts.h"
#include "tools/simulate/pictures.h"
#include "tools/simulate/simulate.h"

namespace ropewalk::tools {
namespace {

constexpr size_t kVectorBytesMax = size_t{1} << 44;
constexpr size_t kModelBytesMax = size_t{1} << 24;
constexpr const char* kSimulateExamples =
    "Examples:\n"
    "  ropewalk simulate all_reduce -n 64 --network flat:rate=200gbit --bytes 64M\n"
    "  ropewalk simulate all_reduce -n 65536 --network flat --bytes 1G --algorithm ring\n"
    "  ropewalk simulate all_gather --network racks:8x16:uplink=4 --bytes 16M --json\n"
    "  ropewalk simulate all_reduce --network racks:2x4:uplink=16 --bytes 8M --algorithm "
    "synthesized\n"
    "  ropewalk simulate all_reduce --network cluster.json --bytes 8M --trace messages.txt\n"
    "  ropewalk simulate all_reduce --network racks:2x4:uplink=4 --bytes 8M --plot racks.svg\n"
    "  ropewalk simulate all_reduce --network fat-tree:k=8 --bytes 8M --faults 17\n"
    "  ropewalk simulate all_reduce --network rail:hosts=16:gpus=8 --step model.json\n"
    "  ropewalk simulate all_reduce --network torus:4x4 --print-network > torus.json\n"
    "Networks: flat, racks:RxH, fat-tree:k=K, rail:hosts=H:gpus=G, torus:AxBxC, or a file. "
    "Settings\n"
    "after a colon: rate=100gbit, latency=2us, overhead=500ns, ranks=N of a host, uplink=TIMES.\n"
    "docs/simulation.md tells what is reckoned with. Nothing is run or measured.\n"
    "Exit status: 0; 1 where nothing could be simulated; 2 for wrong input.";

struct SimulateFlags {
  std::string collective, bytes, network = "flat", algorithm = "auto", trace, step, faults;
  PictureFlags picture;
  int ranks = 0, root = 0;
  bool event_by_event = false, list_order = false, print_network = false, trees = false,
       json = false;
};

[[noreturn]] void refuse_simulation(const std::string& why, const std::string& advice) {
  throw Error(ErrorCode::invalid_argument, "simulate", why, advice);
}

std::vector<std::string> simulated_words() {
  std::vector<std::string> words = bench_kind_names();
  std::erase(words, "send_recv");  // run by no algorithm
  return words;
}

SimulateOptions simulate_options_of(const SimulateFlags& flags, int ranks) {
  SimulateOptions options;
  options.collective = bench_kind_named(flags.collective)->collective;
  options.network_words = flags.network;
  options.root = flags.root;
  options.way = {flags.event_by_event, flags.list_order};
  options.trees = flags.trees;
  options.algorithm = *algorithm_named(flags.algorithm);
  check_algorithm("simulate", *bench_kind_named(flags.collective), options.algorithm);
  const auto bytes = parse_size(options.collective == Collective::barrier ? "1" : flags.bytes);
  if (!bytes || *bytes == 0 || *bytes > kVectorBytesMax)
    refuse_simulation(flags.bytes.empty()
                          ? "of how many bytes?"
                          : fmt::format("--bytes: \"{}\" is not a size", flags.bytes),
                      "write --bytes 8, 64K or 1G; at most 16T");
  options.bytes = *bytes;
  options.sizes = plot_sizes(flags.picture, options.collective, options.bytes, "simulate");
  if (flags.root < 0 || flags.root >= ranks)
    refuse_simulation(fmt::format("--root {} of {} ranks", flags.root, ranks),
                      fmt::format("choose 0 to {}", ranks - 1));
  return options;
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kModelBytesMax, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())) && !file.eof())
    refuse_simulation(fmt::format("cannot read {}: {}", path, std::strerror(errno)),
                      "--step names a file (docs/simulation.md)");
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

/// On a terminal: what is under way, in place of what was there.
void show_progress(const std::string& what) {
  fmt::print(stderr, "\r\033[K{}", what.empty() ? "" : fmt::format("simulating {} ...", what));
  std::fflush(stderr);
}

/// Clears what is shown in the end, whatever happens.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (is_shown_) show_progress("");
  }
  std::function<void(const std::string&)> teller() const {
    if (!is_shown_) return {};
    return show_progress;
  }

 private:
  const bool is_shown_ = isatty(STDERR_FILENO) == 1;
};

/// What it does not heed is refused.
int run_step(const SimulateFlags& flags, const Network& network) {
  const auto refuse = [](const std::string& why) {
    refuse_simulation(why, "leave it away, or --step");
  };
  if (flags.collective != name_of(Collective::all_reduce))
    refuse_simulation(fmt::format("--step: buckets are averaged, not by {}", flags.collective),
                      "write all_reduce");
  if (!flags.picture.plot.empty()) refuse("--plot draws a call, no training step");
  if (!flags.trace.empty()) refuse("--trace is of a call, not of a training step");
  if (!flags.bytes.empty()) refuse("--bytes are of a call; those of a step stand in its file");
  if (flags.event_by_event || flags.list_order || flags.trees || flags.root != 0)
    refuse("--event-by-event, --list-order, --trees and --root are of a call");
  const Algorithm forced = *algorithm_named(flags.algorithm);
  check_algorithm("simulate", *bench_kind_named(flags.collective), forced);
  const TrainingModel model = parse_training_model(text_of_file(flags.step));
  const TrainingStep step = simulate_step(network, model, forced);
  fmt::print("{}", flags.json ? step_json(model, step) : step_text(model, step));
  return 0;
}

int run_call(const SimulateFlags& flags, const Network& network, const std::string& faults) {
  SimulateOptions options = simulate_options_of(flags, network.ranks());
  const std::optional<PlotFile> plot = open_plot(flags.picture, "simulate");
  std::optional<TraceFile> trace;
  if (!flags.trace.empty()) trace.emplace(flags.trace);
  Routes routes(network);
  const ProgressLine line;
  options.on_begin = line.teller();
  Simulated simulated = simulate_all(routes, options);
  simulated.faults = faults;
  if (options.on_begin) options.on_begin("");
  fmt::print("{}", flags.json ? simulated_json(network, options, simulated)
                              : simulated_text(network, options, simulated));
  std::fflush(stdout);
  if (trace) trace->write(routes, options, simulated);
  if (plot) plot_simulation(routes, options, simulated, *plot);
  return simulated.has_any() ? 0 : 1;
}

int run_simulation(const SimulateFlags& flags) {
  Network network = find_network(flags.network, flags.ranks);
  std::string faults;
  if (!flags.faults.empty()) {
    const auto seed = parse_number<uint64_t>(flags.faults);
    if (!seed)
      refuse_simulation(fmt::format("--faults: \"{}\" is no number", flags.faults),
                        "write --faults 17");
    network = with_faults(network, *seed, faults);
  }
  if (flags.print_network) {
    network.given = GivenCosts::all();
    fmt::print("{}", text_of(network));
    return 0;
  }
  return flags.step.empty() ? run_call(flags, network, faults) : run_step(flags, network);
}

}  // namespace

void add_simulate_command(Command app, Request& request) {
  auto flags = std::make_shared<SimulateFlags>();
  Command command = app.add_command("simulate", "predict what a collective takes on any network",
                                    kSimulateExamples);
  command.add_option("collective", flags->collective, "which one")
      .one_of(simulated_words())
      .required();
  command.add_option("--bytes", flags->bytes, "the whole vector: 8, 64K, 1G; not of barrier");
  command.add_option("-n,--ranks", flags->ranks, "how many ranks; default: as the network says")
      .between(1, kNetworkRanksMax);
  command.add_option("--network", flags->network, "a template, or a file (docs/network.md)")
      .show_default();
  command
      .add_option("--algorithm", flags->algorithm,
                  "this one alone; synthesized: made for the network")
      .one_of(names<Algorithm>(kAlgorithms))
      .show_default();
  command.add_option("--root", flags->root, "of broadcast, reduce, gather, scatter");
  command.add_flag("--trees", flags->trees,
                   "those of a schedule that is made: root, part of the vector, edges");
  command.add_option("--step", flags->step, "a training step instead: file with its buckets");
  command.add_option("--faults", flags->faults, "a seed: one host slow, another one gone");
  command.add_option("--trace", flags->trace, "file for the messages of the fastest algorithm");
  add_picture_options(command, flags->picture);
  command.add_flag("--event-by-event", flags->event_by_event,
                   "run all ranks, also where some behave alike");
  command.add_flag("--list-order", flags->list_order,
                   "one step after the other, each message whole: nothing is announced or granted");
  command.add_flag("--print-network", flags->print_network, "write its description, and end");
  command.add_flag("--json", flags->json, "one JSON object");
  command.set_action(request, [flags] { return run_simulation(*flags); });
}

}  // namespace ropewalk::tools
