// The shared memory through which a rank's local peers reach it. Layout, for a job of n ranks:
//
//   MailboxHeader
//   RegionTable                  what this rank has registered; this rank writes
//   HelloSlot  [n], by sender    what the sender passed to connect(this rank); the sender writes
//   NoticeRing [n], by sender    notices to this rank; the sender writes entries, this rank `taken`
//
// It is as sparse as its kind of memory can be: what no link uses is not touched. All ranks run the
// same build of this layout; kLayoutVersion tells when they do not.
#pragma once

#include "transports/shm/region_table.h"

namespace ropewalk::shm {

inline constexpr uint64_t kMagic = 0x6b6c617765706f72;  // "ropewalk"
inline constexpr uint32_t kLayoutVersion = 3;

struct MailboxHeader {
  uint64_t magic;
  uint32_t version;
  int32_t rank;
  int32_t ranks;
  uint64_t nonce;  // as in the record: a reused pid or descriptor number is not taken for the rank
  uint64_t doorbell_inode;
  /// 1 while the owner waits for its doorbell. The owner sets it; whoever swaps it to 0 rings.
  alignas(kLineBytes) std::atomic<uint32_t> asleep;
  /// How many slots have become ready.
  alignas(kLineBytes) std::atomic<uint32_t> hellos;
};

struct HelloSlot {
  std::atomic<uint32_t> ready;
  uint32_t bytes;
  std::byte text[kHelloBytesMax];
};

/// A view of a mailbox.
class Mailbox {
 public:
  Mailbox() = default;
  /// At `base` bytes_for(ranks) bytes are mapped.
  Mailbox(std::byte* base, int ranks) : ranks_(ranks), base_(base) {}

  static size_t bytes_for(int ranks) {
    return rings_offset(ranks) + static_cast<size_t>(ranks) * sizeof(NoticeRing);
  }

  explicit operator bool() const noexcept { return base_ != nullptr; }
  MailboxHeader& header() const { return *at<MailboxHeader>(0); }
  RegionTable& regions() const { return *at<RegionTable>(kTableOffset); }
  HelloSlot& hello_from(int sender) const { return at<HelloSlot>(kHellosOffset)[sender]; }
  NoticeRing& ring_from(int sender) const { return at<NoticeRing>(rings_offset(ranks_))[sender]; }

 private:
  static constexpr size_t kTableOffset = round_up(sizeof(MailboxHeader), kLineBytes);
  static constexpr size_t kHellosOffset = round_up(kTableOffset + sizeof(RegionTable), kLineBytes);
  static constexpr size_t rings_offset(int ranks) {
    return round_up(kHellosOffset + static_cast<size_t>(ranks) * sizeof(HelloSlot), kLineBytes);
  }
  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  int ranks_ = 0;
  std::byte* base_ = nullptr;
};

}  // namespace ropewalk::shm
