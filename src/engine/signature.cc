#include <fmt/format.h>

#include <array>
#include <bit>

#include "base/word_hash.h"
#include "bootstrap/monitor.h"
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

constexpr const char* kMadeAdvice =
    "run the same build of Ropewalk on every rank, as another Boost or compiler may make another "
    "schedule; or take an algorithm that is not made, as with ROPEWALK_ALGORITHM=ring";

/// Of a schedule that was made: counts for each rank, where the collective has them.
bool may_have_counts(const Signature& s) {
  return s.count == 0 && traits_of(s.collective).has_parts();
}

/// What `rest_hash` of a collective is of.
const char* name_of_rest(const Signature& s) {
  if (s.algorithm != Algorithm::synthesized) return "counts";
  return may_have_counts(s) ? "schedule and counts" : "schedule";
}

/// Equal calls, for which two ranks made different schedules.
bool differs_as_made(const Signature& a, const Signature& b) {
  Signature with_rest_of_b = a;
  with_rest_of_b.rest_hash = b.rest_hash;
  return a.algorithm == Algorithm::synthesized && !is_same_call(a, b) &&
         is_same_call(with_rest_of_b, b);
}

}  // namespace

std::string describe(const Signature& s) {
  std::string text = fmt::format("{}({} {}", name_of(s.collective), s.count, name_of(s.type));
  if (is_reduction(s.collective) && s.collective != Collective::barrier)
    text += fmt::format(", {}", name_of(s.op));
  if (traits_of(s.collective).is_rooted()) text += fmt::format(", root {}", s.root);
  if (s.collective == Collective::send) {
    if (s.rest_hash != 0) text += fmt::format(", tag {}", s.rest_hash);
    return text + ")";
  }
  if (s.rest_hash != 0) text += fmt::format(", {} {:08x}", name_of_rest(s), s.rest_hash);
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
  uint64_t hash = kWordHashStart;
  for (uint64_t word : std::bit_cast<std::array<uint64_t, sizeof(Signature) / 8>>(next))
    hash = hash_word(hash, word);
  digest = static_cast<uint32_t>(hash);
  ++count;
}

Signature signature_of(const Call& call, Algorithm algorithm, size_t slice_bytes,
                       uint64_t made_digest) {
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
  s.rest_hash = pair ? call.tag : differs ? 0 : hash_counts(call.counts);
  if (algorithm == Algorithm::synthesized) s.rest_hash ^= static_cast<uint32_t>(made_digest);
  return s;
}

bool is_same_call(const Signature& a, const Signature& b) {
  Signature with_history_of_b = a;
  with_history_of_b.history = b.history;
  return with_history_of_b == b;
}

Failure mismatch_of(const Signature& own, int rank, const Signature& other, int peer) {
  const bool by_schedule = differs_as_made(own, other);
  std::string reason = fmt::format(
      "rank {} called {} as its operation {}, but rank {} called {} as its operation {}", rank,
      describe(own), own.sequence, peer, describe(other), other.sequence);
  const char* const advice = by_schedule ? kMadeAdvice : kMismatchAdvice;
  if (by_schedule)
    reason += fmt::format(": they made different schedules for the network{}",
                          may_have_counts(own) ? ", or their counts differ" : "");
  return {ErrorCode::mismatch, operation_name(own), std::move(reason), advice, rank, peer};
}

}  // namespace ropewalk
