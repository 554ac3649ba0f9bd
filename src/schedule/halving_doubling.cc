// Halving and doubling on a circulant graph, for any number of ranks: Traeff, "Optimal,
// Non-pipelined Reduce-scatter and Allreduce Algorithms", 2024 (arXiv 2410.14234). Skips halve,
// rounding up, from n to 1: ceil(log2 n) rounds each way, (n-1)/n of the bytes each way.
#include <algorithm>

#include "schedule/builders.h"

namespace ropewalk {
namespace {

/// n, ceil(n/2), ceil(ceil(n/2)/2), ..., 1.
std::vector<int> skips(int n) {
  std::vector<int> s{n};
  while (s.back() > 1) s.push_back((s.back() + 1) / 2);
  return s;
}

/// As many blocks go to a rank before those of the other are waited for: short ones travel
/// together, and no stream has to hold more (list_order_credits).
constexpr int kTogether = 4;

/// Calls `body(begin, end)` for 0 to `count` in parts of kTogether.
template <class Body>
void in_parts(int count, const Body& body) {
  for (int begin = 0; begin < count; begin += kTogether)
    body(begin, std::min(begin + kTogether, count));
}

/// Before a round with `span` blocks a rank holds partial sums of the blocks from its own on. It
/// hands the upper half to the rank `skip` above, for which they are the blocks from its own on.
void append_reduce_scatter(Builder& out, int n, int rank) {
  const std::vector<int> s = skips(n);
  for (size_t k = 0; k + 1 < s.size(); ++k) {
    const int span = s[k], skip = s[k + 1];
    in_parts(span - skip, [&](int begin, int end) {
      for (int i = begin; i < end; ++i)
        out.send_reduce(wrap(rank + skip + i, n), wrap(rank + skip, n));
      for (int i = begin; i < end; ++i) out.recv_reduce(wrap(rank + i, n), wrap(rank - skip, n));
    });
  }
}

/// The same, backwards in time: what was sent up and added comes down and is kept.
void append_all_gather(Builder& out, int n, int rank) {
  const std::vector<int> s = skips(n);
  for (size_t k = s.size() - 1; k > 0; --k) {
    const int span = s[k - 1], skip = s[k];
    in_parts(span - skip, [&](int begin, int end) {
      for (int i = begin; i < end; ++i) out.send_copy(wrap(rank + i, n), wrap(rank - skip, n));
      for (int i = begin; i < end; ++i)
        out.recv_copy(wrap(rank + skip + i, n), wrap(rank + skip, n));
    });
  }
}

Schedule build(const ScheduleKey& key, int rank) {
  Builder out(key, rank, key.ranks);
  if (key.collective != Collective::all_gather) append_reduce_scatter(out, key.ranks, rank);
  if (key.collective != Collective::reduce_scatter) append_all_gather(out, key.ranks, rank);
  return out.take();
}

Bound bound(const ScheduleKey& key) {
  return once_or_twice(key.collective, {(key.ranks - 1.0) / key.ranks, ceil_log2(key.ranks)});
}

/// One way: a message for each slice, but those of short blocks to one rank are sent as one, except
/// where memory is mapped.
double posts(const CostTerms& t, double block) {
  const int n = static_cast<int>(t.n);
  const double slices = t.slices_of(block);
  if (t.mapped || slices > 1) return (t.n - 1) * slices;
  const std::vector<int> s = skips(n);
  int together = 0;
  for (size_t k = 0; k + 1 < s.size(); ++k)
    together += (s[k] - s[k + 1] + kTogether - 1) / kTogether;
  return together;
}

/// An all_reduce. Of short messages kTogether are on their way at once; of long ones each stream
/// has as many as its window holds. Where a round has few of them, the next one waits for the last.
double described_s(const CostTerms& t) {
  constexpr double kAhead = 8;
  const double block = t.bytes / t.n, slices = t.slices_of(block), slice = block / slices;
  const double overhead = t.hosts > 1 ? t.near.overhead_s : t.inside.overhead_s;
  const double latency = t.hosts > 1 ? t.near.latency_s : t.inside.latency_s;
  const double store = t.hosts > 1 ? 0 : block * t.inside.s_per_byte;
  const double once = passing(t, slice, 1, 1), add = adding(t, block);
  const std::vector<int> s = skips(static_cast<int>(t.n));
  double sum = 0, there = 0, back = 0, stalls = 0;
  for (size_t k = 0; k + 1 < s.size(); ++k) {
    const double count = s[k] - s[k + 1], skip = s[k + 1];
    const double port = passing(t, block, std::min(skip, t.local), std::min(skip, t.rack_size));
    if (t.is_whole(block)) {
      for (double left = count; left > 0; left -= kTogether) {
        const double together = std::min<double>(left, kTogether);
        const double sent =
            std::max(together * (overhead + store) + once, together * port + overhead) + latency;
        sum += 2 * sent + add;
      }
      continue;
    }
    const double window = slices * (overhead + once + 2 * latency + adding(t, slice)) / t.window;
    there += count * std::max(port, count > t.window ? window : 0);
    back += count * port;
    // The next round begins with a block that this one ends with, or in the middle.
    const double late = latency + overhead + adding(t, slice);
    stalls += std::max(late - std::max(count / 2 - 1, 0.0) * port, 0.0);
    if (count > 1) stalls += std::max(latency + overhead - (count - 1) * port, 0.0);
  }
  if (t.is_whole(block)) return sum;
  there += 2 * std::min(kAhead, t.n / 2) * overhead;
  const double cpu = (t.n - 1) * ((2 + slices) * overhead);
  return std::max(there, cpu + (t.n - 1) * add) + std::max(back, cpu + (t.n - 1) * store) + stalls +
         2 * latency;
}

double predict_s(const CostTerms& t, Collective collective) {
  if (t.described && collective == Collective::all_reduce) return described_s(t);
  const double ways = collective == Collective::all_reduce ? 2 : 1;
  const double block = t.bytes / t.n, blocks = t.n - 1;
  // Mapped, the reduce-scatter adds without moving.
  const double moves = t.mapped && collective != Collective::all_gather ? ways - 1 : ways;
  // What one round still sends meets what the next one sends to another rank.
  const double partners = ceil_log2(static_cast<int>(t.n));
  return t.bound.rounds * t.round() + ways * posts(t, block) * t.link.overhead_s +
         moving(t, moves * blocks * block, t.all_cross) * t.colliding(partners, block) +
         (collective == Collective::all_gather ? 0 : adding(t, blocks * block));
}

}  // namespace

AlgorithmDescriptor halving_doubling_algorithm() {
  using enum Collective;
  return {.collectives = {all_reduce, reduce_scatter, all_gather},
          .build = build,
          .bound = bound,
          .predict_s = predict_s,
          // In each round one to send to, and one to receive from.
          .partners =
              [](Collective, const Hosts& hosts) {
                return std::min(2 * ceil_log2(hosts.ranks()), hosts.ranks() - 1);
              },
          .symmetry = symmetric_ranks};
}

}  // namespace ropewalk
