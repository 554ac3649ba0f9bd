// Jobs of several nodes, each with a launcher of its own: where no ssh goes, as between pods.
#pragma once

#include <optional>
#include <string>

#include "bootstrap/config.h"

namespace ropewalk::tools {

/// One of `count` nodes, which all start as many ranks.
struct Node {
  int count = 1;
  int rank = 0;
  std::string coordinator = {};  // host:port at which rank 0 listens, where there are several
};

/// As the user wrote them.
struct NodeFlags {
  std::optional<std::string> nnodes = {}, node_rank = {}, coordinator = {};
};

/// Each flag, or else what the environment says. Throws Error(invalid_argument).
Node node_of(const NodeFlags& flags, const Lookup& get);

/// Throws Error(invalid_argument) where the nodes have no key in common, nor do without one.
void check_common_key(const Lookup& get);

}  // namespace ropewalk::tools
