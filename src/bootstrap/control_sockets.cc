#include <algorithm>
#include <cassert>

#include "base/log.h"
#include "bootstrap/control.h"

namespace ropewalk::bootstrap {

void Control::admit(AuthenticatedSocket& incoming, int64_t now_ns) {
  const Hello& hello = incoming.hello;
  const int from = static_cast<int>(hello.from);
  const SocketBroker::SocketId link{from, static_cast<int>(hello.stream)};
  HandshakeResult result = HandshakeResult::wrong_rank;
  const bool is_for_rank_0 = local_registrar_ && hello.purpose == Purpose::join && hello.to == 0;
  if (static_cast<int>(hello.to) == setup_.rank || is_for_rank_0) {
    if (hello.purpose == Purpose::join) {
      result = judge_join(incoming);
      const bool was_redirected =
          registrar_ && from < setup_.size && registrar_->leader_of(from) >= 0;
      const bool is_first = came_.insert(hello.from).second || was_redirected;
      if (is_first && closing_since_ns_ != 0) closing_since_ns_ = now_ns;
    }
    if (hello.purpose == Purpose::tree) result = judge_tree(incoming);
    if (hello.purpose == Purpose::join_running)
      result = HandshakeResult::busy;  // it does not run yet
    const bool is_other = from < setup_.size && from != setup_.rank;
    if (hello.purpose == Purpose::socket && is_other) result = socket_broker_.claim(link);
    if ((hello.purpose == Purpose::failure || hello.purpose == Purpose::agreement) && is_other)
      result = HandshakeResult::accepted;
  }
  const bool sent = send_result(incoming, result);
  if (result != HandshakeResult::accepted) return;
  if (hello.purpose == Purpose::socket) {
    if (!sent) return socket_broker_.lost(link);
    tune_data_stream(incoming.fd.get());
    socket_broker_.deliver(link, incoming.connected());
  } else if (hello.purpose == Purpose::tree) {
    this->link(from, incoming.connected(), now_ns);
  } else if (hello.purpose == Purpose::failure) {
    bypass_.hear(from, incoming.connected(), now_ns);
  } else if (hello.purpose == Purpose::agreement) {
    agreements_.hear(from, incoming.connected());
  } else {
    tune_control_stream(incoming.fd.get(), setup_.config.link_timeout);
    Registrar& registrar = registrar_ ? *registrar_ : *local_registrar_;
    registrar.add(incoming.connected(), hello.from, incoming.source);
  }
}

HandshakeResult Control::judge_join(const AuthenticatedSocket& incoming) {
  if (setup_.rank != 0 && !local_registrar_) return HandshakeResult::wrong_rank;
  const bool takes_joins = registrar_ || local_registrar_;
  // With a failure the registrar still takes the late: they are to learn of it.
  if (!takes_joins || (session_key_ && monitor_.failure() == nullptr)) return HandshakeResult::busy;
  const uint16_t version = incoming.hello.version;
  if (version == kProtocolVersion) return HandshakeResult::accepted;
  fail(ErrorCode::refused,
       fmt::format("rank {} at {} speaks protocol version {}, rank {} version {}",
                   incoming.hello.from, incoming.source, version, setup_.rank, kProtocolVersion),
       "install the same Ropewalk on every rank", static_cast<int>(incoming.hello.from));
  return HandshakeResult::wrong_version;
}

HandshakeResult Control::judge_tree(const AuthenticatedSocket& incoming) const {
  const int from = static_cast<int>(incoming.hello.from);
  if (from >= setup_.size || from <= setup_.rank) return HandshakeResult::wrong_rank;
  if (tree_.has(from)) return HandshakeResult::already;
  if (!is_joined_)
    return tree_parent(from, setup_.size) == setup_.rank ? HandshakeResult::accepted
                                                         : HandshakeResult::wrong_rank;
  // Only to ranks whose own parent has left, of which this rank may have to hear first, or who have
  // lost the link with this one.
  const int parent = tree_parent(from, setup_.size);
  return parent == setup_.rank || monitor_.has_left(parent) ? HandshakeResult::accepted
                                                            : HandshakeResult::busy;
}

/// With a neighbour in the tree. A child gets the records that have come so far; from the parent
/// none has come yet.
void Control::link(int peer, ConnectedSocket socket, int64_t now_ns) {
  tune_control_stream(socket.fd.get(), setup_.config.link_timeout);
  tree_.add(peer, std::move(socket), now_ns);
  if (is_joined_) {
    for (const auto& [rank, told] : newcomers_told_) tree_.send(peer, told);
    return part_control_.greet(peer);
  }
  for (const auto& sent : record_frames_) tree_.send(peer, *sent);
}

/// The parent has left and is gone: this rank needs another, to hear of what happens to the rest.
void Control::advance_new_parent(int64_t now_ns) {
  assert(is_joined_);
  const std::vector<int> wanted = tree_.all_left() ? std::vector<int>() : tree_.parents_wanted();
  if (wanted.empty()) return parent_dial_.reset();
  if (!parent_dial_ || new_parent_ != wanted.front()) {
    new_parent_ = wanted.front();
    parent_dial_ = dial(Purpose::tree, new_parent_, 0);
    if (!parent_dial_) return;
    new_parent_deadline_ns_ = now_ns + setup_.config.timeout.count();
  }
  parent_dial_->advance(set_, now_ns);
  if (parent_dial_->state() == Dialer::State::connected) {
    log(LogLevel::debug, setup_.rank, "rank {} is the new parent in the tree", new_parent_);
    link(new_parent_, parent_dial_->take(), now_ns);
    parent_dial_.reset();
  } else if (parent_dial_->unanswered_rounds() >= kRoundsToGone &&
             (monitor_.has_left(new_parent_) || monitor_.has_left(setup_.rank))) {
    tree_.note_gone(new_parent_);
  } else if (parent_dial_->unanswered_rounds() >= kRoundsToGone && monitor_.epoch() > 0) {
    tree_.report_death(new_parent_);  // before any link with it told of that
  } else if (now_ns >= new_parent_deadline_ns_) {
    fail(ErrorCode::peer_lost,
         fmt::format("cannot reach {} ({})", tree_.describe(new_parent_), parent_dial_->why()),
         kFirewallAdvice, new_parent_);
  }
}

/// A rank that has fallen silent ends the job, with all that cannot be reached either.
void Control::advance_host_probe(int64_t now_ns) {
  auto silence = monitor_.silence();
  if (!silence) return host_probe_.reset();
  if (!is_joined_) return monitor_.report(*silence);
  if (!host_probe_) {
    std::set<std::string> own_ips;
    for (const LocalAddress& local : local_addresses("")) own_ips.insert(local.address.ip());
    host_probe_.emplace(table_, setup_.rank, own_ips, now_ns + setup_.probe_limit().count());
  }
  host_probe_->advance(set_, now_ns);
  if (!host_probe_->is_over()) return;
  std::vector<int> lost = host_probe_->unreachable();
  std::erase_if(lost, [this](int rank) { return monitor_.has_left(rank); });
  if (std::ranges::binary_search(lost, silence->peer))
    silence = name_unreachable(std::move(*silence), table_, std::move(lost),
                               [this](int rank) { return monitor_.rank_in_epoch(rank); });
  monitor_.report(*silence);
}

void Control::advance_bypass(int64_t now_ns) {
  if (monitor_.failure() != nullptr)
    for (const int peer : tree_.take_uninformed(now_ns))
      if (is_joined_) bypass_.relay_around(peer, now_ns);  // else rank 0 tells all
  bypass_.advance(set_, now_ns);
}

/// Null, and the job has failed, where the peer has no address.
std::unique_ptr<Dialer> Control::dial(Purpose purpose, int peer, int stream) {
  auto addresses = addresses_of(peer);
  if (const std::string network = socket_broker_.network_of(stream); !network.empty())
    std::stable_partition(addresses.begin(), addresses.end(), [&](const SocketAddress& address) {
      return is_within(address, network);
    });
  if (!addresses.empty())
    return std::make_unique<Dialer>(std::move(addresses), hello_for(purpose, peer, stream),
                                    *session_key_);
  fail(ErrorCode::peer_lost, tree_.describe(peer) + " has no address to dial",
       "look at ROPEWALK_SOCKET_IFNAME there", peer);
  return nullptr;
}

void Control::advance_dials(int64_t now_ns) {
  if (!is_joined_) return;
  for (const SocketBroker::SocketId& link : socket_broker_.to_dial())
    if (auto dialer = dial(Purpose::socket, link.peer, link.stream))
      dials_[link] = std::move(dialer);
  for (auto dial = dials_.begin(); dial != dials_.end();) {
    const auto& [link, dialer] = *dial;
    dialer->advance(set_, now_ns);
    bool over = dialer->state() != Dialer::State::working;
    if (dialer->state() == Dialer::State::connected && socket_broker_.is_dialing(link)) {
      ConnectedSocket socket = dialer->take();
      tune_data_stream(socket.fd.get());
      log(LogLevel::debug, setup_.rank, "rank {} stream {} connected at {}", link.peer, link.stream,
          dialer->address().text());
      const std::string network = socket_broker_.network_of(link.stream);
      if (!network.empty() && !is_within(dialer->address(), network))
        log(LogLevel::warn, setup_.rank, "rank {} does not answer in {}: its stream {} goes to {}",
            link.peer, network, link.stream, dialer->address().text());
      socket_broker_.deliver(link, std::move(socket));
    } else if (dialer->state() == Dialer::State::yielded) {
      socket_broker_.yielded(link);
    } else if (dialer->is_pausing() && !socket_broker_.is_dialing(link)) {
      over = true;  // the peer's dial was taken meanwhile
    } else if (dialer->is_pausing() && monitor_.has_left(link.peer)) {
      const std::string reason = tree_.describe(link.peer) + " has left the job";
      monitor_.report({ErrorCode::peer_lost, "connect", reason, {}, setup_.rank, link.peer});
    }
    dial = over ? dials_.erase(dial) : std::next(dial);
  }
  const auto [deadline_ns, late] = socket_broker_.next_deadline();
  if (now_ns < deadline_ns || monitor_.failure() != nullptr) return;
  const auto dial = dials_.find(late);
  monitor_.report(
      {ErrorCode::peer_lost, "connect",
       fmt::format(
           "no connection with {} (stream {}) within {:.3g} s{}", tree_.describe(late.peer),
           late.stream, setup_.timeout_s(),
           dial == dials_.end() || dial->second->why().empty() ? "" : ": " + dial->second->why()),
       kFirewallAdvice, setup_.rank, late.peer});
}

Hello Control::hello_for(Purpose purpose, int to, int stream) const {
  return {.purpose = purpose,
          .from = static_cast<uint32_t>(setup_.rank),
          .to = static_cast<uint32_t>(to),
          .stream = static_cast<uint32_t>(stream)};
}

/// In the record's order. Rank 0 first where it was reached before, at the port of its record.
std::vector<SocketAddress> Control::addresses_of(int peer) const {
  std::vector<SocketAddress> addresses;
  for (const std::string& text : table_[static_cast<size_t>(peer)].addresses) {
    const auto address = numeric_address(text);
    if (!address) continue;
    if (addresses.empty() && peer == 0 && coordinator_) {
      addresses.push_back(*coordinator_);
      addresses[0].set_port(address->port());
    }
    if (addresses.empty() || addresses[0].text() != address->text()) addresses.push_back(*address);
  }
  return addresses;
}

}  // namespace ropewalk::bootstrap
