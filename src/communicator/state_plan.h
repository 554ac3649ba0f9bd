// Who sends which bytes of a state to whom. Pure: of values that are equal on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/state_sync.h"

namespace ropewalk {

/// XXH3, 128 bits. Tells apart what ranks have by chance, not what somebody made to look alike:
/// members are trusted.
struct StateHash {
  uint64_t high = 0, low = 0;

  bool operator==(const StateHash&) const = default;
  std::string text() const;  // 32 hexadecimal digits
};
StateHash hash_of(std::span<const std::byte> bytes);

/// What a rank tells of its state. Trivially copyable, without padding. docs/protocol.md, "State".
struct StateRecord {
  uint64_t revision = 0;
  StateHash state;            // of the hashes of its buffers
  StateHash layout;           // of their names and sizes
  uint64_t layout_bytes = 0;  // of that as a text
  StateSource::Kind kind = StateSource::Kind::newest;
  bool has_part = false;  // to send in, which has not failed
  uint16_t unused = 0;
  int32_t of_rank = -1;
};
static_assert(sizeof(StateRecord) == 56);

struct StateChoice {
  int rank = 0;              // whose state all are to have
  std::optional<int> rival;  // as good, and has another
};
/// `cards`, by rank, name the same source.
StateChoice choose_state(std::span<const StateRecord> cards);

/// Consecutive bytes of a buffer, and where they lie among all that their source sends.
struct StatePiece {
  size_t buffer = 0, offset = 0, bytes = 0;
  size_t at = 0;
};
/// What one source sends, in this order. Short buffers come first, packed: many of them go as one
/// message.
struct StateShare {
  std::vector<StatePiece> pieces;
  size_t packed = 0;                   // pieces of short buffers
  size_t packed_bytes = 0, bytes = 0;  // of those; of all
};
/// Short buffers have at most as many bytes, long ones are cut into parts that have more: over
/// shared memory each message takes up to 4 MiB for itself, whatever its length.
inline constexpr size_t kShortBytesMax = 4 << 20;
/// `sizes` of all buffers; those that are `wanted` by anybody are shared out. A share per source.
std::vector<StateShare> share_out(std::span<const size_t> sizes, const std::vector<bool>& wanted,
                                  size_t sources);

/// Bytes that go as one: of one long buffer, or packed ones.
struct StateMessage {
  size_t at = 0, bytes = 0;      // as in StatePiece
  const StatePiece* long_piece;  // null: packed
};
/// To a rank that lacks the buffers `lacks`. They refer to `share`.
std::vector<StateMessage> messages_of(const StateShare& share, const std::vector<bool>& lacks);

}  // namespace ropewalk
