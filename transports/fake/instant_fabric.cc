#include "transports/fake/instant_fabric.h"

#include <cassert>
#include <cstring>

#include "transports/network_peers.h"
#include "transports/region_memory.h"

namespace ropewalk {

class InstantTransport final : public Transport, public MappedMemory {
 public:
  InstantTransport(InstantFabric& fabric, int rank, int ranks)
      : fabric_(fabric), rank_(rank), sides_(ranks), notices_(fabric.options_.notices_max) {}

  Capabilities capabilities() const override {
    return {.name = "instant", .needs_registration = fabric_.options_.load_store};
  }
  MappedMemory* mapped_memory() override { return fabric_.options_.load_store ? this : nullptr; }
  std::unique_ptr<MemoryRegistration> register_memory(const Region& region) override {
    return std::make_unique<RegionMemory>(regions_, region);
  }

  void connect(int peer, std::span<const std::byte> hello) override {
    if (hello.size() > kHelloBytesMax)
      throw Error(ErrorCode::invalid_argument, "instant", "the hello is too long");
    if (std::exchange(side(peer).connecting, true)) return;
    Side& theirs = fabric_.at(peer).side(rank_);
    theirs.hello.assign(hello.begin(), hello.end());
    theirs.hello_here = true;
  }
  std::optional<std::span<const std::byte>> hello_of(int peer) const override {
    const Side& s = side(peer);
    if (!s.connecting || !s.hello_here || s.gone) return {};
    return s.hello;
  }
  void find_wanted(std::vector<int>& peers) override {
    for (int peer = 0; peer < static_cast<int>(sides_.size()); ++peer)
      if (!side(peer).connecting && side(peer).hello_here) peers.push_back(peer);
  }

  Posted put(const PutRequest& request) override {
    Side& to = side(request.peer);
    if (to.gone || !to.connecting) return Posted::lost;
    if (!to.hello_here) return Posted::full;
    InstantTransport& theirs = fabric_.at(request.peer);
    if (theirs.end_ - theirs.begin_ == theirs.notices_.size()) return Posted::full;
    if (request.bytes > 0) {
      std::byte* target = theirs.regions_.find(request.key.id, request.offset, request.bytes);
      if (target == nullptr || !is_within_key(request)) {
        to.gone = true;
        to.why = "a put to memory that is not registered";
        return Posted::lost;
      }
      if (request.bytes <= fabric_.options_.moved_bytes_max)
        std::memcpy(target, request.source, request.bytes);
    }
    theirs.notices_[theirs.end_++ & (theirs.notices_.size() - 1)] = {Completion::Kind::notice,
                                                                     rank_, request.notice, 0};
    return Posted::done;
  }

  void set_batching(bool) override {}
  bool has_unsent() override { return false; }

  std::unique_ptr<TransportAllocation> allocate(size_t) override { return nullptr; }
  std::byte* map(int peer, RemoteKey key, uint64_t offset, size_t bytes) override {
    return side(peer).gone ? nullptr : fabric_.at(peer).regions_.find(key.id, offset, bytes);
  }
  void unmap_deregistered() override {}
  void wake(int) override {}

  size_t poll(std::span<Completion> into) override {
    size_t filled = 0;
    while (filled < into.size() && begin_ != end_) {
      const Completion& next = notices_[begin_++ & (notices_.size() - 1)];
      if (!side(next.peer).dropped) into[filled++] = next;
    }
    while (filled < into.size() && !lost_.empty()) {
      into[filled++] = {Completion::Kind::lost, lost_.back(), 0, 0};
      lost_.pop_back();
    }
    return filled;
  }
  bool arm() override { return begin_ == end_ && lost_.empty(); }

  void drop(int peer) override {
    Side& own = side(peer);
    if (std::exchange(own.dropped, true)) return;
    own.gone = true;
    InstantTransport& theirs = fabric_.at(peer);
    Side& other = theirs.side(rank_);
    if (std::exchange(other.gone, true) || !other.connecting) return;
    other.why = "the peer closed the link";
    theirs.lost_.push_back(rank_);
  }
  void set_stopped([[maybe_unused]] bool on) override { assert(on); }
  LossReason why_lost(int peer) const override { return {.text = side(peer).why, .advice = {}}; }

 private:
  struct Side {
    bool connecting = false, hello_here = false;
    bool gone = false;     // nothing passes any more
    bool dropped = false;  // this side did it
    std::vector<std::byte> hello;
    std::string why;
  };

  Side& side(int peer) { return sides_[peer]; }
  const Side& side(int peer) const { return sides_[peer]; }

  InstantFabric& fabric_;
  const int rank_;
  std::vector<Side> sides_;  // by peer
  Regions regions_;          // the targets of puts
  std::vector<Completion> notices_;
  size_t begin_ = 0, end_ = 0;  // into notices_, counted on for ever
  std::vector<int> lost_;       // peers that are still to be told of
};

InstantFabric::InstantFabric(int ranks, InstantOptions options) : options_(options) {
  assert((options.notices_max & (options.notices_max - 1)) == 0);
  for (int rank = 0; rank < ranks; ++rank)
    transports_.push_back(std::make_unique<InstantTransport>(*this, rank, ranks));
}

InstantFabric::~InstantFabric() = default;

Transport& InstantFabric::transport(int rank) {
  return at(rank);
}

}  // namespace ropewalk
