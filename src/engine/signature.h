// What a rank says it is calling: travels in the first header of every message, so that ranks that
// call different things learn it (docs/protocol.md, "Signature").
#pragma once

#include <cstdint>
#include <string>

#include "ropewalk/communicator.h"

namespace ropewalk {

/// 32 bytes on the wire, little-endian, compared byte for byte.
struct Signature {
  uint32_t sequence = 0;  // the how-manieth collective of the communicator (or message of the pair)
  uint8_t collective = 0, type = 0, op = 0, algorithm = 0;
  int32_t root = 0;
  uint32_t slice_bytes = 0;
  uint64_t count = 0;
  uint64_t counts_hash = 0;  // of the per-rank counts of the _v forms; send: the tag; else 0

  bool operator==(const Signature&) const = default;
};
static_assert(sizeof(Signature) == 32);

/// "all_reduce(1024 float32, sum, ring)".
std::string describe(const Signature& signature);
/// "all_reduce #17".
std::string operation_name(const Signature& signature);

/// FNV-1a over the bytes of `signature`.
uint32_t check_of(const Signature& signature);
/// FNV-1a over per-rank counts.
uint64_t hash_counts(const std::vector<size_t>& counts);

}  // namespace ropewalk
