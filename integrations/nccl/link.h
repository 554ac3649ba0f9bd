// One connection between two ranks, in one direction of data: what the send and the receive
// communicators of NCCL have in common.
//
// The receiver posts: for each `irecv` it puts a Posting into the sender's ring, in order. The
// sender matches its sends with the oldest posting, by tag, and puts the data straight into the
// receiver's memory. So nothing is copied on the way, and the receiver can never be flooded.
//
//   hello      = u32 version u32 zero ring u64 offset   ; of the receiver: version, then zeros
//   ring       = RemoteKey of the memory in which kRequestsMax Postings lie, from the offset on
//   notice of a posting: slot | entries << 8
//   notice of data:      slot | entry << 5 | bytes << 8
//
// Slot k modulo kRequestsMax is posting k's. A message travels in pieces of kPieceBytes and ends
// with a shorter one, perhaps an empty one. docs/protocol.md has the same words.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "integrations/nccl/abi.h"
#include "integrations/nccl/pair_sockets.h"
#include "ropewalk/transport.h"

namespace ropewalk::nccl {

inline constexpr uint32_t kLinkVersion = 1;
inline constexpr int kReceivesMax = 8;  // of a grouped receive
inline constexpr size_t kPieceBytes = size_t{8} << 20;
static_assert(kRequestsMax == 1 << 5 && kReceivesMax == 1 << 3 && kPieceBytes < 1 << 24);

/// Where one receive of a grouped one goes.
struct PostedReceive {
  RemoteKey key;
  uint64_t offset = 0, bytes = 0;
  int32_t tag = 0;
  int32_t zero = 0;
};
static_assert(sizeof(PostedReceive) == 40);
using Posting = std::array<PostedReceive, kReceivesMax>;
static_assert(sizeof(Posting) <= kUrgentPutBytesMax);
using PostingRing = std::array<Posting, kRequestsMax>;

struct LinkHello {
  uint32_t version = kLinkVersion;
  uint32_t zero = 0;
  RemoteKey ring;
  uint64_t ring_offset = 0;  // of the ring behind what the key names
};

/// Whose first member every request is, so that NCCL's `test` finds the link.
struct Request {
  class Link* link = nullptr;
};

/// What two ends have agreed on.
struct LinkParts {
  std::unique_ptr<PairSockets> sockets;
  UniqueFd control;  // whose end says that the peer has
  std::unique_ptr<Transport> transport;
  std::string peer;  // its address, for people
};

/// Threads: NCCL calls from several, for one link too (it registers memory while data moves): each
/// call takes the lock.
class Link {
 public:
  /// Begins to link.
  Link(int rank, LinkParts parts);
  /// Sends what waits, as far as that goes within a second, and forgets what was not tested.
  virtual ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  bool is_sender() const { return rank_ == kSenderRank; }
  /// Goes on linking; true once it stands. Throws Error(peer_lost).
  bool advance_link();
  /// Throws Error where a limit forbids it.
  MemoryRegistration* register_memory(void* data, size_t bytes);
  /// Null and what is unknown count as invalid_argument.
  Result deregister_memory(MemoryRegistration* memory);
  /// Of a request that is neither done nor forgotten.
  virtual Result test(Request& request, int* done, int* bytes) = 0;

 protected:
  int peer() const { return 1 - rank_; }
  /// The sender's, which the peer writes; or what is to be written there.
  PostingRing& ring() { return *ring_; }
  const PostingRing& ring() const { return *ring_; }
  const MemoryRegistration& ring_memory() const { return *ring_memory_; }
  const LinkHello& peers_hello() const { return peers_hello_; }
  Transport& transport() { return *parts_.transport; }

  // Under the lock.
  /// Takes what has arrived.
  void progress();
  virtual void on_notice(uint32_t notice) = 0;
  virtual void on_put_done(uint64_t cookie) = 0;
  bool is_lost() const { return is_lost_; }
  /// From then on every call that wants something of the peer fails.
  void lose(const std::string& why, const std::string& advice);
  /// Of such a call. Logs why, once.
  Result fail_lost();
  /// For a put that was answered with `lost`.
  void lose_for_transport();
  /// Whether [data, data + bytes) lies in what was registered with `memory`.
  bool is_registered(const MemoryRegistration* memory, const void* data, size_t bytes) const;

  std::mutex mutex_;

 private:
  void look_at_control(int64_t now_ns);

  const int rank_;
  const MonotonicClock clock_;
  LinkParts parts_;
  const std::unique_ptr<PostingRing> ring_;
  std::unique_ptr<MemoryRegistration> ring_memory_;
  LinkHello peers_hello_;
  bool is_linked_ = false, is_lost_ = false, loss_told_ = false;
  std::string loss_;
  int64_t look_ns_ = 0, arm_ns_ = 0;  // when next
  int64_t gone_ns_ = 0;               // since when the peer's process has been known to have ended
  struct Memory {
    std::unique_ptr<MemoryRegistration> registration;
    const std::byte* begin;
    size_t bytes;
  };
  // By the handle that NCCL has.
  std::map<const MemoryRegistration*, Memory> memories_;
};

}  // namespace ropewalk::nccl
