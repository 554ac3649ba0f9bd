#include "bootstrap/bypass.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "base/descriptors.h"
#include "bootstrap/tree.h"
#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {
namespace {

constexpr int kSpreadRanks = 200;
constexpr int kDeadRank = 40;

/// The ranks of a job in its second epoch, in which `kDeadRank` has died: who lives spreads that
/// over the tree as it is without those who have departed, and around those who are stopped. Time
/// is virtual.
class SpreadingJob {
 public:
  SpreadingJob(const std::set<int>& departed, const std::set<int>& stopped)
      : departed_(departed), stopped_(stopped) {
    start_cryptography();
    raise_descriptor_limit();
    auto address = *numeric_address("127.0.0.1:1");
    address.set_port(0);
    deaf_ = listen_at(address);  // accepts nobody
    for (int rank = 0; rank < kSpreadRanks; ++rank) ranks_.emplace_back(*this, rank);
  }

  /// `orphan` is stopped, and not linked yet with its parent; -1: none is.
  void spread_from(int rank, int orphan) {
    orphan_ = orphan;
    hear(rank);
    for (int64_t now_ns = 0; now_ns < 3'000 * kMillisecond_ns; now_ns += 50 * kMillisecond_ns) {
      now_ns_ = now_ns;
      for (Rank& one : ranks_) {
        if (!one.knows) continue;
        PollSet set;
        one.bypass.prepare(set);
        one.bypass.advance(set, now_ns);
      }
      for (; !news_.empty(); news_.pop_front()) hear(news_.front());
    }
  }

  int parent(int rank) const {
    return parent_among(rank, kSpreadRanks,
                        [this](int other) { return !departed_.contains(other); });
  }
  bool lives(int rank) const {
    return rank != kDeadRank && !departed_.contains(rank) && !stopped_.contains(rank);
  }
  bool knows(int rank) const { return ranks_[static_cast<size_t>(rank)].knows; }
  size_t most_dialed() const {
    size_t most = 0;
    for (const Rank& one : ranks_) most = std::max(most, one.dialed);
    return most;
  }

 private:
  struct Rank {
    Rank(SpreadingJob& job, int rank)
        : monitor(rank, kSpreadRanks),
          statements(rank, signing_keys(Key{}), monitor, job.table_),
          bypass(
              rank, kSpreadRanks, std::chrono::seconds(1),
              [this, &job](int peer) { return job.dial(*this, peer); }, statements, monitor) {
      std::vector<int> members;
      for (int other = 0; other < kSpreadRanks; ++other)
        if (!job.departed_.contains(other)) members.push_back(other);
      monitor.report({ErrorCode::peer_lost, "test", "the first epoch", {}, rank, -1});
      monitor.renew(members);
      bypass.renew();
    }

    JobMonitor monitor;
    Statements statements;
    Bypass bypass;
    bool knows = false;
    size_t dialed = 0;
  };

  /// Who lives hears of it at once; a stopped one's kernel takes connections, and nobody answers.
  std::unique_ptr<Dialer> dial(Rank& from, int peer) {
    EXPECT_FALSE(departed_.contains(peer));
    ++from.dialed;
    if (lives(peer)) news_.push_back(peer);
    if (lives(peer)) return nullptr;
    return std::make_unique<Dialer>(std::vector{local_address(deaf_.get())}, Hello{},
                                    job_key("test"));
  }

  void hear(int rank) {
    Rank& one = ranks_[static_cast<size_t>(rank)];
    if (std::exchange(one.knows, true)) return;
    one.monitor.report({ErrorCode::peer_lost, "test", "died", {}, rank, kDeadRank});
    for (int other = 0; other < kSpreadRanks; ++other) {
      if (departed_.contains(other) || (parent(other) != rank && parent(rank) != other)) continue;
      if (lives(other))
        news_.push_back(other);
      else if (other != orphan_ || parent(other) != rank)
        one.bypass.relay_around(other, now_ns_);
    }
  }

  const std::set<int> departed_, stopped_;
  PeerTable table_{kSpreadRanks};
  UniqueFd deaf_;
  std::deque<Rank> ranks_;
  std::deque<int> news_;
  int orphan_ = -1;
  int64_t now_ns_ = 0;
};

// In later epochs a rank told all others, of which there may be hundreds on its host: so did each
// to which the lowest did not answer in time.
TEST(Bypass, InALaterEpochFewAreDialedAndAllHear) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    std::set<int> departed, stopped;
    const auto draw = [&](std::set<int>& into, size_t count, int below) {
      while (into.size() < count)
        if (const int rank = static_cast<int>(random() % static_cast<uint32_t>(below));
            rank != kDeadRank && !departed.contains(rank))
          into.insert(rank);
    };
    draw(departed, seed % 4 * 8, kSpreadRanks);
    draw(stopped, 1 + seed % 3 * 3, 24);  // inner ranks
    SpreadingJob job(departed, stopped);
    int source = kSpreadRanks - 1;
    const bool from_orphan = seed % 4 < 2;
    while (!job.lives(source) || (from_orphan && !stopped.contains(job.parent(source)))) --source;
    job.spread_from(source, from_orphan ? job.parent(source) : -1);
    for (int rank = 0; rank < kSpreadRanks; ++rank)
      EXPECT_TRUE(!job.lives(rank) || job.knows(rank)) << "rank " << rank << ", seed " << seed;
    EXPECT_LT(job.most_dialed(), kSpreadRanks / 4) << "seed " << seed;
  }
}

// The lowest has all those below it that have lost their parents.
TEST(Bypass, InALaterEpochFewAreDialedAroundTheLowestRank) {
  std::set<int> departed;
  while (departed.size() < 25) departed.insert(static_cast<int>(departed.size()));
  SpreadingJob job(departed, {25});
  job.spread_from(kSpreadRanks - 1, -1);
  for (int rank = 0; rank < kSpreadRanks; ++rank)
    EXPECT_TRUE(!job.lives(rank) || job.knows(rank)) << "rank " << rank;
  EXPECT_LT(job.most_dialed(), 20);
}

}  // namespace
}  // namespace ropewalk::bootstrap
