// Who works on what, and that its sums, computed by hand here, give the right answer.
#include "engine/owner_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "reduce/reduce.h"
#include "tests/support/cases.h"

namespace ropewalk::testing {
namespace {

constexpr size_t kSliceBytes = 4096;

/// One rank of a case.
struct Rank {
  Rank(const Case& c, int rank)
      : buffers(c, rank, [this](size_t bytes) { return memory.emplace_back(bytes + 1).data(); }),
        schedule(build_schedule({c.collective, c.algorithm, c.ranks, c.root, {}}, rank)),
        blocks(lay_out(buffers.call(), schedule)) {}

  void make(bool in_place_all_to_all = false) {
    const Extent extent = extent_of(buffers.call(), schedule.rank, schedule.ranks);
    if (in_place_all_to_all) saved.resize(extent.in * size_of(buffers.call().type));
    owner = make_owner_program(buffers.call(), schedule, blocks, kSliceBytes,
                               in_place_all_to_all ? saved.data() : nullptr);
  }
  /// What a rank does before it sends descriptors.
  void begin() {
    const Call& call = buffers.call();
    if (owner.scales)
      scale(static_cast<std::byte*>(call.out), static_cast<const std::byte*>(call.in), call.count,
            call.type, call.op.scale);
    if (!saved.empty()) std::memcpy(saved.data(), call.in, saved.size());
    for (const KeptPart& part : owner.kept) std::memcpy(part.out, part.in, part.bytes);
  }
  const OwnerPeer& peer(int rank) const {
    return *std::find_if(owner.peers.begin(), owner.peers.end(),
                         [&](const OwnerPeer& p) { return p.rank == rank; });
  }
  /// The ranks behind indices of peers.
  std::vector<int> ranks_of(const std::vector<uint32_t>& indices) const {
    std::vector<int> ranks;
    for (uint32_t i : indices) ranks.push_back(owner.peers[i].rank);
    return ranks;
  }

