// What the two ends of a connection tell each other first, and the transport that they make of it.
//
//   offer = u16 version text transport text info      ; each end sends one, sealed in one record
//
// `info` is what the transport's provider has a rank tell. Where the offers are of one transport,
// and nothing hinders it, that is taken; else TCP, which every end has.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bootstrap/sockets.h"
#include "integrations/nccl/devices.h"
#include "integrations/nccl/link.h"

namespace ropewalk::nccl {

/// One thread at a time; never blocks.
class Agreement {
 public:
  /// `device` must outlive it. `peer`: its address. Throws Error(peer_lost).
  Agreement(const Device& device, int rank, ConnectedSocket control, std::string peer);

  /// True once the peer's offer is here. Throws Error(peer_lost), Error(protocol).
  bool advance();
  /// Then, once: of both offers. Throws Error.
  LinkParts make_parts(std::unique_ptr<PairSockets> sockets);

 private:
  const TransportProvider* choose() const;

  const Device& device_;
  const int rank_;
  UniqueFd control_;
  SecureChannel channel_;
  const std::string peer_;
  std::vector<std::byte> received_, plain_;
  std::string peers_transport_, peers_info_;
};

}  // namespace ropewalk::nccl
