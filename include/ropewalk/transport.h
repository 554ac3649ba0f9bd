// What a transport implements. A transport moves bytes between two ranks and knows nothing of
// collectives. To add one, implement `Transport`, and `MappedMemory` where ranks share memory, and
// pass tests/conformance.
//
// Threads: one thread at a time uses a transport (the engine holds a lock). Nothing here blocks,
// and nothing calls back: what happened comes out of `poll`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/status.h"

namespace ropewalk {

/// What a transport can do, and how; the same for as long as it lives.
struct Capabilities {
  std::string_view name;            // "tcp"; valid as long as the transport
  bool needs_registration = false;  // not any memory can be registered: only Ropewalk's own
  bool registered_sources = false;  // see PutRequest::source_memory
  size_t inline_bytes_max = 0;  // where registered_sources: puts up to this need no source_memory
  size_t op_bytes_max = size_t{1} << 30;
  /// Puts that are longer than this and not urgent may be spread over several adapters; urgent ones
  /// take one. Equal at both ends. SIZE_MAX: no put as short as an urgent one is.
  size_t spread_bytes_min = SIZE_MAX;
  bool uses_poll_timer = false;  // event_fd may become readable by a timer alone, after an arrival
  bool polls_kernel = false;     // `poll` makes system calls, beside which a yield costs little
  /// For so long a put is sent again and again to a peer that does not answer; then it is lost.
  int64_t silence_max_ns = 0;
  bool restarts = false;  // set_stopped(false) may follow set_stopped(true)
  /// Becomes readable when `poll` may have something new, or a peer called MappedMemory::wake; -1
  /// where the transport has no such descriptor. See Transport::arm. Valid as long as the
  /// transport.
  int event_fd = -1;
};

/// Names registered memory to a peer; opaque to all but the transport that made it. Travels in
/// messages as 16 bytes.
struct RemoteKey {
  uint64_t id = 0;
  uint64_t bytes = 0;  // from MemoryRegistration::base() to the end of what may be written
};

class TransportAllocation;

/// A piece of this process's address space. Where `memfd` >= 0 the piece is the mapping of that
/// file from `memfd_offset`, so that local peers can map it too; where `allocation` is not null it
/// lies in that allocation, for the same purpose.
struct Region {
  std::byte* base = nullptr;
  size_t bytes = 0;
  int memfd = -1;
  size_t memfd_offset = 0;
  bool source_only = false;  // no peer will write here: it may be read-only memory
  const TransportAllocation* allocation = nullptr;

  /// Ropewalk's own memory, which stays mapped while it is registered.
  bool is_own() const { return memfd >= 0 || allocation != nullptr; }
};

/// Memory that a transport gives, whose peers can map no other. Ends with the object: after its
/// registrations, and before the transport. Threads: may end on any.
class TransportAllocation {
 public:
  virtual ~TransportAllocation() = default;
  /// All of it.
  virtual Region region() const = 0;
};

/// A registration; ends with the object. The transport must outlive it. Not movable.
/// Threads: `current` may be called by any; the rest does not change.
class MemoryRegistration {
 public:
  virtual ~MemoryRegistration() = default;
  virtual RemoteKey key() const = 0;
  /// The address that offset 0 of `key()` names: the region's begin or below it. What lies between
  /// may not be written.
  virtual const std::byte* base() const = 0;
  /// False once the pages under the region may no longer be those that were registered (its owner
  /// has unmapped them), or where nobody would notice: register again for the next use. One that is
  /// not current still covers puts under way.
  virtual bool current() const { return true; }
};

struct Completion {
  enum class Kind : uint8_t {
    put_done,  // the put with `cookie` no longer reads its source
    notice,    // a put of `peer` with `notice` is here, all of its bytes visible
    lost,      // `peer` is gone; nothing more will come from it; its puts are dropped
  };
  Kind kind = Kind::notice;
  int peer = -1;
  uint32_t notice = 0;
  uint64_t cookie = 0;
};

/// Why a peer was lost.
struct LossReason {
  std::string text;     // "connection reset by peer"; empty where it was not lost
  bool silent = false;  // it had not answered for Capabilities::silence_max_ns
  bool seen = false;    // this end saw what was wrong; the peer sees only that the link is closed
  bool closed = false;  // by the peer, perhaps since it has heard of a failure before this end
  std::string advice;   // what to do about it, where the reason lies at this end; else empty
};

inline constexpr size_t kUrgentPutBytesMax = (16 << 10) + 64;

/// A one-sided write plus notice.
struct PutRequest {
  int peer = -1;
  const std::byte* source = nullptr;
  /// Where `registered_sources`: a registration of this transport, alive until put_done, that holds
  /// all of [source, source + bytes). May be null where `bytes` is at most `inline_bytes_max`.
  /// Everywhere else it is not looked at.
  const MemoryRegistration* source_memory = nullptr;
  size_t bytes = 0;     // 0: a pure notice; `source` and `key` are unused. At most `op_bytes_max`
  RemoteKey key = {};   // of the target, a region of the peer
  uint64_t offset = 0;  // in it, in bytes
  uint32_t notice = 0;  // for the peer
  /// Control, which should not stand behind data. Urgent puts to a peer are in order among
  /// themselves, and the others are; either may overtake the other. At most kUrgentPutBytesMax.
  bool urgent = false;
  uint64_t cookie = 0;  // for this rank, in put_done
};

inline constexpr size_t kHelloBytesMax = 256;

enum class Posted : uint8_t {
  done,    // accepted, and the source may be reused at once: no put_done will come. Unless it is
           // urgent, never while the put_done of an earlier put to the same peer is still to come
  posted,  // accepted; a put_done with the cookie will come
  full,    // not accepted: poll, then try again
  lost,    // the peer is gone; its earlier puts are dropped when `poll` says so, or by `drop`
};

/// Load and store to the memory of peers, of transports whose ranks can map each other's.
class MappedMemory {
 public:
  virtual ~MappedMemory() = default;
  /// Where not null: page-aligned memory of `bytes` zeroes or more, and only such can be registered
  /// here. Null where a memfd will do. Threads: any. Throws Error(exhausted) with the exact fix
  /// where a limit forbids it.
  virtual std::unique_ptr<TransportAllocation> allocate(size_t bytes) = 0;

