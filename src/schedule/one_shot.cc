// One shot: every rank sends its whole vector to every other and adds up what it gets. One round:
// the shortest way for vectors that are shorter than a message's overhead. All ranks add in rank
// order, so that all end with the same bits: what lies below the own rank is gathered in scratch
// first. (Called so in MSCCL++ and TensorRT-LLM; "linear" or "naive" in the MPI literature.)
#include <algorithm>

#include "schedule/builders.h"

namespace ropewalk {
namespace {

Schedule build(const ScheduleKey& key, int rank) {
  const int n = key.ranks;
  constexpr int kSum = 0, kBelow = 1;
  Builder out(key, rank, 1, 1);
  for (int i = 1; i < n; ++i)
    rank == 0 ? out.send_copy(kSum, i) : out.send_reduce(kSum, wrap(rank + i, n));
  if (rank > 0) out.recv_copy(kBelow, 0);
  for (int below = 1; below < rank; ++below) out.recv_reduce(kBelow, below);
  if (rank > 0) out.reduce(kSum, kBelow);
  for (int above = rank + 1; above < n; ++above) out.recv_reduce(kSum, above);
  return out.take();
}

/// A short message is stored into a mapped slot and read from there, cache line by cache line.
constexpr double kSlotPenalty = 5;

/// What rank 0 sends last is added first.
double described_s(const CostTerms& t) {
  const double slices = t.slices_of(t.bytes), within = t.local - 1, between = t.n - t.local;
  const double each = t.is_whole(t.bytes) ? 1 : 2 + slices;
  const double cpu = each * (between * t.near.overhead_s + within * t.inside.overhead_s) +
                     within * t.bytes * t.inside.s_per_byte;
  const double port = passing(t, t.bytes, t.local * between, t.rack_size * (t.n - t.rack_size));
  const double latency = t.hosts > 1 ? t.near.latency_s : t.inside.latency_s;
  const double sent = std::max(cpu + passing(t, t.bytes / slices, 1, 1), port + t.near.overhead_s);
  const double add = adding(t, (t.n - 1) * t.bytes);
  if (t.is_whole(t.bytes)) return sent + latency + add;
  return std::max(sent, add) + std::min(sent, add) / slices + 2 * latency;
}

double predict_s(const CostTerms& t, Collective) {
  if (t.described) return described_s(t);
  const double others = t.n - 1, bytes = others * t.bytes;
  const double move =
      moving(t, bytes, t.all_cross) * t.incast(t.bytes) * (t.mapped ? kSlotPenalty : 1);
  const double posts = 2 * others * t.slices_of(t.bytes) * t.link.overhead_s;  // and as many taken
  return t.link.latency_s + posts + move + adding(t, bytes);
}

}  // namespace

AlgorithmDescriptor one_shot_algorithm() {
  using enum Collective;
  return {.collectives = {all_reduce},
          .build = build,
          .bound =
              [](const ScheduleKey& key) {
                return Bound{key.ranks - 1.0, 1};
              },
          .predict_s = predict_s,
          .blocks = [](Collective, const Hosts&) { return 1; }};
}

}  // namespace ropewalk
