// Halving and doubling on a circulant graph, for any number of ranks: Traeff, "Optimal,
// Non-pipelined Reduce-scatter and Allreduce Algorithms", 2024 (arXiv 2410.14234). Skips halve,
// rounding up, from n to 1: ceil(log2 n) rounds each way, (n-1)/n of the bytes each way.
#include "schedule/builders.h"

namespace ropewalk {
namespace {

/// n, ceil(n/2), ceil(ceil(n/2)/2), ..., 1.
std::vector<int> skips(int n) {
  std::vector<int> s{n};
  while (s.back() > 1) s.push_back((s.back() + 1) / 2);
  return s;
}

/// Before a round with `span` blocks a rank holds partial sums of the blocks from its own on. It
/// hands the upper half to the rank `skip` above, for which they are the blocks from its own on.
void append_reduce_scatter(Builder& out, int n, int rank) {
  const std::vector<int> s = skips(n);
  for (size_t k = 0; k + 1 < s.size(); ++k) {
    const int span = s[k], skip = s[k + 1];
    for (int i = 0; i < span - skip; ++i) {
      out.send_reduce(wrap(rank + skip + i, n), wrap(rank + skip, n));
      out.recv_reduce(wrap(rank + i, n), wrap(rank - skip, n));
    }
  }
}

/// The same, backwards in time: what was sent up and added comes down and is kept.
void append_all_gather(Builder& out, int n, int rank) {
  const std::vector<int> s = skips(n);
  for (size_t k = s.size() - 1; k > 0; --k) {
    const int span = s[k - 1], skip = s[k];
    for (int i = 0; i < span - skip; ++i) {
      out.send_copy(wrap(rank + i, n), wrap(rank - skip, n));
      out.recv_copy(wrap(rank + skip + i, n), wrap(rank + skip, n));
    }
  }
}

}  // namespace

Schedule build_halving_doubling(const ScheduleKey& key, int rank) {
  Builder out(key, rank, key.ranks);
  if (key.collective != Collective::all_gather) append_reduce_scatter(out, key.ranks, rank);
  if (key.collective != Collective::reduce_scatter) append_all_gather(out, key.ranks, rank);
  return out.take();
}

}  // namespace ropewalk
