// How ranks of one host come by memory that all of them map. What travels through it, and when, is
// the transport's: nothing here is called on its way.
#pragma once

#include "memory/memfd.h"
#include "ropewalk/transport.h"

namespace ropewalk::shm {

/// By what a peer finds a piece of its owner's memory. Opaque to all but the Sharing that made it;
/// words that it does not need are 0.
struct Share {
  static constexpr size_t kWords = 8;
  std::array<uint64_t, kWords> words{};

  bool operator==(const Share&) const = default;
};

/// What a rank publishes so that local peers find its mailbox.
/// As text: "shm3:PID:DOORBELL_FD:NONCE:MAILBOX". The first two numbers are decimal, the nonce is
/// 16 hexadecimal digits, the mailbox its share's words in hexadecimal up to the last that is not
/// 0, joined by "."; for example "shm3:4711:6:00c0ffee00c0ffee:5.0.3c1".
struct MailboxAddress {
  int rank = -1;     // not in the text: the bootstrap knows who sent it
  std::string kind;  // the Sharing's name
  int32_t pid = 0;
  int32_t doorbell_fd = -1;
  uint64_t nonce = 0;
  Share mailbox;

  std::string text() const;
  /// Throws Error(protocol) unless `text` is exactly such a line, of a rank that shares memory in
  /// the way `kind`.
  static MailboxAddress parse(int rank, std::string_view kind, std::string_view text);
};

/// Opens descriptor `fd` of the owner's process for reading and writing, through /proc. `what`
/// begins the error's sentence: "open the doorbell of". Throws Error(unavailable), which says who
/// refused and how to do without shared memory, or Error(exhausted).
UniqueFd open_descriptor_of(const MailboxAddress& owner, int fd, std::string_view what);

/// A piece of a peer's memory, mapped here until the object ends, which must be before the Sharing.
class Mapping {
 public:
  virtual ~Mapping() = default;
  virtual std::byte* base() const = 0;
};

/// Threads: `allocate` and `share` may be called by any; the rest by one at a time.
class Sharing {
 public:
  virtual ~Sharing() = default;
  /// Of the transport: "shm".
  virtual std::string_view name() const = 0;
  /// Peers can map any memory file; else nothing but what `allocate` gives.
  virtual bool shares_files() const = 0;
  /// Zeroes, page-aligned. Throws Error(exhausted).
  virtual std::unique_ptr<TransportAllocation> allocate(size_t bytes) = 0;
  /// Throws Error(invalid_argument) for memory that peers cannot map.
  virtual Share share(const Region& region) = 0;
  /// Maps `bytes` of what `owner` shared. Throws Error.
  virtual std::unique_ptr<Mapping> map(const MailboxAddress& owner, const Share& share,
                                       uint64_t bytes) = 0;
};

/// By memory files without names, which peers open through /proc/PID/fd. Shares: descriptor, offset
/// in the file, the file's inode number (its owner may have died, and its pid be another's).
class MemfdSharing final : public Sharing {
 public:
  std::string_view name() const override { return "shm"; }
  bool shares_files() const override { return true; }
  /// Sparse: what is not touched takes no memory.
  std::unique_ptr<TransportAllocation> allocate(size_t bytes) override;
  Share share(const Region& region) override;
  std::unique_ptr<Mapping> map(const MailboxAddress& owner, const Share& share,
                               uint64_t bytes) override;
};

}  // namespace ropewalk::shm
