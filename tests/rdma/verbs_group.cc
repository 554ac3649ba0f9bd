#include "tests/rdma/verbs_group.h"

#include <fmt/format.h>

namespace ropewalk::testing {

VerbsGroup::VerbsGroup(int ranks, size_t lanes, const Adjust& adjust)
    : network_(ranks, tcp::LocalNetwork::Kind::unix_sockets) {
  for (int rank = 0; rank < ranks; ++rank) {
    auto [ports, infos, why_not] = verbs::find_ports({});
    if (ports.empty())
      throw Error(ErrorCode::unavailable, "test",
                  fmt::format("no port can be used: {}", fmt::join(why_not, "; ")),
                  "run it with tools/test --rdma");
    VerbsTransport::Options options;
    options.lanes.resize(static_cast<size_t>(ranks));
    for (auto& to_peer : options.lanes)
      for (size_t lane = 0; lane < lanes; ++lane)
        to_peer.push_back({static_cast<uint8_t>(lane % ports.size()), {}});
    if (adjust) adjust(rank, ports, options);
    transports_.push_back(std::make_unique<VerbsTransport>(rank, ranks, network_.source(rank),
                                                           std::move(ports), std::move(options)));
  }
}

}  // namespace ropewalk::testing
