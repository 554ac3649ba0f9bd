// What all_reduces of elastic jobs cost beside plain ones: all of them in turn, in one run.
//
//   ropewalk run -n 4 -- build/bench/micro/elastic_bench
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

#include "bench/micro/median.h"
#include "ropewalk/partial.h"

namespace {

using ropewalk::Communicator;
using ropewalk::micro::median;
using Clock = std::chrono::steady_clock;

/// Microseconds a call of `calls`.
double time_us(Communicator& comm, int calls, const std::function<void()>& call) {
  comm.barrier();
  const auto begun = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double, std::micro>(Clock::now() - begun).count() / calls;
}

void measure(Communicator& comm, size_t bytes) {
  constexpr int kTurns = 11;
  const int calls = bytes < (1 << 20) ? 300 : 4;
  auto data = comm.allocate<float>(bytes / sizeof(float));
  ropewalk::PartialAllReduce<float> partial(comm, data.size());
  constexpr const char* kNames[] = {"all_reduce", "committed", "partial", "agree"};
  const std::function<void()> kinds[] = {
      [&] { comm.all_reduce(data); },
      [&] { comm.all_reduce_committed(data); },
      [&] { partial.all_reduce(data, std::chrono::seconds(10)); },
      [&] { comm.agree(1); },
  };
  std::vector<std::vector<double>> times_us(std::size(kinds));
  for (int turn = 0; turn <= kTurns; ++turn)
    for (size_t kind = 0; kind < std::size(kinds); ++kind) {
      const double took_us = time_us(comm, kind == 3 ? 4 : calls, kinds[kind]);
      if (turn > 0) times_us[kind].push_back(took_us);
    }
  partial.finish(data);
  if (comm.rank() != 0) return;
  const auto best = [&](size_t kind) { return *std::ranges::min_element(times_us[kind]); };
  std::printf("%10zu B:", bytes);
  for (size_t kind = 0; kind < std::size(kinds); ++kind)
    std::printf(" %s %.0f (%.0f) us", kNames[kind], median(times_us[kind]), best(kind));
  std::printf("\n");
}

}  // namespace

int main() {
  const auto comm = Communicator::create();
  if (comm->rank() == 0)
    std::printf("%d ranks over %s: the median of the turns (the best of them)\n", comm->size(),
                comm->transport().c_str());
  for (const size_t bytes : {size_t{8}, size_t{64} << 10, size_t{16} << 20}) measure(*comm, bytes);
}
