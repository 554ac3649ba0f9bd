// A transport that is another one: for those that watch, or change, what passes. Transport has no
// defaults, so that this cannot forget a method and compile.
#pragma once

#include "ropewalk/transport.h"

namespace ropewalk {

/// `below` outlives it. Threads: as `below`.
class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(Transport& below) : below_(below) {}

  Capabilities capabilities() const override { return below_.capabilities(); }
  MappedMemory* mapped_memory() override { return below_.mapped_memory(); }
  std::unique_ptr<MemoryRegistration> register_memory(const Region& region) override {
    return below_.register_memory(region);
  }
  void connect(int peer, std::span<const std::byte> hello) override { below_.connect(peer, hello); }
  std::optional<std::span<const std::byte>> hello_of(int peer) const override {
    return below_.hello_of(peer);
  }
  void find_wanted(std::vector<int>& peers) override { below_.find_wanted(peers); }
  Posted put(const PutRequest& request) override { return below_.put(request); }
  void set_batching(bool on) override { below_.set_batching(on); }
  bool has_unsent() override { return below_.has_unsent(); }
  size_t poll(std::span<Completion> into) override { return below_.poll(into); }
  bool arm() override { return below_.arm(); }
  void drop(int peer) override { below_.drop(peer); }
  void set_stopped(bool on) override { below_.set_stopped(on); }
  LossReason why_lost(int peer) const override { return below_.why_lost(peer); }

 protected:
  Transport& below_;
};

}  // namespace ropewalk
