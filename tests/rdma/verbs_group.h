// Verbs transports of several ranks in one process, linked through local sockets.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transports/tcp/local_sockets.h"
#include "transports/verbs/verbs_transport.h"

namespace ropewalk::testing {

class VerbsGroup {
 public:
  /// `adjust` may change the options of each rank.
  using Adjust = std::function<void(int rank, VerbsTransport::Options&)>;
  VerbsGroup(int ranks, size_t lanes, const Adjust& adjust = {});

  VerbsTransport& at(int rank) { return *transports_.at(static_cast<size_t>(rank)); }
  /// Ends the transport of one rank, as its process's end would.
  void end(int rank) { transports_.at(static_cast<size_t>(rank)).reset(); }
  SocketSource& sockets(int rank) { return network_.source(rank); }

 private:
  tcp::LocalNetwork network_;
  std::vector<std::unique_ptr<VerbsTransport>> transports_;
};

}  // namespace ropewalk::testing
