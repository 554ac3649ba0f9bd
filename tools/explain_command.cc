// ropewalk explain: which algorithm, slices and channel a call would take, and why.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>

#include "command.h"
#include "explain.h"
#include "hosts.h"
#include "rdma.h"
#include "ucx.h"
#include "words.h"

namespace ropewalk::tools {
namespace {

constexpr size_t kBytesMax = size_t{1} << 40;
constexpr const char* kExamples =
    "Examples:\n"
    "  ropewalk explain all_reduce --bytes 1M -n 8\n"
    "  ropewalk explain all_reduce --bytes 64M -n 16 --hosts 2 --dtype bfloat16\n"
    "  ropewalk explain broadcast --bytes 4K -n 8 --transport tcp --buffers plain --json\n"
    "  ropewalk explain all_reduce --bytes 1M -n 8 --algorithm ring\n"
    "It asks what a communicator asks, and heeds the same ROPEWALK_* variables; nothing is run.\n"
    "Every host is taken to have the RDMA ports that this one has.\n"
    "Receives and sends are those of one rank (--rank).";

struct ExplainFlags {
  std::string collective, bytes, transport;
  std::string type = "float32", op = "sum", algorithm = "auto", buffers = "registered";
  int ranks = 2, hosts = 1, rank = 0, root = 0;
  bool json = false;
};

// Every host is taken to have what this one has.
void look_at_machine(ExplainOptions& options) {
  if (options.knobs.transport == "ucx") options.ucx_shares_memory = look_at_ucx().shares_memory;
  if (options.hosts < 2 || options.knobs.transport != "auto") return;
  const Rdma rdma(options.knobs);
  options.ports = rdma.ports();
  if (!rdma.why_not().empty()) options.no_ports = rdma.why_not().front();
}

ExplainOptions options_of(const ExplainFlags& flags) {
  ExplainOptions options;
  std::vector<std::string> kinds = names<Collective>(kCollectives);
  std::erase(kinds, "send");
  std::erase(kinds, "recv");
  options.kind = named("explain", "collective", flags.collective, bench_kind_named, kinds);
  const auto bytes = parse_size(flags.bytes);
  if (!bytes || *bytes == 0 || *bytes > kBytesMax || options.kind.is_send_recv())
    throw Error(
        ErrorCode::invalid_argument, "explain",
        options.kind.is_send_recv() ? "send_recv is run by no algorithm"
                                    : fmt::format("--bytes: \"{}\" is not a size", flags.bytes),
        options.kind.is_send_recv() ? fmt::format("choose one of {}", fmt::join(kinds, ", "))
                                    : "write --bytes 8, 64K or 1M");
  options.bytes = *bytes;
  options.ranks = flags.ranks;
  options.hosts = flags.hosts;
  options.rank = flags.rank;
  options.root = flags.root;
  options.type =
      named("explain", "--dtype", flags.type, data_type_named, names<DataType>(kDataTypes));
  options.op.kind =
      named("explain", "--op", flags.op, reduce_kind_named, names<ReduceKind>(kReduceKinds));
  options.algorithm = named("explain", "--algorithm", flags.algorithm, algorithm_named,
                            names<Algorithm>(kAlgorithms));
  options.registered = flags.buffers == "registered";
  options.knobs = knobs_from_environment();
  if (!flags.transport.empty()) options.knobs.transport = flags.transport;
  look_at_machine(options);
  return options;
}

}  // namespace

void add_explain_command(CLI::App& app, Request& request) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* command =
      app.add_subcommand("explain", "tell how a collective would run here, and why");
  command->footer(kExamples);
  command->add_option("collective", flags->collective, "all_reduce, broadcast, ...")->required();
  command->add_option("--bytes", flags->bytes, "the whole vector: 8, 64K, 1M")->required();
  command->add_option("-n,--ranks", flags->ranks, "how many ranks")
      ->check(CLI::Range(1, kRanksMax))
      ->capture_default_str();
  command->add_option("--hosts", flags->hosts, "how many hosts they are spread over")
      ->check(CLI::Range(1, kRanksMax))
      ->capture_default_str();
  command->add_option("--dtype", flags->type, "element type")->capture_default_str();
  command->add_option("--op", flags->op, "reduction")->capture_default_str();
  command->add_option("--transport", flags->transport, "default: ROPEWALK_TRANSPORT, else auto")
      ->check(
          CLI::IsMember(std::vector<std::string>(kTransportNames.begin(), kTransportNames.end())));
  command->add_option("--buffers", flags->buffers, "kind of memory")
      ->check(CLI::IsMember({"registered", "plain"}))
      ->capture_default_str();
  command->add_option("--algorithm", flags->algorithm, "force one")->capture_default_str();
  command->add_option("--rank", flags->rank, "whose messages to tell")->capture_default_str();
  command->add_option("--root", flags->root, "of broadcast, reduce, gather, scatter");
  command->add_flag("--json", flags->json, "one JSON object");
  command->callback([flags, &request] {
    request.action = [flags] {
      const ExplainOptions options = options_of(*flags);
      const Explanation explanation = explain(options);
      fmt::print("{}", flags->json ? explanation_json(options, explanation)
                                   : explanation_text(options, explanation));
      return 0;
    };
  });
}

}  // namespace ropewalk::tools
