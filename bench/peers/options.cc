#include "options.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "barrier.h"
#include "segment.h"
#include "tools/bench/options.h"

namespace ropewalk::peers {
namespace {

// Throws what the parser turns into a message.
void fill_in(PeerOptions& options, const std::string& collective, const std::string& type,
             const std::string& sizes) {
  const auto kind = tools::bench_kind_named(collective);
  if (!kind) throw CLI::ValidationError("--collective", "unknown: " + collective);
  const auto data_type = data_type_named(type);
  if (!data_type) throw CLI::ValidationError("--dtype", "unknown: " + type);
  options.kind = *kind;
  options.type = *data_type;
  options.sizes = tools::parse_size_list(sizes);
}

}  // namespace

PeerOptions parse_options(int argc, char** argv) {
  PeerOptions options;
  std::string collective = "all_reduce", type = "float32", sizes, buffers = "registered";
  CLI::App app("One contender of bench/compare; prints one JSON object a line.");
  app.add_option("--segment", options.segment, "file the ranks share; new for every run")
      ->required();
  app.add_option("--ranks", options.ranks)->check(CLI::Range(2, kRanksMax));
  app.add_option("--collective", collective);
  app.add_option("--dtype", type);
  app.add_option("--sizes", sizes, "bytes: 8,64K,1M or 8:64M (doubling)")->required();
  app.add_option("--transport", options.transport);
  app.add_option("--interface", options.interface, "of Gloo and of raw TCP");
  app.add_option("--variant", options.variant);
  app.add_flag("--shared-cores", options.shared_cores,
               "ranks of other hosts run on the same cores: bind none, sleep in barriers");
  app.add_option("--buffers", buffers)->check(CLI::IsMember({"registered", "plain"}));
  app.add_option("--budget-ms", options.budget_ms, "measured time for each size")
      ->check(CLI::PositiveNumber);
  app.add_option("--warm-ups", options.warm_ups, "iterations before those that count")
      ->check(CLI::PositiveNumber);
  app.add_option("--iterations-min", options.iterations_min)->check(CLI::Range(1, kIterationsMax));
  try {
    app.parse(argc, argv);
    fill_in(options, collective, type, sizes);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  options.registered = buffers == "registered";
  return options;
}

int run_program(const char* program, int (*run)(int argc, char** argv), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
}

int launched_rank() {
  for (const char* name : {"ROPEWALK_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (const char* value = getenv(name)) return atoi(value);
  }
  return 0;
}

}  // namespace ropewalk::peers
