#include "bootstrap/peer_table.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "bootstrap/auth.h"
#include "bootstrap/statements.h"
#include "tests/support/sanitized.h"

namespace ropewalk::bootstrap {
namespace {

constexpr int kRows = 4;

/// The frame in which the records of a job come, and the digest up to it.
struct CameRecords {
  explicit CameRecords(int64_t pid) {
    start_cryptography();
    PeerTable table(kRows);
    for (int rank = 0; rank < kRows; ++rank) {
      PeerRecord record;
      record.rank = rank;
      record.pid = pid + rank;
      table.set(static_cast<size_t>(rank), std::move(record));
    }
    whole = record_frames(table).front();
    frame = {FrameType::records, {whole.begin() + kFrameHeaderBytes, whole.end()}};
    digest = digest_with({}, frame.payload);
  }
  RecordsFrame share(bool wants_frame = true) const {
    return share_records(digest, frame, wants_frame);
  }

  Bytes whole;
  Frame frame;
  Digest digest;
};

PeerTable table_that_shares(const RecordsFrame& shared) {
  PeerTable table(kRows);
  for (const PeerRecord& record : *shared.records)
    table.share(static_cast<size_t>(record.rank), {shared.records, &record});
  return table;
}

TEST(PeerTable, RanksOfAProcessShareWhatTheyAreGivenAlike) {
  const CameRecords came(100), of_another_job(200);
  const RecordsFrame first = came.share(), second = came.share();
  ASSERT_TRUE(first.records);
  EXPECT_EQ(*first.frame, came.whole);
  EXPECT_EQ(first.records->size(), static_cast<size_t>(kRows));
  EXPECT_EQ(second.records, first.records);
  EXPECT_EQ(second.frame, first.frame);
  const RecordsFrame other = of_another_job.share();
  ASSERT_TRUE(other.records);
  EXPECT_EQ(other.records->front().pid, 200);
  EXPECT_EQ(came.share().records->front().pid, 100);
}

TEST(PeerTable, WhoPassesNothingOnNeedsNoFrame) {
  const CameRecords came(100);
  const RecordsFrame last = came.share(false);
  ASSERT_TRUE(last.records);
  EXPECT_FALSE(last.frame);
  const RecordsFrame inner = came.share();
  EXPECT_EQ(inner.records, last.records);
  EXPECT_EQ(*inner.frame, came.whole);
  EXPECT_EQ(came.share(false).frame, inner.frame);
}

// The same frame after others is not the same part of a table.
TEST(PeerTable, WhatCameBeforeCounts) {
  const CameRecords came(100);
  const RecordsFrame first = came.share();
  const Digest later = digest_with(came.digest, came.frame.payload);
  EXPECT_NE(share_records(later, came.frame, true).records, first.records);
}

TEST(PeerTable, NobodySharesWhatMakesNoSense) {
  const Frame nonsense{FrameType::records, Bytes(3)};
  for (int i = 0; i < 2; ++i)
    EXPECT_FALSE(share_records(digest_with({}, nonsense.payload), nonsense, true).records);
}

TEST(PeerTable, RowsLastLongerThanTheFrameAndTheRankThatCameFirst) {
  const CameRecords came(100);
  auto first = std::make_optional(table_that_shares(came.share()));
  const PeerTable second = table_that_shares(came.share());
  EXPECT_EQ(&second[2], &(*first)[2]);
  first->set(2, {});  // what one of them does is its own
  first.reset();
  int next = 0;
  for (const PeerRecord& record : second) EXPECT_EQ(record.rank, next++);
  EXPECT_EQ(next, kRows);
  EXPECT_EQ(second[2].pid, 102);
}

TEST(PeerTable, TheLastRankFreesThem) {
  const CameRecords came(100);
  std::weak_ptr<const std::vector<PeerRecord>> records;
  std::weak_ptr<const Bytes> frame;
  {
    const PeerTable table = table_that_shares(came.share());
    const RecordsFrame again = came.share();
    records = again.records, frame = again.frame;
  }
  EXPECT_TRUE(records.expired());
  EXPECT_TRUE(frame.expired());
  EXPECT_EQ(came.share().records->front().pid, 100);  // and they may come again
}

TEST(PeerTable, HasARowOfEachRank) {
  PeerTable table(kRows);
  EXPECT_EQ(table[1].rank, -1);
  PeerRecord record;
  record.rank = 1;
  table.set(1, record);
  EXPECT_EQ(table[1].rank, 1);
  table.set(1, {});
  EXPECT_EQ(table[1].rank, -1);
}

/// Shares and gives up until `stop`; how often what it got was wrong.
int share_until(const std::atomic<bool>& stop, const CameRecords& came, int64_t pid) {
  int wrong = 0;
  do {
    const PeerTable table = table_that_shares(came.share());
    for (int rank = 0; rank < kRows; ++rank)
      wrong += table[static_cast<size_t>(rank)].pid != pid + rank;
  } while (!stop);
  return wrong;
}

TEST(PeerTable, ManyThreadsOfTwoJobsComeAndGo) {
  const CameRecords one(100), two(200);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> ranks;
  for (int i = 0; i < 8; ++i)
    ranks.emplace_back([&, i] {
      wrong += i % 2 == 0 ? share_until(stop, one, 100) : share_until(stop, two, 200);
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  stop = true;
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, 0);
}

// A child may join a job of its own, whatever its parent's threads did as it was forked.
TEST(PeerTable, AForkedChildSharesToo) {
  if (kIsSanitized) GTEST_SKIP() << "forks while threads allocate";
  const CameRecords came(100);
  std::atomic<bool> stop{false};
  std::thread rank([&] { share_until(stop, came, 100); });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10);
      ::_exit(came.share().records->front().pid == 100 ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  rank.join();
}

}  // namespace
}  // namespace ropewalk::bootstrap
