#include "schedule/content.h"

#include "schedule/collective.h"

namespace ropewalk {
namespace {

/// Which rank's part block `b` belongs to, where blocks are parts of ranks.
int owner_of(const Schedule& layout, int block) {
  return block / std::max(1, layout.blocks / layout.ranks);
}

/// Whether `rank` starts with data in `block`.
bool starts_with(const ScheduleKey& key, const Schedule& layout, int rank, int block) {
  if (block >= layout.blocks) return false;  // scratch
  if (key.collective == Collective::all_to_all) return block < key.ranks;
  const CollectiveTraits traits = traits_of(key.collective);
  return traits.in == Side::own ? owner_of(layout, block) == rank
                                : rank == key.root || !traits.reads_on_root;
}

}  // namespace

bool is_reduction(Collective collective) {
  return traits_of(collective).reduces;
}

Contents::Contents(const ScheduleKey& key, const Schedule& layout)
    : ranks_(key.ranks),
      blocks_(static_cast<size_t>(layout.blocks + layout.scratch)),
      words_(is_reduction(key.collective) ? (static_cast<size_t>(key.ranks) + 63) / 64 : 1),
      store_(static_cast<size_t>(key.ranks) * blocks_ * words_) {
  for (int rank = 0; rank < key.ranks; ++rank)
    for (int block = 0; block < layout.blocks; ++block) {
      if (!starts_with(key, layout, rank, block)) continue;
      const auto bit = static_cast<size_t>(rank);
      if (is_reduction(key.collective))
        at(rank, block)[bit / 64] = uint64_t{1} << bit % 64;
      else
        at(rank, block)[0] = origin(rank, block);
    }
}

int Contents::missing(std::span<const uint64_t> content) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto bit = static_cast<size_t>(rank);
    if ((content[bit / 64] >> bit % 64 & 1) == 0) return rank;
  }
  return -1;
}

bool Contents::is_defined(std::span<const uint64_t> content) {
  return std::any_of(content.begin(), content.end(), [](uint64_t word) { return word != 0; });
}

Promise promised_blocks(const ScheduleKey& key, const Schedule& layout, int rank) {
  const int k = std::max(1, layout.blocks / key.ranks);
  const CollectiveTraits traits = traits_of(key.collective);
  if (traits.out == Side::own) return {rank * k, (rank + 1) * k};
  return {0, rank == key.root || !traits.writes_on_root ? layout.blocks : 0};
}

uint64_t promised_origin(const ScheduleKey& key, const Schedule& layout, int rank, int block) {
  if (traits_of(key.collective).reads_on_root) return Contents::origin(key.root, block);
  if (key.collective != Collective::all_to_all)
    return Contents::origin(owner_of(layout, block), block);
  return block < key.ranks ? Contents::origin(rank, block)
                           : Contents::origin(block - key.ranks, rank);
}

int64_t length_class(const ScheduleKey& key, const Schedule& layout, int rank, int block) {
  const int64_t n = key.ranks;
  if (block >= layout.blocks) block = (block - layout.blocks) % layout.blocks;
  if (key.collective != Collective::all_to_all) return block;
  return block < n ? rank * n + block : (block - n) * n + rank;  // (from, to)
}

}  // namespace ropewalk
