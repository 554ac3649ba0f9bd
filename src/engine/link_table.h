// This rank's links: which transport reaches which peer. Links are made when operations first need
// them.
//
// Owned by the engine and used under its lock.
#pragma once

#include <cassert>
#include <memory>
#include <vector>

#include "engine/link.h"

namespace ropewalk {

class LinkTable {
 public:
  /// `transports[route[peer]]` reaches `peer`; they outlive the table.
  LinkTable(int rank, std::vector<Transport*> transports, std::vector<int> route);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(route_.size()); }
  const std::vector<Transport*>& transports() const { return transports_; }
  bool has_networks() const { return !networks_.empty(); }
  int transport_index(int peer) const { return route_[static_cast<size_t>(peer)]; }
  Transport& transport_to(int peer) const {
    assert(peer >= 0 && peer < size() && peer != rank_);
    return *transports_[static_cast<size_t>(transport_index(peer))];
  }
  /// Whether this rank maps the memory of `peer`, or of every other.
  bool is_mapped(int peer) const;
  bool are_all_mapped() const;

  /// The link with `peer`, made if there is none. Throws Error.
  Link& to(int peer);
  /// Null where there is none.
  Link* find(int peer) const {
    assert(peer >= 0 && peer < size());
    return links_[static_cast<size_t>(peer)].get();
  }
  const std::vector<Link*>& open() const { return open_; }

  /// As Transport::set_batching, of all networks.
  void set_batching(bool on);
  /// Sends the credits and `consumed` notices that are owed; false where a transport took not all.
  bool flush();
  /// Puts that were posted and are still to be completed, or bytes that a transport holds back.
  bool has_unsent() const;
  /// Looks for messages that peers stored into mapped inboxes; true when there are new ones.
  bool poll_inboxes();
  /// Unmaps peers' memory that they have deregistered. Requires that no operation is under way.
  void unmap_deregistered();
  void put_done() {
    assert(puts_under_way_ > 0);
    --puts_under_way_;
  }
  bool has_puts_under_way() const { return puts_under_way_ > 0; }

 private:
  const int rank_;
  const std::vector<Transport*> transports_;
  std::vector<Transport*> networks_;  // of these, where bytes may wait: not in mapped memory
  const std::vector<int> route_;
  std::vector<std::unique_ptr<Link>> links_;  // by peer; null until needed
  std::vector<Link*> open_;
  uint32_t puts_under_way_ = 0;  // posted, put_done still to come
};

}  // namespace ropewalk
