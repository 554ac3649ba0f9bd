#include "tools/launcher/nodes.h"

#include <fmt/format.h>

#include "base/text.h"
#include "bootstrap/kubernetes.h"
#include "bootstrap/net.h"
#include "ropewalk/status.h"
#include "tools/launcher/hosts.h"

namespace ropewalk::tools {
namespace {

constexpr const char *kIndex = "JOB_COMPLETION_INDEX", *kPetRank = "PET_NODE_RANK";

[[noreturn]] void refuse_node(std::string reason, std::string advice) {
  throw Error(ErrorCode::invalid_argument, "run", std::move(reason), std::move(advice));
}

int number_of(const char* flag, const std::string& text, int low, int high) {
  const auto number = parse_number<int>(text);
  if (!number || *number < low || *number > high)
    refuse_node(fmt::format("{} \"{}\": it must be {} to {}", flag, text, low, high),
                fmt::format("write {} {}", flag, low));
  return *number;
}

/// Kubernetes's, or that of torchrun's variables, which Kubeflow sets.
int node_rank_of(int count, const Lookup& get) {
  const auto index = integer_variable(get, kIndex, 0, kRanksMax - 1);
  const auto pet_rank = integer_variable(get, kPetRank, 0, kRanksMax - 1);
  if (index && pet_rank && index != pet_rank)
    refuse_node(fmt::format("{}={}, but {}={}", kIndex, *index, kPetRank, *pet_rank),
                "write --node-rank, 0 to nnodes-1");
  if (!index && !pet_rank)
    refuse_node(fmt::format("which of the {} nodes is this?", count),
                fmt::format("write --node-rank, 0 to {}; an Indexed Job of Kubernetes sets {}",
                            count - 1, kIndex));
  const int rank = index ? *index : *pet_rank;
  if (rank >= count)
    refuse_node(fmt::format("{}={} is out of range for --nnodes {}", index ? kIndex : kPetRank,
                            rank, count),
                "write as many nodes as there are (completions of a Job of Kubernetes)");
  return rank;
}

std::string coordinator_of(const Lookup& get) {
  if (const auto told = variable(get, "ROPEWALK_COORDINATOR")) return *told;
  const auto address = variable(get, "PET_MASTER_ADDR");
  const auto port = integer_variable(get, "PET_MASTER_PORT", 1, 65535);
  if (address && port)
    return bootstrap::to_text(bootstrap::Endpoint{*address, static_cast<uint16_t>(*port)});
  if (const auto index = integer_variable(get, kIndex, 0, kRanksMax - 1))
    return bootstrap::kubernetes_coordinator(*index, get);
  refuse_node("nothing says where rank 0 listens",
              "write --coordinator HOST:PORT, the same on every node: a free port of node 0");
}

}  // namespace

Node node_of(const NodeFlags& flags, const Lookup& get) {
  Node node;
  if (!flags.nnodes) {
    for (const auto& [flag, value] : {std::pair("--node-rank", &flags.node_rank),
                                      std::pair("--coordinator", &flags.coordinator)})
      if (*value)
        refuse_node(fmt::format("{} without --nnodes", flag),
                    "write --nnodes, how many nodes there are");
    return node;
  }
  node.count = number_of("--nnodes", *flags.nnodes, 1, kRanksMax);
  node.rank = flags.node_rank  ? number_of("--node-rank", *flags.node_rank, 0, node.count - 1)
              : node.count > 1 ? node_rank_of(node.count, get)
                               : 0;
  if (node.count == 1) return node;
  node.coordinator = flags.coordinator ? *flags.coordinator : coordinator_of(get);
  if (!bootstrap::parse_endpoint(node.coordinator))
    refuse_node(fmt::format("the coordinator \"{}\" is not host:port", node.coordinator),
                "write --coordinator HOST:PORT, 1.2.3.4:PORT or [v6-address]:PORT");
  return node;
}

void check_common_key(const Lookup& get) {
  if (!take_job_key().empty() || parse_config(get).open) return;
  refuse_node(
      "the nodes have no job key in common: ROPEWALK_JOB_KEY is not set",
      "make one, export ROPEWALK_JOB_KEY=$(openssl rand -hex 32), and set it on every node; on "
      "Kubernetes: kubectl create secret generic ropewalk --from-literal=key=$(openssl rand "
      "-hex 32), and the container's env from that (examples/kubernetes)");
}

}  // namespace ropewalk::tools
