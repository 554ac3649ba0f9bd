// A pure notice there and back through shared memory, between threads on two cores, beside what the
// machine takes for a cache line.
//
// one_way_ns is half of a round trip, in the median batch. Where the process may use one CPU only
// there is nothing to measure. Other work on either core shows: run it on a quiet machine.
#include <benchmark/benchmark.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "median.h"
#include "topology/topology.h"
#include "transports/shm/shm_transport.h"

namespace ropewalk::micro {
namespace {

constexpr int kRoundTripsPerBatch = 100;

/// Binds the calling thread to the first allowed CPU, and gives the second; -1 where there is none.
int bind_and_find_second_cpu() {
  static const std::vector<int> cpus = allowed_cpu_list();
  if (cpus.size() < 2) return -1;
  bind_thread_to_cpu(cpus[0]);
  return cpus[1];
}

/// `round_trip` again and again; reports the median batch.
template <class RoundTrip>
void measure(benchmark::State& state, RoundTrip round_trip) {
  const MonotonicClock clock;
  std::vector<double> one_way_ns;
  for (auto _ : state) {
    const int64_t begin_ns = clock.now_ns();
    for (int i = 0; i < kRoundTripsPerBatch; ++i) round_trip();
    const auto passed_ns = static_cast<double>(clock.now_ns() - begin_ns);
    one_way_ns.push_back(passed_ns / (2 * kRoundTripsPerBatch));
    state.SetIterationTime(passed_ns / 1e9);
  }
  state.counters["one_way_ns"] = median(one_way_ns);
}

/// Two counters, each written by one thread.
void cache_line(benchmark::State& state) {
  const int cpu = bind_and_find_second_cpu();
  if (cpu < 0) return state.SkipWithError("needs two CPUs");
  struct alignas(128) Line {
    std::atomic<uint64_t> count{0};
  };
  Line there, back;
  std::atomic<bool> stop = false;
  std::thread echo([&] {
    bind_thread_to_cpu(cpu);
    for (uint64_t next = 1; !stop; ++next) {
      while (there.count.load(std::memory_order_acquire) < next && !stop) {
      }
      back.count.store(next, std::memory_order_release);
    }
  });
  uint64_t sent = 0;
  measure(state, [&] {
    there.count.store(++sent, std::memory_order_release);
    while (back.count.load(std::memory_order_acquire) < sent) {
    }
  });
  stop = true;
  echo.join();
}

/// Waits for a notice; false when stopped.
bool await_notice(ShmTransport& transport, const std::atomic<bool>& stop) {
  std::array<Completion, 64> completions;
  while (transport.poll(completions) == 0)
    if (stop.load(std::memory_order_relaxed)) return false;
  return true;
}

void signal(benchmark::State& state) {
  const int cpu = bind_and_find_second_cpu();
  if (cpu < 0) return state.SkipWithError("needs two CPUs");
  ShmTransport here(0, 2), there(1, 2);
  const std::vector<std::string> infos = {here.info(), there.info()};
  here.set_peers(infos);
  there.set_peers(infos);
  here.connect(1, {});
  there.connect(0, {});
  std::array<Completion, 1> none;
  while (!here.connected(1) || !there.connected(0)) {
    here.poll(none);
    there.poll(none);
  }
  std::atomic<bool> stop = false;
  std::thread echo([&] {
    bind_thread_to_cpu(cpu);
    while (await_notice(there, stop)) there.put({.peer = 0, .notice = 1});
  });
  const std::atomic<bool> never = false;
  measure(state, [&] {
    here.put({.peer = 1, .notice = 1});
    await_notice(here, never);
  });
  stop = true;
  echo.join();
}

BENCHMARK(cache_line)->UseManualTime();
BENCHMARK(signal)->UseManualTime();

}  // namespace
}  // namespace ropewalk::micro

BENCHMARK_MAIN();
