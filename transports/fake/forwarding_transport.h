// A transport that is another one: for those that watch, or change, what passes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ropewalk/transport.h"

namespace ropewalk {

/// `below` outlives it. Threads: as `below`.
class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(Transport& below) : below_(below) {}

  std::string_view name() const override { return below_.name(); }
  Capabilities capabilities() const override { return below_.capabilities(); }
  std::unique_ptr<MemoryRegistration> register_memory(const Region& region) override {
    return below_.register_memory(region);
  }
  void connect(int peer, std::span<const std::byte> hello) override { below_.connect(peer, hello); }
  bool connected(int peer) const override { return below_.connected(peer); }
  bool is_wanted(int peer) const override { return below_.is_wanted(peer); }
  std::span<const std::byte> hello_of(int peer) const override { return below_.hello_of(peer); }
  Posted put(const PutRequest& request) override { return below_.put(request); }
  void begin_batch() override { below_.begin_batch(); }
  void end_batch() override { below_.end_batch(); }
  bool has_unsent() override { return below_.has_unsent(); }
  std::byte* map(int peer, RemoteKey key, uint64_t offset, size_t bytes) override {
    return below_.map(peer, key, offset, bytes);
  }
  void unmap_deregistered() override { below_.unmap_deregistered(); }
  void wake(int peer) override { below_.wake(peer); }
  size_t poll(std::span<Completion> into) override { return below_.poll(into); }
  int event_fd() const override { return below_.event_fd(); }
  bool arm() override { return below_.arm(); }
  void drop(int peer) override { below_.drop(peer); }
  void stop() override { below_.stop(); }
  LossReason why_lost(int peer) const override { return below_.why_lost(peer); }

 protected:
  Transport& below_;
};

}  // namespace ropewalk
