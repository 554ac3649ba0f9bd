// Which transports a job takes. Pure: made of what all ranks know of each other, so that every rank
// chooses alike.
//
// Before it joins, a rank looks what it has of each transport (`find_transports`). Its record says
// what that is, or why it is nothing and what to do. `choose_transports` makes of all records what
// is taken within hosts and between them, so every rank chooses alike and nothing is agreed upon.
// Rank 0 logs the choice with its reason: at level info, and warn where some ranks could have used
// RDMA. ROPEWALK_REQUIRE=rdma turns TCP into an error that names a rank and what it lacks. It does
// not try whether hosts really reach each other over RDMA: a link that does not come about is an
// error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport_choice/provider.h"

namespace ropewalk {

struct TransportChoice {
  const TransportProvider* within = nullptr;   // between ranks of one host; null: no two share one
  const TransportProvider* between = nullptr;  // between hosts; null where there is one
  std::string reason = {};                     // one sentence, or more, in words
  double between_bytes_per_s = 0;              // as the system says; 0: unknown
  size_t spread_bytes_min = SIZE_MAX;          // of `network()`, as in Capabilities
  bool is_fallback = false;                    // some ranks could use RDMA, but it is not used

  /// Ranks of one host map each other's memory.
  bool maps() const { return within != nullptr && within->maps; }
  /// Between ranks that do not map each other's memory; null where all do.
  const TransportProvider* network() const {
    return between != nullptr || maps() ? between : within;
  }
};

/// `wish` is ROPEWALK_TRANSPORT: "auto" takes shared memory within a host, and between hosts the
/// first transport that no obstacle keeps from all ranks: verbs where every rank has a usable port
/// and all have one link layer in common, else UCX where it reaches a fabric on every rank, else
/// TCP. "ucx" takes UCX's shared memory within a host, where all ranks that have neighbours there
/// have a mailbox in it. `require` is ROPEWALK_REQUIRE. `ranks`: by rank. `secure`: only what seals
/// data is taken between hosts. `tcp_streams`: ROPEWALK_TCP_STREAMS; 0: by networks. Throws
/// Error(unavailable) that names a rank and what it lacks where the wish cannot be met.
TransportChoice choose_transports(std::string_view wish, std::string_view require,
                                  const PeerTable& ranks, bool secure = false, int tcp_streams = 0);

/// What of it a part of the job uses whose ranks are on `hosts`, by rank.
TransportChoice choice_of_part(TransportChoice choice, const std::vector<int>& hosts);

/// "shm within hosts, verbs between them".
std::string text_of(const TransportChoice& choice);
/// "shm+verbs"; "self" in a job of one.
std::string names_of(const TransportChoice& choice);

}  // namespace ropewalk
