// What a rank publishes so that local peers find its mailbox, and how they open its descriptors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "memory/memfd.h"

namespace ropewalk::shm {

/// As text: "shm1:PID:MAILBOX_FD:DOORBELL_FD:NONCE", numbers in decimal, the nonce as 16
/// hexadecimal digits; for example "shm1:4711:5:6:00c0ffee00c0ffee".
struct PeerInfo {
  int rank = -1;  // not in the text: the bootstrap knows who sent it
  int32_t pid = 0;
  int32_t mailbox_fd = -1;
  int32_t doorbell_fd = -1;
  uint64_t nonce = 0;

  std::string text() const;
  /// Throws Error(protocol) unless `text` is exactly such a line.
  static PeerInfo parse(int rank, std::string_view text);
};

/// Opens descriptor `fd` of the owner's process for reading and writing, through /proc. `what`
/// begins the error's sentence: "open the mailbox of". Throws Error(unavailable), which says who
/// refused and how to do without shared memory, or Error(exhausted).
UniqueFd open_descriptor_of(const PeerInfo& owner, int fd, std::string_view what);

}  // namespace ropewalk::shm
