#include "bootstrap/socket_broker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/clock.h"

namespace ropewalk::bootstrap {

SocketBroker::SocketBroker(int rank, int size, int64_t timeout_ns)
    : rank_(rank), size_(size), timeout_ns_(timeout_ns) {}

void SocketBroker::request(int peer, int stream) {
  if (peer < 0 || peer >= size_ || peer == rank_ || stream < 0 ||
      stream >= static_cast<int>(kStreamsMax))
    throw Error(
        ErrorCode::invalid_argument, "connect",
        fmt::format("rank {} of {} asked for stream {} to rank {}", rank_, size_, stream, peer));
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[{peer, stream}];
  if (entry.deadline_ns == INT64_MAX) entry.deadline_ns = MonotonicClock().now_ns() + timeout_ns_;
  if (entry.state != State::idle) return;
  entry.state = State::dialing;
  to_dial_.push_back({peer, stream});
  news_.set();
}

ConnectedSocket SocketBroker::take(int peer, int stream) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find({peer, stream});
  if (found == entries_.end() || found->second.state != State::ready) return {};
  found->second.state = State::taken;
  if (stream == 0) offers_.erase(peer);
  if (--ready_ == 0) ready_event_.clear();
  return std::exchange(found->second.socket, {});
}

std::vector<int> SocketBroker::offers() const {
  const std::lock_guard lock(mutex_);
  return {offers_.begin(), offers_.end()};
}

void SocketBroker::use_networks(const std::vector<std::string>& networks) {
  const std::lock_guard lock(mutex_);
  networks_ = networks;
}

std::string SocketBroker::network_of(int stream) const {
  const std::lock_guard lock(mutex_);
  return networks_.empty() ? "" : networks_[static_cast<size_t>(stream) % networks_.size()];
}

std::vector<SocketBroker::SocketId> SocketBroker::to_dial() {
  const std::lock_guard lock(mutex_);
  return std::exchange(to_dial_, {});
}

HandshakeResult SocketBroker::claim(SocketId link) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[link];
  switch (entry.state) {
    case State::idle:
    case State::waiting:
      break;
    case State::dialing:
      if (rank_ < link.peer) return HandshakeResult::yield;
      break;
    case State::arriving:
    case State::ready:
    case State::taken:
      return HandshakeResult::already;
  }
  entry.state = State::arriving;
  return HandshakeResult::accepted;
}

void SocketBroker::deliver(SocketId link, ConnectedSocket socket) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[link];
  assert(entry.state == State::arriving || entry.state == State::dialing);
  entry.state = State::ready;
  entry.socket = std::move(socket);
  if (link.stream == 0) offers_.insert(link.peer);
  ++ready_;
  ready_event_.set();
}

void SocketBroker::lost(SocketId link) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[link];
  assert(entry.state == State::arriving);
  entry.state = State::waiting;  // the peer, whose dial this was, dials again
}

void SocketBroker::yielded(SocketId link) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[link];
  if (entry.state == State::dialing) entry.state = State::waiting;
}

bool SocketBroker::is_dialing(SocketId link) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(link);
  return found != entries_.end() && found->second.state == State::dialing;
}

void SocketBroker::forget(const std::vector<int>& peers) {
  const std::lock_guard lock(mutex_);
  const auto has_gone = [&](const SocketId& link) {
    return std::ranges::count(peers, link.peer) != 0;
  };
  std::erase_if(to_dial_, has_gone);
  std::erase_if(entries_, [&](const auto& entry) {
    return has_gone(entry.first) && entry.second.state < State::ready;
  });
}

std::pair<int64_t, SocketBroker::SocketId> SocketBroker::next_deadline() const {
  const std::lock_guard lock(mutex_);
  std::pair<int64_t, SocketId> next{INT64_MAX, {}};
  for (const auto& [link, entry] : entries_)
    if (entry.state < State::ready && entry.deadline_ns < next.first)
      next = {entry.deadline_ns, link};
  return next;
}

}  // namespace ropewalk::bootstrap
