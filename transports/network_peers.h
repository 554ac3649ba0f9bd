// The peers of a transport over a network: what `poll` gives out of them, and how they are lost.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/transport.h"

namespace ropewalk {

/// Whether a put lies in the region that its key names, as far as the key tells.
inline bool is_within_key(const PutRequest& request) {
  return request.bytes == 0 || (request.offset <= request.key.bytes &&
                                request.bytes <= request.key.bytes - request.offset);
}

/// What every such transport keeps of a peer.
struct NetworkPeer {
  enum class State : uint8_t {
    linking,
    linked,
    failing,  // nothing passes any more; its sockets and queues are still there
    lost,
    dropped,
  };

  explicit NetworkPeer(int rank_) : rank(rank_) {}
  bool open() const { return state <= State::linked; }
  /// Its sockets and queues have gone.
  bool released() const { return state >= State::lost; }

  const int rank;
  State state = State::linking;
  int sockets = 0;  // that were taken for it, ever
  LossReason why;
  // NetworkPeers keeps these.
  bool lost_to_tell = false;  // `lost` was not given out yet
  bool in_ready = false;
  bool in_failing = false;
};

/// The peers of one transport. `Peer` is a NetworkPeer with
///   bool gives() const;           whether the following may be called and given out
///   bool put_done() const;        the oldest put that was `posted` is done
///   uint64_t take_put();          removes it, and returns its cookie
///   bool notice_ready() const;    the oldest put that has arrived is whole
///   uint32_t take_notice();       removes it, and returns its notice
///   std::span<const std::byte> hello_here() const;  the peer's; only when linked
///
/// To lose a peer only notes it. It is released, and told of, by `lose_failing`, which the
/// transport calls where it goes through no list. Nothing here allocates once all peers are added.
template <class Peer>
class NetworkPeers {
  using Slot = std::unique_ptr<Peer>;

 public:
  /// A range of peers that leaves out empty slots. (clang 14 cannot compile the views of this age's
  /// libstdc++.)
  struct Added {
    struct Iterator {
      using value_type = Peer;
      using difference_type = std::ptrdiff_t;

      Peer& operator*() const { return **at; }
      Iterator& operator++() {
        at = std::find_if(at + 1, end, [](const Slot& slot) { return slot != nullptr; });
        return *this;
      }
      Iterator operator++(int) {
        const Iterator before = *this;
        ++*this;
        return before;
      }
      bool operator==(const Iterator& other) const { return at == other.at; }

      const Slot *at = nullptr, *end = nullptr;
    };
    Iterator begin() const {
      const Slot* const end = slots.data() + slots.size();
      const auto is_added = [](const Slot& slot) { return slot != nullptr; };
      return {std::find_if(slots.data(), end, is_added), end};
    }
    Iterator end() const { return {slots.data() + slots.size(), slots.data() + slots.size()}; }

    const std::vector<Slot>& slots;
  };

  /// For ranks 0 to `size` - 1.
  explicit NetworkPeers(int size)
      : peers_(static_cast<size_t>(std::max(size, 0))), ready_(peers_.size()) {
    failing_.reserve(peers_.size());
  }

  /// Null where it was never added.
  Peer* find(int peer) const {
    return peer >= 0 && static_cast<size_t>(peer) < peers_.size()
               ? peers_[static_cast<size_t>(peer)].get()
               : nullptr;
  }
  /// `peer` must have been added.
  Peer& operator[](size_t peer) const {
    assert(peer < peers_.size() && peers_[peer] != nullptr);
    return *peers_[peer];
  }
  /// All that were added, by rank.
  Added added() const { return {peers_}; }
  /// There must be none of its rank.
  Peer& add(std::unique_ptr<Peer> peer) {
    auto& slot = peers_[static_cast<size_t>(peer->rank)];
    assert(slot == nullptr);
    slot = std::move(peer);
    return *slot;
  }

