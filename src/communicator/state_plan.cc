#include "communicator/state_plan.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace ropewalk {
namespace {

/// Parts of a long buffer begin at multiples of it.
constexpr size_t kPartAlignment = 4096;

bool is_alike(const StateRecord& a, const StateRecord& b) {
  return a.revision == b.revision && a.state == b.state;
}

/// Another rank whose state is as new, and which `counts` as much.
template <class Count>
std::optional<int> rival_of(int chosen, std::span<const StateRecord> cards, const Count& count) {
  const StateRecord& best = cards[static_cast<size_t>(chosen)];
  for (size_t rank = 0; rank < cards.size(); ++rank)
    if (cards[rank].revision == best.revision && !(cards[rank].state == best.state) &&
        count(cards[rank]) == count(best))
      return static_cast<int>(rank);
  return {};
}

void add_piece(StateShare& share, StatePiece piece) {
  piece.at = share.bytes;
  share.bytes += piece.bytes;
  share.pieces.push_back(piece);
}

StateShare& least(std::vector<StateShare>& shares) {
  return *std::ranges::min_element(shares, {}, &StateShare::bytes);
}

void cut(size_t buffer, size_t size, std::vector<StateShare>& shares) {
  const size_t parts = std::min(shares.size(), size / kShortBytesMax);
  const size_t part = (size / parts + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  for (size_t offset = 0; offset < size; offset += part)
    add_piece(least(shares), {buffer, offset, std::min(part, size - offset), 0});
}

}  // namespace

std::string StateHash::text() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

StateHash hash_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

StateChoice choose_state(std::span<const StateRecord> cards) {
  const StateSource::Kind kind = cards.front().kind;
  if (kind == StateSource::Kind::rank) return {cards.front().of_rank, {}};
  const auto count = [&](const StateRecord& card) {
    return kind == StateSource::Kind::newest
               ? 1
               : std::ranges::count_if(cards,
                                       [&](const StateRecord& one) { return is_alike(card, one); });
  };
  const auto best =
      std::ranges::max_element(cards, [&](const StateRecord& a, const StateRecord& b) {
        return std::pair(count(a), a.revision) < std::pair(count(b), b.revision);
      });
  const int rank = static_cast<int>(best - cards.begin());
  return {rank, rival_of(rank, cards, count)};
}

std::vector<StateShare> share_out(std::span<const size_t> sizes, const std::vector<bool>& wanted,
                                  size_t sources) {
  std::vector<StateShare> shares(sources);
  for (size_t buffer = 0; buffer < sizes.size(); ++buffer)
    if (wanted[buffer] && sizes[buffer] > 0 && sizes[buffer] <= kShortBytesMax)
      add_piece(least(shares), {buffer, 0, sizes[buffer], 0});
  for (StateShare& share : shares) {
    share.packed = share.pieces.size();
    share.packed_bytes = share.bytes;
  }
  for (size_t buffer = 0; buffer < sizes.size(); ++buffer)
    if (wanted[buffer] && sizes[buffer] > kShortBytesMax) cut(buffer, sizes[buffer], shares);
  return shares;
}

std::vector<StateMessage> messages_of(const StateShare& share, const std::vector<bool>& lacks) {
  std::vector<StateMessage> messages;
  bool continues = false;  // the last message, with a packed piece that follows
  for (size_t i = 0; i < share.pieces.size(); ++i) {
    const StatePiece& piece = share.pieces[i];
    const bool is_packed = i < share.packed;
    if (lacks[piece.buffer]) {
      if (is_packed && continues)
        messages.back().bytes += piece.bytes;
      else
        messages.push_back({piece.at, piece.bytes, is_packed ? nullptr : &piece});
    }
    continues = is_packed && lacks[piece.buffer];
  }
  return messages;
}

}  // namespace ropewalk
