// A receive communicator of NCCL.
#pragma once

#include <array>
#include <cstdint>

#include "integrations/nccl/link.h"

namespace ropewalk::nccl {

/// The arguments of a grouped receive, as NCCL gives them.
struct GroupedReceive {
  int count = 0;
  void** data = nullptr;
  const size_t* bytes = nullptr;
  const int* tags = nullptr;
  void** memories = nullptr;  // MemoryRegistrations
};

class ReceiveLink final : public Link {
 public:
  explicit ReceiveLink(LinkParts parts);

  /// `*request` is null where kRequestsMax are under way, or the transport is full.
  Result irecv(const GroupedReceive& receive, Request** request);
  Result test(Request& request, int* done, int* bytes) override;

 private:
  struct Receive : Request {
    int count = 0;                                          // of the group
    int unfinished = 0;                                     // of the group
    uint32_t finished = 0;                                  // a bit each
    std::array<uint64_t, kReceivesMax> room{}, received{};  // bytes
    bool is_active = false;
    bool is_posting_under_way = false;  // its put reads the ring
  };

  void on_notice(uint32_t notice) override;
  void on_put_done(uint64_t cookie) override { receives_[cookie].is_posting_under_way = false; }
  Result check(const GroupedReceive& receive) const;
  void write_posting(const GroupedReceive& receive, size_t slot);
  Posted put_posting(size_t slot, int count);

  std::array<Receive, kRequestsMax> receives_;  // by slot
  uint64_t posted_ = 0;
};

}  // namespace ropewalk::nccl
