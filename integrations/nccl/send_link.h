// A send communicator of NCCL.
#pragma once

#include <array>
#include <cstdint>

#include "integrations/nccl/link.h"

namespace ropewalk::nccl {

class SendLink final : public Link {
 public:
  explicit SendLink(LinkParts parts);

  /// `*request` is null where the receiver has posted nothing with that tag that is next, or too
  /// much is under way: to be called again.
  Result isend(const void* data, size_t bytes, int tag, MemoryRegistration* memory,
               Request** request);
  Result test(Request& request, int* done, int* bytes) override;

 private:
  // Of all that postings there are may hold.
  static constexpr size_t kSendsMax = size_t{kRequestsMax} * kReceivesMax;

  struct Send : Request {
    const std::byte* data = nullptr;
    const MemoryRegistration* memory = nullptr;
    size_t bytes = 0, put_bytes = 0;
    RemoteKey key;
    uint64_t offset = 0;
    uint32_t place = 0;  // slot | entry << 5
    int under_way = 0;   // put_dones to come
    bool is_put = false;
    bool is_active = false;
  };

  void on_notice(uint32_t notice) override;
  void on_put_done(uint64_t cookie) override;
  /// The index of the entry of the oldest posting that such a send may take; -1: there is none.
  int find_entry(int tag) const;
  void start(Send& send, int entry);
  /// Posts pieces of what waits, in order, until the transport is full.
  void put_waiting();
  bool put_piece(Send& send);

  std::array<uint8_t, kRequestsMax> counts_{};  // entries of postings, by slot
  uint64_t posted_ = 0, next_ = 0;  // postings that came; the oldest that is not used up
  uint32_t taken_ = 0;              // entries of the oldest, a bit each
  std::array<Send, kSendsMax> sends_;
  std::array<uint16_t, kSendsMax> free_{}, waiting_{};  // indices; waiting_ is a ring
  size_t free_count_ = kSendsMax, waiting_first_ = 0, waiting_count_ = 0;
};

}  // namespace ropewalk::nccl
