// What the engine spends on one step of one slice, on all ranks of a job in one thread.
//
//   engine_bench --benchmark_filter=eager
//
// ns_per_step is the whole; transport_ns_per_step is what the network without a wire took of it,
// measured by making the engines' calls on it again, in turn with the runs; engine_ns_per_step is
// the rest. CPU time, medians of batches. Nothing is added and slices are not moved; the 56 bytes
// of an eager message are, and what owners hand out in direct_mapped. Arguments: ranks.
#include <benchmark/benchmark.h>

#include <ctime>
#include <vector>

#include "engine_job.h"
#include "median.h"

namespace ropewalk::micro {
namespace {

// Four messages make a credit, and four runs use a stream once: every batch is like the others.
constexpr int kRunsPerBatch = 16;

/// Of this thread: other work on the machine does not count.
int64_t cpu_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void measure(benchmark::State& state, const EngineCase& c) {
  std::vector<TransportCall> calls;
  EngineJob measured(c, nullptr), recorded(c, &calls);
  for (int i = 0; i < kRunsPerBatch; ++i) {
    measured.run();
    recorded.run();
  }
  calls.clear();
  for (int i = 0; i < kRunsPerBatch; ++i) recorded.run();
  const double steps = static_cast<double>(measured.steps()) * kRunsPerBatch;
  std::vector<double> whole_ns, transport_ns;
  for (auto _ : state) {
    const int64_t begin_ns = cpu_ns();
    for (int i = 0; i < kRunsPerBatch; ++i) measured.run();
    const int64_t end_ns = cpu_ns();
    recorded.replay(calls);
    const int64_t replayed_ns = cpu_ns();
    whole_ns.push_back(static_cast<double>(end_ns - begin_ns) / steps);
    transport_ns.push_back(static_cast<double>(replayed_ns - end_ns) / steps);
    state.SetIterationTime(static_cast<double>(end_ns - begin_ns) / 1e9);
  }
  state.counters["steps"] = static_cast<double>(measured.steps());
  state.counters["ns_per_step"] = median(whole_ns);
  state.counters["transport_ns_per_step"] = median(transport_ns);
  state.counters["engine_ns_per_step"] = median(whole_ns) - median(transport_ns);
}

int ranks_of(const benchmark::State& state) {
  return static_cast<int>(state.range(0));
}

/// 8 bytes, in one message to each partner.
void eager(benchmark::State& state, Algorithm algorithm, bool driven) {
  EngineCase c;
  c.algorithm = algorithm;
  c.ranks = ranks_of(state);
  c.driven = driven;
  measure(state, c);
}

/// 16 slices a block.
void sliced(benchmark::State& state, Algorithm algorithm, bool mapped) {
  EngineCase c;
  c.algorithm = algorithm;
  c.ranks = ranks_of(state);
  c.slice_bytes = 4096;
  c.bytes = c.slice_bytes * 16 * static_cast<size_t>(c.ranks);
  c.mapped = mapped;
  measure(state, c);
}

BENCHMARK_CAPTURE(eager, recursive_doubling, Algorithm::recursive_doubling, false)
    ->Arg(2)
    ->Arg(16)
    ->UseManualTime();
BENCHMARK_CAPTURE(eager, direct, Algorithm::direct, false)->Arg(8)->UseManualTime();
BENCHMARK_CAPTURE(eager, ring, Algorithm::ring, false)->Arg(16)->UseManualTime();
BENCHMARK_CAPTURE(eager, driver, Algorithm::recursive_doubling, true)
    ->Arg(2)
    ->Arg(16)
    ->UseManualTime();
BENCHMARK_CAPTURE(sliced, ring, Algorithm::ring, false)->Arg(2)->Arg(4)->Arg(16)->UseManualTime();
BENCHMARK_CAPTURE(sliced, ring_mapped, Algorithm::ring, true)->Arg(4)->Arg(16)->UseManualTime();
BENCHMARK_CAPTURE(sliced, direct_mapped, Algorithm::direct, true)->Arg(4)->UseManualTime();

}  // namespace
}  // namespace ropewalk::micro

BENCHMARK_MAIN();
