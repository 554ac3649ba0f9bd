#include "measure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "tools/bench/data.h"
#include "tools/bench/report.h"
#include "tools/launcher/binding.h"

namespace ropewalk::peers {
namespace {

constexpr size_t kPage = 4096;

double now_us() {
  return static_cast<double>(MonotonicClock().now_ns()) / 1e3;
}

// What looking at the clock adds to the time of a call: a tenth of the shortest calls.
double clock_us() {
  constexpr int kLooks = 1000;
  const double begin_us = now_us();
  for (int i = 1; i < kLooks; ++i) now_us();
  return (now_us() - begin_us) / kLooks;
}

// One size on one rank.
class Measurement {
 public:
  Measurement(const PeerOptions& options, int rank, Segment& segment, Barrier& barrier,
              const MakeRunner& make, size_t bytes)
      : options_(options),
        rank_(rank),
        segment_(segment),
        barrier_(barrier),
        shape_(tools::bench_shape(options.kind, bytes, options.type, rank, options.ranks, 0,
                                  options.kind.in_place_by_default())),
        runner_(make(shape_)) {}

  tools::BenchResult run() {
    segment_->wrong[rank_] = count_wrong();  // the first call: what the library does once only
    iterate(options_.warm_ups - 1);
    double fastest_us = std::numeric_limits<double>::max();  // one may have been interrupted
    for (int i = 0; i < options_.warm_ups; ++i) {
      const double begin_us = now_us();
      iterate(1);
      fastest_us = std::min(fastest_us, now_us() - begin_us);
    }
    if (rank_ == 0) segment_->iterations = choose(fastest_us);
    barrier_.wait();
    iterate(segment_->iterations / 10);
    const int iterations = iterate_for_budget();
    barrier_.wait();
    const tools::BenchResult result = summarize(iterations);
    barrier_.wait();  // nobody overwrites what is being read
    return result;
  }
  bool has_result() const { return runner_->has_result(); }

 private:
  void iterate(int iterations) {
    for (int i = 0; i < iterations; ++i) {
      prepare();
      time_call(i);
    }
  }

  // The iterations that count: as many as rank 0 has chosen, or fewer where they take much longer
  // than expected. Rank 0 says so before a barrier and all look behind it. Returns how many.
  int iterate_for_budget() {
    const double end_us = now_us() + 2e3 * options_.budget_ms;
    for (int i = 0;; ++i) {
      const bool enough = rank_ == 0 && i >= options_.iterations_min && now_us() > end_us;
      if (enough) segment_->iterations = i;
      prepare();
      if (i >= segment_->iterations) return i;
      time_call(i);
    }
  }

  void prepare() {
    tools::fill_ones(runner_->in(), shape_.in_count, options_.type);
    barrier_.wait();
  }

  void time_call(int iteration) {
    const double begin_us = now_us();
    runner_->run();
    const double passed_us = now_us() - begin_us - clock_us_;
    segment_->us[rank_][iteration].store(std::max(passed_us, 0.0), std::memory_order_relaxed);
  }

  int choose(double iteration_us) const {
    const double wanted = options_.budget_ms * 1e3 / std::max(iteration_us, 0.01);
    return static_cast<int>(
        std::clamp(wanted, double(options_.iterations_min), double{kIterationsMax}));
  }

  int64_t count_wrong() {
    const tools::BenchData data(options_.kind, options_.type, ReduceKind::sum, options_.ranks, 0);
    if (runner_->has_result()) {
      memset(runner_->out(), 0xa5, shape_.buffer_count * size_of(options_.type));
    }
    data.fill(runner_->in(), shape_.in_count, rank_);
    barrier_.wait();
    runner_->run();
    if (!runner_->has_result()) return 0;
    return static_cast<int64_t>(data.count_wrong(runner_->out(), shape_, rank_));
  }

  // Of all ranks; the same on each.
  tools::BenchResult summarize(int iterations) const {
    std::vector<double> us(static_cast<size_t>(iterations));
    int64_t wrong = 0;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      wrong += segment_->wrong[rank];
      for (int i = 0; i < iterations; ++i) {
        double& slowest_us = us[static_cast<size_t>(i)];
        slowest_us = std::max(slowest_us, segment_->us[rank][i] / runner_->trips());
      }
    }
    return tools::summarize(shape_, runner_->algorithm(), std::move(us), wrong);
  }

  const PeerOptions& options_;
  int rank_;
  Segment& segment_;
  Barrier& barrier_;
  tools::BenchShape shape_;
  std::unique_ptr<Runner> runner_;
  const double clock_us_ = clock_us();
};

void print(const PeerOptions& options, const tools::BenchResult& result, bool checked) {
  nlohmann::ordered_json line;
  line["collective"] = options.kind.name();
  line["variant"] = options.variant;
  if (result.algorithm != Algorithm::automatic) line["algorithm"] = name_of(result.algorithm);
  line["ranks"] = options.ranks;
  line["dtype"] = name_of(options.type);
  line["bytes"] = result.bytes;
  line["iterations"] = result.iterations;
  for (const auto& [name, us] : {std::pair{"min_us", result.min_us},
                                 {"median_us", result.median_us},
                                 {"p99_us", result.p99_us}})
    line[name] = std::round(us * 1e3) / 1e3;
  line["checked"] = checked;
  line["wrong"] = result.wrong;
  std::puts(line.dump().c_str());
  std::fflush(stdout);
}

}  // namespace

std::shared_ptr<std::byte[]> plain_memory(size_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kPage, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  memset(memory, 0, rounded);
  return {memory, std::free};
}

PlainRunner::PlainRunner(const PeerOptions& options, const tools::BenchShape& shape)
    : in_(plain_memory(shape.buffer_count * size_of(options.type))),
      out_(options.kind.in_place_by_default()
               ? in_
               : plain_memory(shape.buffer_count * size_of(options.type))) {}

Waiting bind_to_core(const PeerOptions& options, int rank) {
  if (options.shared_cores) return Waiting::sleep;
  const std::vector<int> cpus = tools::cpus_for_ranks(options.ranks);
  const bool bound = !cpus.empty() && tools::bind_process_to_cpu(cpus[static_cast<size_t>(rank)]);
  return bound ? Waiting::spin : Waiting::yield;
}

int64_t measure(const PeerOptions& options, int rank, Waiting waiting, Segment& segment,
                const MakeRunner& make) {
  Barrier barrier(segment->start, rank, options.ranks, waiting);
  int64_t wrong = 0;
  for (const size_t bytes : options.sizes) {
    Measurement measurement(options, rank, segment, barrier, make, bytes);
    const tools::BenchResult result = measurement.run();
    if (rank == 0) print(options, result, measurement.has_result());
    wrong += result.wrong;
  }
  return wrong;
}

}  // namespace ropewalk::peers