  /// The address of `offset` in the peer's region, mapped for `bytes`, or null where it cannot be
  /// mapped; why_lost says why. Cheap when mapped before. Valid until `unmap_deregistered`, even
  /// when the peer deregisters before, as one does that fails.
  virtual std::byte* map(int peer, RemoteKey key, uint64_t offset, size_t bytes) = 0;
  /// Unmaps what peers have deregistered, so that its memory is really freed. Not while an address
  /// of theirs may be used.
  virtual void unmap_deregistered() = 0;

  /// Lets `peer`, should it sleep, see what was stored into its memory through `map`. Cheap where
  /// it does not.
  virtual void wake(int peer) = 0;
};

/// Nothing has a default: a transport that forwards to another must forward all.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual Capabilities capabilities() const = 0;
  std::string_view name() const { return capabilities().name; }

  /// Null where peers' memory cannot be mapped. Always the same. Threads: any.
  virtual MappedMemory* mapped_memory() = 0;
  /// Makes `region` a legal source of puts and, unless it is source_only, target of peers' puts.
  /// Throws Error(exhausted) with the exact fix where a limit forbids it.
  virtual std::unique_ptr<MemoryRegistration> register_memory(const Region& region) = 0;

  /// Begins linking with `peer`; returns at once; a repeated call does nothing. The link stands
  /// once both sides have called it. `hello` (at most kHelloBytesMax) is handed to the peer.
  virtual void connect(int peer, std::span<const std::byte> hello) = 0;
  /// What the peer passed to its `connect`, once puts to it can be posted. Progress is made by
  /// `poll`. Nothing again where the link is no more.
  virtual std::optional<std::span<const std::byte>> hello_of(int peer) const = 0;
  bool connected(int peer) const { return hello_of(peer).has_value(); }
  /// Appends the peers that have called `connect`, as far as this side can see, where this side has
  /// not. Cheap where there are none.
  virtual void find_wanted(std::vector<int>& peers) = 0;

  /// Writes the bytes of the source to the peer's region; when all are visible there the peer's
  /// `poll` gives the notice. Puts to one peer arrive, and their put_dones come, in the order
  /// posted, urgent ones apart from the others. The source must stay untouched until put_done; the
  /// request itself may go at once. `lost` where `source_memory` is not as it must be; why_lost
  /// says so. `lost` without a write where `offset` + `bytes` exceed `key.bytes`; why_lost says so.
  virtual Posted put(const PutRequest& request) = 0;

  /// While batching is on a transport may hold back small puts, so that several to one peer leave
  /// together; their answers stay the same. A long put (64 KiB and more) leaves at once, with what
  /// was held back before it to that peer. Off at first: no put waits for another. To switch it off
  /// sends what was held back. Nothing to do where a put has left when it is answered, as all have
  /// that have `mapped_memory`.
  virtual void set_batching(bool on) = 0;
  /// True while bytes of puts, perhaps of such as are `done`, wait for `poll` to send them.
  virtual bool has_unsent() = 0;

  /// Moves bytes and fills `into`; returns how many entries were filled.
  virtual size_t poll(std::span<Completion> into) = 0;
  /// Call before waiting for Capabilities::event_fd. False: there is something already. What peers
  /// stored through `map` the caller must look for itself, after `arm`.
  virtual bool arm() = 0;

  /// Gives `peer` up; pending puts are forgotten. No `lost` follows.
  virtual void drop(int peer) = 0;
  /// True: from now on no byte moves from or to memory here except through MappedMemory: callers
  /// free theirs when a job has failed, and adapters, this one's and the peers', do not know. Only
  /// the destructor is called then, and `drop`, `has_unsent`, `arm`, set_stopped(false),
  /// MappedMemory::unmap_deregistered. Peers hear of it no sooner than by an adapter's own timeout.
  /// Nothing to do where bytes move in calls of `put` and `poll` only.
  /// False, after true and where Capabilities::restarts: goes on with the peers that were not
  /// dropped, which all do the same, and none of which puts any more of what was under way. Notices
  /// of that may still come.
  virtual void set_stopped(bool on) = 0;
  /// Why `poll`, `put` or `map` said that the peer is lost.
  virtual LossReason why_lost(int peer) const = 0;
};

}  // namespace ropewalk
