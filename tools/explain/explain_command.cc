// ropewalk explain: which algorithm, slices and channel a call would take, and why.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>

#include "bootstrap/config.h"
#include "tools/command/command.h"
#include "tools/command/words.h"
#include "tools/explain/explain.h"
#include "tools/launcher/hosts.h"
#include "tools/simulate/pictures.h"

namespace ropewalk::tools {
namespace {

constexpr size_t kBytesMax = size_t{1} << 44;
constexpr const char* kExplainExamples =
    "Examples:\n"
    "  ropewalk explain all_reduce --bytes 1M -n 8\n"
    "  ropewalk explain all_reduce --bytes 64M -n 16 --hosts 2 --dtype bfloat16\n"
    "  ropewalk explain broadcast --bytes 4K -n 8 --transport tcp --buffers plain --json\n"
    "  ropewalk explain all_reduce --bytes 1M -n 8 --algorithm ring\n"
    "  ropewalk explain all_reduce --bytes 1M -n 8 --hosts 4 --transport verbs --assume\n"
    "  ropewalk explain all_reduce --bytes 1M -n 8 --hosts 8 --transport tcp --plot explained.svg\n"
    "It asks what a communicator asks, and heeds the same ROPEWALK_* variables; nothing is run.\n"
    "With a tuning profile the hosts are those that --network describes, else its first.\n"
    "Every host is taken to have what this one has: RDMA ports, UCX.\n"
    "Receives and sends are those of one rank (--rank).\n"
    "Exit status: 0; 1 where the transport is not there; 2 for wrong input.";

struct ExplainFlags {
  std::string collective, bytes, transport;
  std::string type = "float32", op = "sum", algorithm = "auto", buffers = "registered";
  std::string network;
  int ranks = 0, hosts = 0, rank = 0, root = 0;  // 0 ranks, 0 hosts: as the network says
  bool assume = false, json = false;
  PictureFlags picture;
};

std::vector<std::string> collective_words() {
  std::vector<std::string> words = bench_kind_names();
  std::erase(words, "send_recv");  // run by no algorithm
  return words;
}

size_t bytes_of(const ExplainOptions& options, const std::string& text) {
  if (options.kind.collective == Collective::barrier) return 1;
  const auto bytes = parse_size(text);
  if (bytes && *bytes > 0 && *bytes <= kBytesMax) return *bytes;
  throw Error(
      ErrorCode::invalid_argument, "explain",
      text.empty() ? "of how many bytes?" : fmt::format("--bytes: \"{}\" is not a size", text),
      "write --bytes 8, 64K or 1.5M; at most 16T");
}

/// Those of the network that is described, if it is.
void find_ranks(const ExplainFlags& flags, ExplainOptions& options) {
  const std::string& words = flags.network.empty() ? options.config.network : flags.network;
  if (!words.empty()) {
    options.described = find_network(words, flags.ranks);
    options.ranks = options.described->ranks();
    options.hosts = options.described->host_count();
    if (flags.hosts == 0 || flags.hosts == options.hosts) return;
    throw Error(ErrorCode::invalid_argument, "explain",
                fmt::format("{} has {} hosts, not {}", words, options.hosts, flags.hosts),
                "leave --hosts out");
  }
  if (flags.ranks > 0) options.ranks = flags.ranks;
  if (flags.hosts > 0) options.hosts = flags.hosts;
}

ExplainOptions options_of(const ExplainFlags& flags) {
  ExplainOptions options;
  options.kind = *bench_kind_named(flags.collective);
  options.bytes = bytes_of(options, flags.bytes);
  options.sizes = plot_sizes(flags.picture, options.kind.collective, options.bytes, "explain");
  options.config = config_from_environment();
  options.rank = flags.rank;
  find_ranks(flags, options);
  options.root = flags.root;
  options.type = *data_type_named(flags.type);
  options.op.kind = *reduce_kind_named(flags.op);
  options.algorithm = *algorithm_named(flags.algorithm);
  options.assume = flags.assume;
  options.registered = flags.buffers == "registered";
  if (!flags.transport.empty()) options.config.transport = *transport_named(flags.transport);
  // As a rank does; on one host nothing but shared memory is taken by itself.
  if (options.config.transport != "auto" || options.hosts > 1)
    options.offers = find_transports(options.config, 0, 2);
  return options;
}

}  // namespace

void add_explain_command(Command app, Request& request) {
  auto flags = std::make_shared<ExplainFlags>();
  Command command =
      app.add_command("explain", "tell how a collective would run here, and why", kExplainExamples);
  command.add_option("collective", flags->collective, "which one")
      .one_of(collective_words())
      .required();
  command.add_option("--bytes", flags->bytes, "the whole vector: 8, 64K, 1.5MiB; not of barrier");
  command
      .add_option("-n,--ranks", flags->ranks,
                  "how many; default: as the network says, without one 2")
      .between(1, kRanksMax);
  command
      .add_option("--hosts", flags->hosts,
                  "how many they are spread over; default: as the network says, without one 1")
      .between(1, kRanksMax);
  command.add_option("--network", flags->network,
                     "its description, or a template (docs/network.md); default: ROPEWALK_NETWORK");
  command.add_option("--dtype", flags->type, "element type")
      .one_of(names<DataType>(kDataTypes))
      .show_default();
  command.add_option("--op", flags->op, "reduction").one_of(reduction_words()).show_default();
  command.add_option("--transport", flags->transport, "default: ROPEWALK_TRANSPORT, else auto")
      .one_of(transport_words());
  command.add_flag("--assume", flags->assume,
                   "plan as if the adapter or UCX that --transport needs were there");
  command.add_option("--buffers", flags->buffers, "kind of memory")
      .one_of({"registered", "plain"})
      .show_default();
  command.add_option("--algorithm", flags->algorithm, "force one")
      .one_of(names<Algorithm>(kAlgorithms))
      .show_default();
  command.add_option("--rank", flags->rank, "whose messages to tell").show_default();
  command.add_option("--root", flags->root, "of broadcast, reduce, gather, scatter");
  add_picture_options(command, flags->picture);
  command.add_flag("--json", flags->json, "one JSON object");
  command.set_action(request, [flags] {
    const ExplainOptions options = options_of(*flags);
    const std::optional<PlotFile> plot = open_plot(flags->picture, "explain");
    const Explanation explanation = explain(options);
    if (plot) plot_explanation(options, explanation, *plot);
    fmt::print("{}", flags->json ? explanation_json(options, explanation)
                                 : explanation_text(options, explanation));
    return 0;
  });
}

}  // namespace ropewalk::tools
