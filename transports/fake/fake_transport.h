// One rank's end of a FakeFabric. Made and owned by the fabric.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ropewalk/transport.h"
#include "transports/fake/fake_fabric.h"

namespace ropewalk {

class FakeTransport final : public Transport, public MappedMemory {
 public:
  FakeTransport(FakeFabric& fabric, int rank, int ranks);

  Capabilities capabilities() const override;
  MappedMemory* mapped_memory() override { return fabric_.options_.load_store ? this : nullptr; }
  std::unique_ptr<MemoryRegistration> register_memory(const Region& region) override;
  void connect(int peer, std::span<const std::byte> hello) override;
  std::optional<std::span<const std::byte>> hello_of(int peer) const override;
  bool is_wanted(int peer) const override;
  Posted put(const PutRequest& request) override;
  void set_batching(bool) override {}
  bool has_unsent() override { return false; }
  std::unique_ptr<TransportAllocation> allocate(size_t) override { return nullptr; }
  std::byte* map(int peer, RemoteKey key, uint64_t offset, size_t bytes) override;
  void unmap_deregistered() override {}
  void wake(int) override {}
  size_t poll(std::span<Completion> into) override;
  int event_fd() const override { return -1; }
  bool arm() override { return completions_.empty(); }
  void drop(int peer) override;
  void stop() override {}
  LossReason why_lost(int peer) const override;

 private:
  friend class FakeFabric;
  class Registration;

  /// A put on its way.
  struct Message {
    explicit Message(const PutRequest& request) : put(request) {}
    const PutRequest put;
    std::vector<std::byte> payload;  // once read
    bool was_read = false;
    bool arrived = false;
    bool cancelled = false;  // never reads, arrives or completes any more
  };
  /// This rank's view of one peer.
  struct Side {
    bool connecting = false;
    bool hello_here = false;
    bool cut = false;              // nothing passes; this side may not know yet
    bool lost = false;             // this side knows
    bool dropped = false;          // this side did it
    std::vector<std::byte> hello;  // the peer's
    std::string why;
    int64_t wire_free_ns = 0;                  // when the link to the peer can take the next put
    std::array<int64_t, 2> last_arrival_ns{};  // at the peer; of urgent puts the second
    std::array<int64_t, 2> last_done_ns{};
    int puts_to_finish = 0;                            // posted, and put_done not yet given
    std::vector<std::shared_ptr<Message>> on_the_way;  // to the peer, until arrived and done
  };

  Side& side(int peer) { return sides_.at(static_cast<size_t>(peer)); }
  const Side& side(int peer) const { return sides_.at(static_cast<size_t>(peer)); }
  int64_t arrival_of(Side& to, size_t bytes, bool urgent);
  void send(int peer, std::shared_ptr<Message> message, bool done);
  void read_source(int peer, Message& message);
  /// Empty, or why its memory does not make the source readable.
  std::string check_source(const PutRequest& put) const;
  void arrive(int from, Message& message);
  void complete(int peer, const std::shared_ptr<Message>& message);
  void tear(int peer, bool source_readable);
  void give_up(Side& to);
  void tell_lost(int peer, const std::string& why);
  /// Where a put may write, or null.
  std::byte* target_of(RemoteKey key, uint64_t offset, size_t bytes) const;

  FakeFabric& fabric_;
  const int rank_;
  std::vector<Side> sides_;  // by peer
  std::map<uint64_t, Region> regions_;
  std::map<const MemoryRegistration*, uint64_t> region_ids_;  // of what is registered
  uint64_t registrations_ = 0;                                // ever
  std::deque<Completion> completions_;
};

}  // namespace ropewalk