  // --- giving out ---
  /// Something waits for `collect`.
  bool any_ready() const { return ready_count_ > 0; }
  /// Queues the peer for `collect` where it has something; true where it has.
  bool publish(Peer& peer) {
    if (peer.in_ready) return true;
    if (!has_arrivals(peer)) return false;
    peer.in_ready = true;
    size_t at = ready_first_ + ready_count_++;  // no remainder: a division costs more than the rest
    if (at >= ready_.size()) at -= ready_.size();
    ready_[at] = &peer;
    return true;
  }
  /// Takes from peers, in the order in which they had something, until `into` is full or nothing is
  /// left. Calls `taken(peer)` for each that `gives`.
  template <class Taken>
  size_t collect(std::span<Completion> into, Taken&& taken) {
    size_t count = 0;
    while (ready_count_ > 0 && count < into.size()) {
      Peer& peer = *ready_[ready_first_];
      if (++ready_first_ == ready_.size()) ready_first_ = 0;
      --ready_count_;
      peer.in_ready = false;
      count += collect_from(peer, into.subspan(count));
      if (peer.gives()) taken(peer);
      publish(peer);  // what did not fit
    }
    return count;
  }

  // --- losing ---
  /// From here on nothing passes. No effect where the peer is not open.
  void lose_silent(Peer& peer, std::string text) {
    if (peer.open()) peer.why.silent = true;
    lose(peer, std::move(text));
  }
  void lose(Peer& peer, std::string text, std::string advice = {}) {
    if (!peer.open()) return;
    peer.why.text = std::move(text);
    peer.why.advice = std::move(advice);
    peer.state = Peer::State::failing;
    list(peer);
  }
  /// It has closed its end.
  void lose_closed(Peer& peer, std::string text) {
    peer.why.closed = peer.why.closed || peer.open();
    lose(peer, std::move(text));
  }
  /// For what came from it.
  void refuse(Peer& peer, std::string text) {
    peer.why.seen = peer.why.seen || peer.open();
    lose(peer, std::move(text));
  }
  /// Once all that came from it before is given out.
  void lose_later(Peer& peer, std::string text) {
    if (!peer.open() || peer.in_failing) return;
    peer.why.text = std::move(text);
    list(peer);
  }
  /// Those that `lose_failing` will look at, in order.
  const std::vector<Peer*>& failing() const { return failing_; }
  /// Of the first `peers_max` of them, those of which nothing more is to be given out are lost:
  /// calls `release(peer)`, which ends their sockets and queues, and may lose others.
  template <class Release>
  void lose_failing(Release&& release, size_t peers_max = SIZE_MAX) {
    size_t kept = 0;
    for (size_t i = 0; i < failing_.size(); ++i) {
      Peer& peer = *failing_[i];
      if (i >= peers_max || (peer.open() && has_arrivals(peer))) {
        publish(peer);
        failing_[kept++] = &peer;
        continue;
      }
      peer.in_failing = false;
      if (peer.released()) continue;
      peer.state = Peer::State::lost;
      peer.lost_to_tell = true;
      release(peer);
      publish(peer);
    }
    failing_.resize(kept);
  }
  /// No `lost` will come. What it holds is for the transport to release.
  void drop(Peer& peer) {
    peer.state = Peer::State::dropped;
    peer.lost_to_tell = false;
  }

 private:
  static bool has_arrivals(const Peer& peer) {
    return peer.lost_to_tell || (peer.gives() && (peer.notice_ready() || peer.put_done()));
  }
  void list(Peer& peer) {
    if (!std::exchange(peer.in_failing, true)) failing_.push_back(&peer);
  }
  static size_t collect_from(Peer& peer, std::span<Completion> into) {
    size_t count = 0;
    if (peer.gives()) {
      for (; count < into.size() && peer.put_done(); ++count)
        into[count] = {Completion::Kind::put_done, peer.rank, 0, peer.take_put()};
      for (; count < into.size() && peer.notice_ready(); ++count)
        into[count] = {Completion::Kind::notice, peer.rank, peer.take_notice(), 0};
    }
    if (count < into.size() && peer.lost_to_tell) {
      into[count++] = {Completion::Kind::lost, peer.rank, 0, 0};
      peer.lost_to_tell = false;
    }
    return count;
  }

  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> failing_;
  std::vector<Peer*> ready_;  // a ring: peers in the order in which they had something
  size_t ready_first_ = 0, ready_count_ = 0;
};

}  // namespace ropewalk
