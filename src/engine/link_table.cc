#include "engine/link_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ropewalk {

LinkTable::LinkTable(int rank, std::vector<Transport*> transports, std::vector<int> route)
    : rank_(rank),
      transports_(std::move(transports)),
      route_(std::move(route)),
      links_(route_.size()) {
  std::ranges::copy_if(transports_, std::back_inserter(networks_),
                       [](Transport* transport) { return transport->mapped_memory() == nullptr; });
}

bool LinkTable::is_mapped(int peer) const {
  return peer != rank_ && transport_to(peer).mapped_memory() != nullptr;
}

bool LinkTable::are_all_mapped() const {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_ && !is_mapped(peer)) return false;
  return true;
}

Link& LinkTable::to(int peer) {
  assert(peer >= 0 && peer < size() && peer != rank_);
  auto& link = links_[static_cast<size_t>(peer)];
  if (!link) {
    link = std::make_unique<Link>(transport_to(peer), transport_index(peer), peer, puts_under_way_);
    open_.push_back(link.get());
  }
  return *link;
}

void LinkTable::set_batching(bool on) {
  for (Transport* network : networks_) network->set_batching(on);
}

bool LinkTable::flush() {
  bool all = true;
  for (Link* link : open_)
    if (link->ready()) all &= link->flush();
  return all;
}

bool LinkTable::has_unsent() const {
  return puts_under_way_ > 0 ||
         std::ranges::any_of(networks_, [](Transport* network) { return network->has_unsent(); });
}

bool LinkTable::poll_inboxes() {
  bool found = false;
  for (Link* link : open_)
    for (int stream = 0; stream < kStreams; ++stream) found |= link->look(stream);
  return found;
}

void LinkTable::unmap_deregistered() {
  for (Transport* transport : transports_)
    if (MappedMemory* mapped = transport->mapped_memory()) mapped->unmap_deregistered();
  for (Link* link : open_) link->find_inbox_again();
}

}  // namespace ropewalk