  std::deque<std::vector<std::byte>> memory;
  RankBuffers buffers;
  Schedule schedule;
  std::vector<BlockMemory> blocks;
  std::vector<std::byte> saved;
  OwnerProgram owner;
};

std::deque<Rank> ranks_of(const Case& c) {
  std::deque<Rank> ranks;
  for (int rank = 0; rank < c.ranks; ++rank) ranks.emplace_back(c, rank);
  return ranks;
}

bool saves(const Case& c) {
  return c.collective == Collective::all_to_all && c.in_place && c.count > 0;
}

std::deque<Rank> made(const Case& c) {
  std::deque<Rank> ranks = ranks_of(c);
  for (Rank& rank : ranks) rank.make(saves(c));
  return ranks;
}

void add(const Rank& owner, std::vector<std::byte*> targets,
         const std::vector<const std::byte*>& sources, size_t bytes) {
  const Call& call = owner.buffers.call();
  const size_t count = bytes / size_of(call.type);
  if (count == 0 || targets.empty() || sources.empty()) return;
  const std::span<std::byte* const> all(targets);
  reduce(all.first(1), sources, count, call.type, call.op);
  if (owner.owner.averages) divide(targets[0], count, call.type, owner.schedule.ranks);
  for (std::byte* target : all.subspan(1)) std::memcpy(target, targets[0], bytes);
}

/// What the owner of a block does, without slices.
void run_owner(std::deque<Rank>& ranks, const Rank& owner, const OwnedBlock& block) {
  const auto contributor = [&](uint32_t index) -> const OwnerPeer& {
    const int rank = owner.owner.peers[index].rank;
    return ranks[static_cast<size_t>(rank)].peer(owner.schedule.rank);
  };
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> targets;
  if (block.in != nullptr) sources.push_back(block.in);
  if (block.out != nullptr) targets.push_back(block.out);
  for (uint32_t i : block.sources) sources.push_back(contributor(i).in);
  for (uint32_t i : block.targets) targets.push_back(contributor(i).out);
  add(owner, targets, sources, block.bytes);
}

/// Empty where each side of every visit expects what the other brings.
std::string disagreement(const std::deque<Rank>& ranks, const Rank& owner,
                         const OwnedBlock& block) {
  const auto has = [](const std::vector<uint32_t>& list, uint32_t i) {
    return std::find(list.begin(), list.end(), i) != list.end();
  };
  for (uint32_t i : block.contributors) {
    const OwnerPeer& here = owner.owner.peers[i];
    const OwnerPeer& there = ranks[static_cast<size_t>(here.rank)].peer(owner.schedule.rank);
    if (!here.is_contributor || &owner.owner.owned[here.owned] != &block)
      return "a contributor of another";
    if (!there.is_owner) return "a contributor that knows nothing of it";
    if (there.bytes != block.bytes || there.slices != block.slices) return "different lengths";
    if (block.bytes == 0) continue;
    if ((there.in != nullptr) != has(block.sources, i)) return "a source that is none";
    if ((there.out != nullptr) != has(block.targets, i)) return "a target that is none";
  }
  return block.contributors.size() <= block.sources.size() + block.targets.size()
             ? ""
             : "idle contributors";
}

/// Cases whose schedules have owners.
std::vector<Case> cases(int ranks) {
  std::vector<Case> all = cases_of_every_size(ranks);
  const std::vector<Case> kinds = cases_of_every_kind(ranks);
  all.insert(all.end(), kinds.begin(), kinds.end());
  std::erase_if(all, [](const Case& c) {
    return build_schedule({c.collective, c.algorithm, c.ranks, c.root, {}}, 0).owners.empty();
  });
  return all;
}

/// Of these, cases that can pass where they are long enough.
std::vector<Case> cases_to_pass(int ranks) {
  std::vector<Case> all = cases(ranks);
  std::erase_if(all, [](const Case& c) {
    return c.op == ReduceKind::scaled_sum && is_reduction(c.collective) &&
           c.collective != Collective::all_reduce;
  });
  return all;
}

TEST(MakePasses, GiveTheRightAnswer) {
  for (int n = 2; n <= 9; ++n)
    for (const Case& c : cases_to_pass(n)) {
      std::deque<Rank> ranks = made(c);
      for (Rank& rank : ranks) rank.buffers.fill();
      for (Rank& rank : ranks) rank.begin();
      for (const Rank& rank : ranks)
        for (const OwnedBlock& block : rank.owner.owned) run_owner(ranks, rank, block);
      for (const Rank& rank : ranks) ASSERT_EQ(rank.buffers.check(), "") << c.text();
    }
}

TEST(MakePasses, BothSidesOfAVisitAgree) {
  for (int n = 2; n <= 9; ++n)
    for (const Case& c : cases_to_pass(n)) {
      const std::deque<Rank> ranks = made(c);
      for (const Rank& rank : ranks) {
        size_t visits = 0, contributors = 0;
        for (const OwnerPeer& peer : rank.owner.peers) visits += peer.is_contributor;
        for (const OwnedBlock& block : rank.owner.owned) {
          contributors += block.contributors.size();
          ASSERT_EQ(disagreement(ranks, rank, block), "") << c.text();
        }
        ASSERT_EQ(visits, contributors) << c.text();
      }
    }
}

TEST(MakePasses, CanPassIsAnsweredAlikeOnAllRanks) {
  for (int n = 2; n <= 9; ++n)
    for (Case c : cases(n))
      for (size_t count : {0, 1, 15, 16, 31, 32, 33, 127, 128, 129, 1000}) {
        c.count = count;
        std::deque<Rank> ranks = ranks_of(c);
        for (const Rank& rank : ranks)
          ASSERT_EQ(
              can_run_owner(rank.buffers.call(), rank.schedule, rank.blocks, true),
              can_run_owner(ranks[0].buffers.call(), ranks[0].schedule, ranks[0].blocks, true))
              << c.text();
      }
}

Case case_of(Collective collective, int ranks, size_t count) {
  Case c;
  c.collective = collective;
  c.algorithm = Algorithm::direct;
  c.type = DataType::int32;
  c.ranks = ranks;
  c.count = count;
  return c;
}

bool runs_owner(const Case& c) {
  const Rank rank(c, 0);
  return can_run_owner(rank.buffers.call(), rank.schedule, rank.blocks, true);
}

TEST(MakePasses, ShortBlocksAreSent) {
  EXPECT_FALSE(runs_owner(case_of(Collective::all_gather, 3, 31)));
  EXPECT_TRUE(runs_owner(case_of(Collective::all_gather, 3, 32)));
  EXPECT_FALSE(runs_owner(case_of(Collective::all_reduce, 3, 31 * 3)));
  EXPECT_TRUE(runs_owner(case_of(Collective::all_reduce, 3, 32 * 3)));
  Case uneven = case_of(Collective::all_to_all, 3, 0);
  EXPECT_FALSE(runs_owner(uneven));
  uneven.uneven = true;  // a rank does not know how long the others' parts are
  EXPECT_TRUE(runs_owner(uneven));
}

TEST(MakePasses, NeedOwnersAndAtMostAsManyRanksAsReduceTakes) {
  constexpr int kMax = static_cast<int>(kReduceFanMax);
  EXPECT_TRUE(runs_owner(case_of(Collective::all_gather, kMax, 1000)));
  EXPECT_FALSE(runs_owner(case_of(Collective::all_gather, kMax + 1, 1000)));
  Case ring = case_of(Collective::all_gather, 4, 1000);
  ring.algorithm = Algorithm::ring;
  EXPECT_FALSE(runs_owner(ring));
}

TEST(MakePasses, OnlyAnAllReduceScales) {
  Case c = case_of(Collective::all_reduce, 3, 1000);
  c.type = DataType::float32;
  c.op = ReduceKind::scaled_sum;
  EXPECT_TRUE(runs_owner(c));
  c.collective = Collective::reduce_scatter;
  EXPECT_FALSE(runs_owner(c));
}

TEST(MakePasses, TheOwnPartComesFirstThenAsTheScheduleReceives) {
  const std::deque<Rank> ranks = made(case_of(Collective::all_reduce, 4, 1000));
  const Rank& rank = ranks[1];
  ASSERT_EQ(rank.owner.owned.size(), 1u);
  const OwnedBlock& block = rank.owner.owned[0];
  EXPECT_EQ(block.number, 1);
  EXPECT_EQ(block.in, rank.blocks[1].in);
  EXPECT_EQ(block.out, rank.blocks[1].out);
  EXPECT_EQ(rank.ranks_of(block.sources), (std::vector<int>{0, 3, 2}));
  EXPECT_EQ(rank.ranks_of(block.targets), (std::vector<int>{2, 3, 0}));
  EXPECT_EQ(rank.ranks_of(block.contributors), (std::vector<int>{0, 3, 2}));
}

TEST(MakePasses, ARootThatOwnsAllHasGuestsAndNoHost) {
  Case c = case_of(Collective::broadcast, 3, 1000);
  c.root = 2;
  const std::deque<Rank> ranks = made(c);
  const Rank& root = ranks[2];
  EXPECT_EQ(root.ranks_of(root.owner.owned[0].targets), (std::vector<int>{0, 1}));
  EXPECT_TRUE(root.owner.owned[0].sources.empty());
  EXPECT_FALSE(root.peer(0).is_owner);
  EXPECT_TRUE(ranks[0].owner.owned.empty());
  EXPECT_EQ(ranks[0].peer(2).in, nullptr);
  EXPECT_EQ(ranks[0].peer(2).out, ranks[0].buffers.call().out);
}

TEST(MakePasses, WhatNobodyWritesIsKept) {
  // The root of a scattered broadcast gives its parts away and gets none back.
  Case c = case_of(Collective::broadcast, 3, 3000);
  c.algorithm = Algorithm::scattered;
  for (const bool in_place : {false, true}) {
    c.in_place = in_place;
    const std::deque<Rank> ranks = made(c);
    EXPECT_EQ(ranks[0].owner.kept.size(), in_place ? 0u : 2u);
    EXPECT_TRUE(ranks[1].owner.kept.empty());
    for (size_t i = 0; i < ranks[0].owner.kept.size(); ++i) {
      const KeptPart& part = ranks[0].owner.kept[i];
      EXPECT_EQ(part.in, ranks[0].blocks[i + 1].in);
      EXPECT_EQ(part.out, ranks[0].blocks[i + 1].out);
      EXPECT_EQ(part.bytes, ranks[0].blocks[i + 1].elements * sizeof(int));
    }
  }
}

TEST(MakePasses, AllToAllInPlaceReadsWhatWasSaved) {
  Case c = case_of(Collective::all_to_all, 3, 1000);
  c.in_place = true;
  const std::deque<Rank> ranks = made(c);
  const Rank& rank = ranks[1];
  const size_t part = 1000 * sizeof(int);
  EXPECT_EQ(rank.peer(0).in, rank.saved.data());
  EXPECT_EQ(rank.peer(2).in, rank.saved.data() + 2 * part);
  EXPECT_EQ(rank.peer(0).out, nullptr);  // what comes from rank 0 this rank fetches
  const auto is_own = [](const OwnedBlock& block) { return block.number == 3 + 1; };
  const OwnedBlock& own = *std::find_if(rank.owner.owned.begin(), rank.owner.owned.end(), is_own);
  EXPECT_TRUE(own.contributors.empty());
  EXPECT_EQ(own.in, rank.saved.data() + part);
  EXPECT_EQ(own.out, static_cast<std::byte*>(rank.buffers.call().out) + part);
}

TEST(MakePasses, EmptyPartsHaveGuestsAndNoSlices) {
  Case c = case_of(Collective::reduce_scatter, 3, 5000);
  c.uneven = true;  // rank 1 gets nothing
  const std::deque<Rank> ranks = made(c);
  ASSERT_EQ(ranks[1].owner.owned[0].bytes, 0u);
  EXPECT_EQ(ranks[1].owner.owned[0].slices, 0u);
  EXPECT_EQ(ranks[1].owner.owned[0].contributors.size(), 2u);
  EXPECT_EQ(ranks[0].peer(1).slices, 0u);
  EXPECT_EQ(ranks[0].owner.owned[0].slices, (5000 * sizeof(int) + kSliceBytes - 1) / kSliceBytes);
}

}  // namespace
}  // namespace ropewalk::testing
