// When a round of a PartialAllReduce is summed, and of whom. No thread, no clock.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace ropewalk {

/// One rank decides for all. A rank has one contribution at a time: it tells, and the decision that
/// names it takes that. So what comes while a decision is on its way is simply of the next round.
///
/// A round waits for those who were in the last one. Waiting for all would cost every round the
/// whole patience as long as one rank is slow; waiting for nobody would cut a step's contributions
/// into rounds of a few.
class RoundDecider {
 public:
  static constexpr int64_t kNever_ns = std::numeric_limits<int64_t>::max();

  explicit RoundDecider(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  /// `rank` has a contribution, which waits for others until `deadline_ns`.
  void note_ready(int rank, int64_t deadline_ns) {
    Rank& one = at(rank);
    assert(!one.is_ready && !one.has_finished);
    one.is_ready = true;
    deadline_ns_ = std::min(deadline_ns_, deadline_ns);
  }
  /// It will have none any more.
  void note_finished(int rank) {
    assert(!at(rank).is_ready);
    at(rank).has_finished = true;
  }

  bool all_have_finished() const { return std::ranges::all_of(ranks_, &Rank::has_finished); }
  /// When `decide` has something to decide though nothing has happened.
  int64_t deadline_ns() const { return deadline_ns_; }

  /// By rank: 1 where the round has its contribution, else 0. Nothing: it is too early.
  std::optional<std::vector<uint8_t>> decide(int64_t now_ns) {
    if (std::ranges::none_of(ranks_, &Rank::is_ready)) return {};
    const bool lacks_one = std::ranges::any_of(ranks_, [](const Rank& rank) {
      return rank.was_in_last && !rank.is_ready && !rank.has_finished;
    });
    if (lacks_one && now_ns < deadline_ns_) return {};
    std::vector<uint8_t> contributors;
    for (Rank& rank : ranks_) {
      contributors.push_back(rank.is_ready ? 1 : 0);
      rank.was_in_last = rank.is_ready;
      rank.is_ready = false;
    }
    deadline_ns_ = kNever_ns;
    return contributors;
  }

 private:
  struct Rank {
    bool is_ready = false;
    bool has_finished = false;
    bool was_in_last = true;
  };

  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  std::vector<Rank> ranks_;
  int64_t deadline_ns_ = kNever_ns;  // the first of those that are ready
};

}  // namespace ropewalk
