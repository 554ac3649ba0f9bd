// What the builders share. Each builder appends steps with these words, so that it reads like the
// algorithm does in its paper. Internal to src/schedule.
#pragma once

#include "schedule/algorithm.h"

namespace ropewalk {

/// `i` modulo `n`, never negative.
constexpr int wrap(int i, int n) {
  return ((i % n) + n) % n;
}

/// The largest power of two that is at most `n` (n >= 1).
constexpr int floor_power_of_two(int n) {
  int power = 1;
  while (power <= n / 2) power *= 2;
  return power;
}

constexpr int ceil_log2(int n) {
  int rounds = 0;
  for (int power = 1; power < n; power *= 2) ++rounds;
  return rounds;
}

constexpr int floor_log2(int n) {
  return ceil_log2(floor_power_of_two(n));
}

/// `one_way`: what reduce_scatter and all_gather cost each; an all_reduce is both.
inline Bound once_or_twice(Collective collective, Bound one_way) {
  if (collective == Collective::all_reduce) return {2 * one_way.sent, 2 * one_way.rounds};
  return one_way;
}

/// Broadcast and reduce move one vector, from the root or to it. Algorithms that leave it whole cut
/// the vectors of the other collectives into a block per rank.
constexpr bool moves_whole(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce;
}
inline int whole_or_by_rank(Collective collective, const Hosts& hosts) {
  return moves_whole(collective) ? 1 : hosts.ranks();
}

/// Of algorithms in which no rank is special; of those that go by equal groups of neighbours.
inline Symmetry symmetric_ranks(Collective, const Hosts&) {
  return {Symmetry::Kind::shift, 1};
}
inline Symmetry symmetric_unless_rooted(Collective collective, const Hosts&) {
  return {traits_of(collective).is_rooted() ? Symmetry::Kind::none : Symmetry::Kind::shift, 1};
}
Symmetry symmetric_groups(Collective collective, const Hosts& groups);

/// Of algorithms for jobs in which a rank is not to have links with all others.
inline std::string passed_over_unless_many(const Hosts& hosts) {
  return hosts.ranks() > kPartnersMax + 1 ? "" : "the ranks are few enough to be linked directly";
}

/// Of bruck, with as many digits as keep partners within this.
Schedule bruck_schedule(const ScheduleKey& key, int rank, int partners_max);

/// Appends steps to a schedule in progress.
class Builder {
 public:
  Builder(const ScheduleKey& key, int rank, int blocks, int scratch = 0)
      : schedule_{key.ranks, rank, blocks, scratch, {}, {}} {}

  // Owners of all blocks: rank b of block b; of an all_to_all who receives it; one rank.
  void own_parts() {
    for (int b = 0; b < schedule_.ranks; ++b) schedule_.owners.push_back(b);
  }
  void receivers_own_parts() {
    own_parts();
    schedule_.owners.resize(schedule_.blocks, schedule_.rank);
  }
  void own_all(int owner) { schedule_.owners.assign(schedule_.blocks, owner); }

  void send_copy(int block, int peer, int lane = 0) { add(StepOp::send_copy, block, peer, lane); }
  void send_reduce(int block, int peer, int lane = 0) {
    add(StepOp::send_reduce, block, peer, lane);
  }
  void recv_copy(int block, int peer, int lane = 0) { add(StepOp::recv_copy, block, peer, lane); }
  void recv_reduce(int block, int peer, int lane = 0) {
    add(StepOp::recv_reduce, block, peer, lane);
  }
  void reduce(int block, int from) {
    schedule_.steps.push_back({StepOp::reduce, 0, -1, block, from});
  }
  Schedule take() { return std::move(schedule_); }

 private:
  void add(StepOp op, int block, int peer, int lane) {
    schedule_.steps.push_back({op, static_cast<uint8_t>(lane), peer, block, -1});
  }
  Schedule schedule_;
};

/// A ring of some ranks: `members[position]` is this rank; the ring's part i, which position i
/// ends up owning, is block `first_block` + i.
struct Ring {
  std::vector<int> members;
  int position = 0;
  int first_block = 0;

  int size() const { return static_cast<int>(members.size()); }
  int next() const { return members[wrap(position + 1, size())]; }
  int previous() const { return members[wrap(position - 1, size())]; }
  int block(int part) const { return first_block + wrap(part, size()); }
};
/// Rounds t = 1 to size - 1, and then of the all_gather t = 0 to size - 2.
void append_reduce_scatter_round(Builder& out, const Ring& ring, int t);
void append_all_gather_round(Builder& out, const Ring& ring, int t);

/// What one rank sees of the groups of ranks that `key.hosts` numbers. Members and places are of
/// the rank's own group unless said otherwise. In an all_reduce there are as many places as the
/// largest group has ranks; a rank of a smaller one has several.
struct GroupView {
  GroupView(const ScheduleKey& key, int rank)
      : groups(hosts_of(key.hosts, key.ranks)),
        group(groups.host_of[rank]),
        place(groups.place_of[rank]) {}

  int member(int i) const { return members[wrap(i, size)]; }
  const std::vector<int>& members_of(int g) const {
    return groups.members[wrap(g, groups.count())];
  }
  int owner_of(int g, int i) const {
    const std::vector<int>& there = members_of(g);
    return there[i % static_cast<int>(there.size())];
  }
  /// The part of place j that group g owns: one of `places` times as many as there are groups.
  int block(int j, int g) const { return j * groups.count() + wrap(g, groups.count()); }
  template <class Visit>
  void for_places_of(int own_place, const Visit& visit) const {
    for (int j = own_place; j < places; j += size) visit(j);
  }

  const Hosts groups;
  const int group, place;
  const int owners = groups.size_min(), places = groups.size_max();
  const std::vector<int>& members = groups.members[group];
  const int size = static_cast<int>(members.size());
};
/// Adds up in each group all blocks at the ranks of their places, those first that a ring of the
/// groups sends on first. Per block the contributions follow each other, as in direct.
void append_into_owners(Builder& out, const GroupView& view);
/// And hands them out, in the order in which rings finish the parts.
void append_out_of_owners(Builder& out, const GroupView& view);

/// Within the groups of ranks that `key.hosts` numbers, and between them: see two_level.cc.
Schedule two_level_all_reduce(const ScheduleKey& key, int rank);
Bound two_level_all_reduce_bound(const Hosts& groups);
/// Of a described network (CostTerms::described), where the largest group has so many members.
double described_two_level_s(const CostTerms& t, double groups, double members);
/// Those of its group, and two of each ring that it is in.
int two_level_partners(Collective collective, const Hosts& groups);

/// An all_reduce of block `sum` between some ranks, `members[position]` of which is this one.
/// Exchange with the partner, then add: both partners add the same two sums, so every rank ends
/// with the same bits. The incoming sum lands in scratch, as the own one is still being sent. One
/// scratch block is enough: a partner's send waits until the last round's sum has been taken in.
void append_recursive_doubling(Builder& out, const std::vector<int>& members, int position, int sum,
                               int incoming);
Bound recursive_doubling_bound(int ranks);
/// Of a described network (CostTerms::described), between every `step`th rank.
double described_recursive_doubling_s(const CostTerms& t, double members, double step);
int recursive_doubling_partners(int ranks);

}  // namespace ropewalk
