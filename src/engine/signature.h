// What a rank says it is calling: travels in every header, so that ranks that call different things
// learn it (docs/protocol.md, "Signature").
//
// Some ranks end a call without hearing of it from those who called something else: a root that has
// sent its data, two roots of one broadcast. So a signature also carries a digest of all calls
// before it, and the next message between the two shows the difference.
#pragma once

#include <cstdint>
#include <string>

#include "ropewalk/communicator.h"

namespace ropewalk {

/// 32 bytes on the wire, little-endian, compared byte for byte.
struct Signature {
  uint32_t sequence = 0;  // number of the collective in the communicator (or message of the pair)
  uint8_t collective = 0, type = 0, op = 0, algorithm = 0;
  int32_t root = 0;
  uint32_t slice_bytes = 0;
  uint64_t count = 0;
  uint32_t counts_hash = 0;  // of the per-rank counts of the _v forms; send: the tag; else 0
  uint32_t history = 0;      // CallHistory::digest before this call; send: 0

  bool operator==(const Signature&) const = default;
};
static_assert(sizeof(Signature) == 32);

/// The collectives that a rank has started: how many, and a digest of all their signatures.
struct CallHistory {
  uint32_t count = 0;
  uint32_t digest = 0;
  /// `next` carries this digest already.
  void add(const Signature& next);
};

/// What a rank says of `call`, before it has a number.
Signature signature_of(const Call& call, Algorithm algorithm, size_t slice_bytes);

/// Equal except for what was called before.
bool is_same_call(const Signature& a, const Signature& b);

/// "all_reduce(1024 float32, sum, ring)".
std::string describe(const Signature& signature);
/// "all_reduce #17".
std::string operation_name(const Signature& signature);

/// FNV-1a over the bytes of `signature`.
uint32_t check_of(const Signature& signature);
/// FNV-1a over per-rank counts, folded to 32 bits; 0 where there are none.
uint32_t hash_counts(const std::vector<size_t>& counts);

}  // namespace ropewalk
