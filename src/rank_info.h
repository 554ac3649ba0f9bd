// What ranks tell each other about themselves when they join, inside the bootstrap's card
// (docs/protocol.md, "Frames").
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ropewalk {

struct RankInfo {
  std::string transport;  // as asked for: "auto", "shm", "tcp"
  std::vector<int> cpus;  // that the rank may use
  std::string mailbox;    // its address in shared memory; empty without

  std::string text() const;
  /// Throws Error(protocol) for what is no such text.
  static RankInfo parse(std::string_view text);
};

}  // namespace ropewalk
