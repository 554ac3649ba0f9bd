// What a call costs before anything moves: a job of one rank. `run` and `start_wait` repeat a plan;
// `call` and `call_start_wait` look the prepared operation up every time.
#include <benchmark/benchmark.h>

#include <memory>

#include "ropewalk/communicator.h"

namespace ropewalk::micro {
namespace {

struct Alone {
  Alone() : comm(Communicator::create(options())), values(comm->allocate<float>(2)) {
    call.in = call.out = values.data();
    call.count = values.size();
  }
  static Options options() {
    Options options;
    options.rank = 0;
    options.size = 1;
    return options;
  }
  std::unique_ptr<Communicator> comm;
  Buffer<float> values;
  Call call;
};

void run(benchmark::State& state) {
  Alone alone;
  Plan plan = alone.comm->plan(alone.call);
  for (auto _ : state) plan.run();
}

void start_wait(benchmark::State& state) {
  Alone alone;
  Plan plan = alone.comm->plan(alone.call);
  for (auto _ : state) {
    plan.start();
    plan.wait();
  }
}

void call(benchmark::State& state) {
  Alone alone;
  for (auto _ : state) alone.comm->all_reduce(alone.values.span());
}

void call_start_wait(benchmark::State& state) {
  Alone alone;
  for (auto _ : state) alone.comm->start(alone.call).wait();
}

void make_plan(benchmark::State& state) {
  Alone alone;
  for (auto _ : state) benchmark::DoNotOptimize(alone.comm->plan(alone.call));
}

BENCHMARK(run);
BENCHMARK(start_wait);
BENCHMARK(call);
BENCHMARK(call_start_wait);
BENCHMARK(make_plan);

}  // namespace
}  // namespace ropewalk::micro

BENCHMARK_MAIN();
