// What a rank publishes so that local peers find its mailbox, and how they open its descriptors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "memory/memfd.h"
#include "transports/shm/sharing.h"

namespace ropewalk::shm {

/// As text: "shm2:PID:DOORBELL_FD:NONCE:MAILBOX". The first two numbers are decimal, the nonce is
/// 16 hexadecimal digits, the mailbox its share's words in hexadecimal up to the last that is not
/// 0, joined by "."; for example "shm2:4711:6:00c0ffee00c0ffee:5.0.3c1".
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

}  // namespace ropewalk::shm
