// A hash of 64-bit words, for what ranks compare (docs/protocol.md, "Signature"). Each step is one
// to one, so sequences that differ in one word have different hashes. It keeps no secret.
#pragma once

#include <cstdint>

namespace ropewalk {

inline constexpr uint64_t kWordHashStart = 0x9e3779b97f4a7c15;

/// Of what `hash` is of, and then `word`. The lower half is the better one.
constexpr uint64_t hash_word(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9fb21c651e98df25;
  return hash ^ hash >> 32;
}

}  // namespace ropewalk
