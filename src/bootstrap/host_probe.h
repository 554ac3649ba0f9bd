// Which of the other hosts can be reached, once a rank of one of them has fallen silent.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/net.h"
#include "bootstrap/peer_table.h"
#include "bootstrap/poll_set.h"
#include "bootstrap/world.h"

namespace ropewalk::bootstrap {

/// Connects to each other host at the addresses of its ranks, at all hosts side by side. A host
/// that accepts or refuses one connection can be reached: so its kernel says, whatever its ranks
/// do. Nothing is sent. One thread; never blocks.
class HostProbe {
 public:
  /// Ends at `deadline_ns`, or before where all have answered. `table` is complete. At `own_ips`
  /// (this host's addresses) no other host is found: bridges have the same address everywhere.
  HostProbe(const PeerTable& table, int rank, const std::set<std::string>& own_ips,
            int64_t deadline_ns);

  void prepare(PollSet& set);
  void advance(const PollSet& set, int64_t now_ns);
  bool is_over() const { return is_over_; }
  /// The ranks of all hosts that have not answered, ascending. Empty: there is no such host.
  std::vector<int> unreachable() const;

 private:
  struct Host {
    std::vector<int> ranks;
    std::vector<SocketAddress> addresses;
    size_t next = 0;               // of addresses, to be dialed
    std::vector<UniqueFd> dialed;  // connections under way
    bool was_asked = false;        // this process had a descriptor for it
    bool has_answered = false;
  };
  void read(Host& host, const PollSet& set);
  void dial(Host& host);

  std::vector<Host> hosts_;  // those that are not this one
  const int64_t deadline_ns_;
  int64_t next_dial_ns_ = 0;
  bool is_over_ = false;
};

/// "rank 3", "ranks 4-7, 12": of what ascends; the first of many.
std::string rank_list(const std::vector<int>& ranks);

/// `failure`, of a rank among `lost`, completed: all of `lost`, of whose hosts none can be reached
/// from `rank`. The texts name ranks and hosts.
Failure name_unreachable(Failure failure, const PeerTable& table, std::vector<int> lost,
                         const std::function<int(int)>& rank_in_epoch = std::identity());

}  // namespace ropewalk::bootstrap
