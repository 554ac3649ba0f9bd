#include "bootstrap/ended_ranks.h"

#include <fmt/format.h>

#include <utility>

namespace ropewalk::bootstrap {

void EndedRanks::note(EndedRank ended) {
  const std::lock_guard lock(mutex_);
  if (first_) return;
  first_ = std::move(ended);
  for (const Listener& listener : listeners_) listener(*first_);
}

EndedRanks::Listening::Listening(EndedRanks& ranks, Listener listener) : ranks_(ranks) {
  const std::lock_guard lock(ranks_.mutex_);
  if (ranks_.first_) listener(*ranks_.first_);
  place_ = ranks_.listeners_.insert(ranks_.listeners_.end(), std::move(listener));
}

EndedRanks::Listening::~Listening() {
  const std::lock_guard lock(ranks_.mutex_);
  ranks_.listeners_.erase(place_);
}

Failure ended_before_joining(const EndedRank& ended, int rank) {
  return {ErrorCode::peer_lost,
          "bootstrap",
          fmt::format("rank {} has ended before all ranks had joined, the launcher says ({})",
                      ended.rank, ended.how),
          "look at that rank's own output",
          rank,
          ended.rank};
}

}  // namespace ropewalk::bootstrap
