// Bruck: all_to_all with few partners. What rank s has for rank s + j travels the distance j digit
// by digit: in round i by the i-th digit of j times radix^i ("index" algorithm of Bruck and others,
// "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997;
// but each part is a message of its own). With two digits, enough for 2,601 ranks, a part takes up
// to two messages, and a rank has some 4 sqrt(n) partners where direct has n - 1.
#include <algorithm>

#include "schedule/builders.h"

namespace ropewalk {
namespace {

struct Digits {
  int radix = 2, count = 1;

  int partners() const { return 2 * count * (radix - 1); }
};

/// As few digits as keep partners few enough, and the smallest radix with which they reach.
Digits digits_for(int ranks, int partners_max = kPartnersMax) {
  Digits digits;
  do {
    ++digits.count;
    const auto reaches = [&] {
      int64_t power = 1;
      for (int i = 0; i < digits.count; ++i) power *= digits.radix;
      return power >= ranks;
    };
    for (digits.radix = 2; !reaches();) ++digits.radix;
  } while (digits.partners() > partners_max && digits.radix > 2);
  return digits;
}

/// One rank's view. A part is known by the distance that it travels in all.
struct Parts {
  int n, rank;

  /// Where this rank has a part of `distance` that has come `travelled` of it, the last time in
  /// `last_round`: as its source, as its target, or on the way.
  int block(int distance, int travelled, int last_round) const {
    if (travelled == 0) return wrap(rank + distance, n);
    if (travelled == distance) return n + wrap(rank - distance, n);
    return 2 * n + last_round * n + distance;
  }
};

}  // namespace

/// Sends and receives alternate: no receiver has to hold more than a message.
Schedule bruck_schedule(const ScheduleKey& key, int rank, int partners_max) {
  const int n = key.ranks;
  const Digits digits = digits_for(n, partners_max);
  const Parts parts{n, rank};
  Builder out(key, rank, 2 * n, (digits.count - 1) * n);
  std::vector<int> last_round(static_cast<size_t>(n));  // by distance; of those that have moved
  int64_t unit = 1;
  for (int round = 0; round < digits.count; ++round, unit *= digits.radix)
    for (int digit = 1; digit < digits.radix; ++digit) {
      const int64_t step = digit * unit;
      for (int64_t above = n / (unit * digits.radix); above >= 0; --above)
        for (int64_t below = 0; below < unit; ++below) {
          const int64_t distance = above * unit * digits.radix + step + below;
          if (distance >= n) continue;
          const int j = static_cast<int>(distance), hop = static_cast<int>(step);
          const int from = static_cast<int>(below), to = from + hop;
          out.send_copy(parts.block(j, from, last_round[j]), wrap(rank + hop, n));
          out.recv_copy(parts.block(j, to, round), wrap(rank - hop, n));
          last_round[j] = round;
        }
    }
  return out.take();
}

namespace {

Schedule build(const ScheduleKey& key, int rank) {
  return bruck_schedule(key, rank, kPartnersMax);
}

/// How many parts a rank sends: one for each digit that is not 0, of each distance.
int messages_of(int ranks) {
  const Digits digits = digits_for(ranks);
  int messages = 0;
  for (int distance = 1; distance < ranks; ++distance)
    for (int left = distance; left > 0; left /= digits.radix) messages += left % digits.radix != 0;
  return messages;
}

Bound bound(const ScheduleKey& key) {
  return {static_cast<double>(messages_of(key.ranks)) / key.ranks, digits_for(key.ranks).count};
}

double predict_s(const CostTerms& t, Collective) {
  const double block = t.bytes / t.n, messages = t.bound.sent * t.n;
  const double partners = digits_for(static_cast<int>(t.n)).radix - 1;
  return t.bound.rounds * t.round() + messages * t.slices_of(block) * t.link.overhead_s +
         moving(t, messages * block, t.all_cross) * t.colliding(partners, block);
}

}  // namespace

AlgorithmDescriptor bruck_algorithm() {
  return {.collectives = {Collective::all_to_all},
          .build = build,
          .bound = bound,
          .predict_s = predict_s,
          .partners =
              [](Collective, const Hosts& hosts) {
                return std::min(digits_for(hosts.ranks()).partners(), hosts.ranks() - 1);
              },
          .symmetry = symmetric_ranks,
          .needs_equal_parts = true,
          .held = 1,  // nearly all parts travel by way of another rank
          .passed_over = passed_over_unless_many};
}

}  // namespace ropewalk
