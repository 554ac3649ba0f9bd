// ropewalk bench put|pingpong|signal: measures the link between two ranks, below the engine.
#include <fmt/format.h>

#include <memory>

#include "bootstrap/config.h"
#include "tools/bench/job.h"
#include "tools/bench/memory.h"
#include "tools/bench/options.h"
#include "tools/bench/p2p_rank.h"
#include "tools/command/command.h"
#include "tools/command/words.h"

namespace ropewalk::tools {
namespace {

constexpr const char* kLatency = "Latency is half of a round trip, in microseconds.\n";
constexpr const char* kBandwidth =
    "Bandwidth is in 10^9 bytes a second, with many puts in flight, until the receiver has "
    "answered\n"
    "that all are there.\n";
constexpr const char* kStatus =
    "Exit status: 0; 1 where something wrong arrived or a rank failed; 2 for wrong input.";

struct P2pFlags {
  std::string transport, sizes = "8:1M", timeout;
  P2pOptions options;
  BenchRanks ranks;
};

P2pOptions options_of(const P2pFlags& flags) {
  P2pOptions options = flags.options;
  options.transport = flags.transport;
  options.sizes =
      options.kind == P2pKind::signal ? std::vector<size_t>{0} : parse_size_list(flags.sizes);
  options.timeout = parse_timeout(flags.timeout);
  options.ranks = flags.ranks.count;
  return options;
}

int launch(const P2pFlags& flags, const P2pOptions& options) {
  if (count_of(flags.ranks) < 2)
    throw Error(ErrorCode::invalid_argument, "bench",
                fmt::format("--hosts {} is one rank", flags.ranks.hosts),
                "write two: node1,node2, or node1:2");
  if (flags.ranks.hosts.empty()) check_memory(options.sizes, 2 * buffer_bytes(options));
  return launch_bench(flags.ranks);
}

void add_flags(Command command, P2pFlags& flags) {
  command.add_option("-n,--ranks", flags.ranks.count, "how many ranks to start").only(2);
  command.add_option("--hosts", flags.ranks.hosts, "two hosts, by ssh: node1,node2");
  command.add_option("--remote-ropewalk", flags.ranks.remote_ropewalk,
                     "path of ropewalk on the other hosts; default: as here");
  command.add_option("--transport", flags.transport, "default: ROPEWALK_TRANSPORT, else auto")
      .one_of(transport_words());
  command.add_flag("--secure", flags.options.secure, kSecureHelp);
  if (flags.options.kind != P2pKind::signal)
    command.add_option("--sizes", flags.sizes, kSizesHelp).show_default();
  if (flags.options.kind == P2pKind::put)
    command.add_flag("--both", flags.options.both, "bandwidth of both ways at once");
  command.add_option("--iterations", flags.options.iterations, "default: part of a second's worth")
      .between(1, 100000000);
  command.add_option("--warmup", flags.options.warmup, "iterations before the measured ones")
      .between(1, 100000000)
      .show_default();
  command.add_option("--timeout", flags.timeout, "deadline of every wait: 30, 500ms");
  command.add_flag("--json", flags.options.json, "one JSON object a line, and nothing else");
}

void add(Command bench, Request& request, P2pKind kind, const char* help, const char* examples) {
  auto flags = std::make_shared<P2pFlags>();
  flags->options.kind = kind;
  Command command = bench.add_command(std::string(name_of(kind)), help,
                                      fmt::format("Examples:\n{}{}{}{}", examples, kLatency,
                                                  kind == P2pKind::put ? kBandwidth : "", kStatus));
  add_flags(command, *flags);
  // What stands before the word belongs to collectives.
  command.exclude_options_of(bench);
  command.set_action(request, [flags] {
    const P2pOptions options = options_of(*flags);
    return is_inside_job() ? run_p2p_rank(options) : launch(*flags, options);
  });
}

}  // namespace

void add_p2p_commands(Command bench, Request& request) {
  add(bench, request, P2pKind::put, "one-sided writes between ranks 0 and 1",
      "  ropewalk bench put --transport shm --sizes 8,64K,1M\n"
      "  ropewalk bench put --both --transport tcp --sizes 64K:4M --json\n"
      "  ropewalk bench put --hosts node1,node2\n");
  add(bench, request, P2pKind::pingpong, "messages between ranks 0 and 1, there and back",
      "  ropewalk bench pingpong --sizes 8:64K\n"
      "  ropewalk run -n 2 -- ropewalk bench pingpong --json      (joins the job)\n");
  add(bench, request, P2pKind::signal, "pure notices between ranks 0 and 1, there and back",
      "  ropewalk bench signal --transport shm\n"
      "  ropewalk bench signal --transport tcp --iterations 10000 --json\n");
}

}  // namespace ropewalk::tools
