// Which transports a job takes. Pure: made of what all ranks know of each other, so that every rank
// chooses alike.
//
// Before it joins, a rank looks for RDMA ports that it could use (`Rdma`, the only way to verbs, of
// which there is a second one for builds without libibverbs). Its record says which there are, or
// why none and what to do. `choose_transports` makes of all records what is taken within hosts and
// between them, so every rank chooses alike and nothing is agreed upon. Rank 0 logs the choice with
// its reason: at level info, and warn where some ranks could have used RDMA. ROPEWALK_REQUIRE=rdma
// turns TCP into an error that names a rank and what it lacks. Where verbs will not do, a rank also
// tells what UCX reaches (`look_at_ucx`, the only way to UCX): it is taken between hosts where
// every rank has a fabric through it that is no socket. Where UCX was asked for, ranks of a host
// map memory that UCX allocates: the transport over shared memory takes it from a `shm::Sharing`,
// of which there are two, memory files and UCX's. It does not try whether hosts really reach each
// other over RDMA: a link that does not come about is an error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport_choice/rank_info.h"

namespace ropewalk {

/// ucx_shm: shared memory that UCX allocates and maps.
enum class TransportKind : uint8_t { none, shm, tcp, verbs, ucx, ucx_shm };
std::string_view name_of(TransportKind kind);  // "none", "shm", "tcp", "verbs", "ucx", "ucx/shm"

struct TransportChoice {
  TransportKind within =
      TransportKind::none;  // between ranks of one host; none where no two share one
  TransportKind between = TransportKind::none;  // between hosts; none where there is one
  std::string reason = {};                      // one sentence, or more, in words
  bool is_fallback = false;                     // some ranks could use RDMA, but it is not used

  bool uses(TransportKind kind) const { return within == kind || between == kind; }
  /// Ranks of one host map each other's memory.
  bool maps() const { return within == TransportKind::shm || within == TransportKind::ucx_shm; }
  bool operator==(const TransportChoice&) const = default;
};

struct RankTransports {
  RankInfo info;
  std::string host_name;  // for people
  int host = 0;           // equal on ranks that can share memory
};

/// `wish` is ROPEWALK_TRANSPORT: "auto" takes shared memory within a host, and between hosts verbs
/// where every rank has a usable port and all have one link layer in common, else UCX where it
/// reaches a fabric on every rank, else TCP. "ucx" takes UCX's shared memory within a host, where
/// all ranks that have neighbours there have a mailbox in it. `require` is ROPEWALK_REQUIRE. Throws
/// Error(unavailable) that names a rank and what it lacks where the wish cannot be met.
TransportChoice choose_transports(std::string_view wish, std::string_view require,
                                  const std::vector<RankTransports>& ranks);

/// "shm within hosts, verbs between them".
std::string text_of(const TransportChoice& choice);

}  // namespace ropewalk
