#include <fmt/format.h>

#include <array>
#include <bit>

#include "engine/wire.h"
#include "schedule/collective.h"

namespace ropewalk {

namespace {

/// FNV-1a over per-rank counts, folded to 32 bits; 0 where there are none.
uint32_t hash_counts(const std::vector<size_t>& counts) {
  if (counts.empty()) return 0;
  uint64_t hash = 14695981039346656037ull;
  for (uint64_t count : counts) hash = (hash ^ count) * 1099511628211ull;
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

}  // namespace

std::string describe(const Signature& s) {
  std::string text = fmt::format("{}({} {}", name_of(s.collective), s.count, name_of(s.type));
  if (is_reduction(s.collective) && s.collective != Collective::barrier)
    text += fmt::format(", {}", name_of(s.op));
  if (traits_of(s.collective).is_rooted()) text += fmt::format(", root {}", s.root);
  if (s.collective == Collective::send) {
    if (s.counts_hash != 0) text += fmt::format(", tag {}", s.counts_hash);
    return text + ")";
  }
  if (s.counts_hash != 0) text += fmt::format(", counts {:08x}", s.counts_hash);
  return text + fmt::format(", {}, slices of {})", name_of(s.algorithm), s.slice_bytes);
}

std::string operation_name(const Signature& s) {
  return fmt::format("{} #{}", name_of(s.collective), s.sequence);
}

uint32_t check_of(const Signature& signature) {
  uint32_t hash = 2166136261u;
  for (std::byte b : std::as_bytes(std::span(&signature, 1)))
    hash = (hash ^ static_cast<uint32_t>(b)) * 16777619u;
  return hash;
}

void CallHistory::add(const Signature& next) {
  // Four multiplications: the bytes one by one would cost as much as a short call.
  uint64_t hash = 0x9e3779b97f4a7c15ull;
  for (uint64_t word : std::bit_cast<std::array<uint64_t, sizeof(Signature) / 8>>(next)) {
    hash = (hash ^ word) * 0x9fb21c651e98df25ull;
    hash ^= hash >> 32;
  }
  digest = static_cast<uint32_t>(hash);
  ++count;
}

Signature signature_of(const Call& call, Algorithm algorithm, size_t slice_bytes) {
  Signature s;
  // Both ends of a message must be equal: a receive is signed as the send it waits for.
  const bool receives = call.collective == Collective::recv;
  const bool pair = traits_of(call.collective).is_point_to_point();
  s.collective = receives ? Collective::send : call.collective;
  s.type = call.type;
  s.op = call.op.kind;
  s.algorithm = algorithm;
  s.root = pair ? 0 : call.root;
  s.slice_bytes = static_cast<uint32_t>(slice_bytes);
  // all_to_all_v: each pair has its own count, checked where the message arrives.
  const bool differs = call.collective == Collective::all_to_all && !call.counts.empty();
  s.count = call.counts.empty() ? call.count : 0;
  s.counts_hash = pair ? call.tag : differs ? 0 : hash_counts(call.counts);
  return s;
}

bool is_same_call(const Signature& a, const Signature& b) {
  Signature with_history_of_b = a;
  with_history_of_b.history = b.history;
  return with_history_of_b == b;
}

}  // namespace ropewalk
