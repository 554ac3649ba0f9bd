#include "tools/bench/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "ropewalk/communicator.h"
#include "tools/bench/data.h"
#include "tools/bench/job.h"
#include "tools/bench/memory.h"
#include "tools/bench/plot.h"
#include "tools/bench/report.h"
#include "tools/bench/time_summary.h"

namespace ropewalk::tools {
namespace {

constexpr size_t kAlignment = 64;

// Memory of either kind.
class BenchBuffer {
 public:
  BenchBuffer(Communicator& comm, size_t bytes, bool registered)
      : bytes_(std::max<size_t>(bytes, 8)) {
    if (registered) {
      registered_ = comm.allocate<std::byte>(bytes_);
    } else {
      const size_t rounded = (bytes_ + kAlignment - 1) / kAlignment * kAlignment;
      plain_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
      if (!plain_) {
        throw Error(ErrorCode::exhausted, "bench", fmt::format("no {} bytes of memory", rounded),
                    "choose smaller --sizes");
      }
      memset(plain_.get(), 0, bytes_);  // page faults belong here, not into the measurement
    }
  }
  std::byte* data() const { return plain_ ? plain_.get() : registered_.data(); }
  void poison() { memset(data(), 0xa5, bytes_); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  size_t bytes_;
  Buffer<std::byte> registered_;
  std::unique_ptr<std::byte, Free> plain_;
};

// One size on one rank: buffers and the call, ready to run again and again.
class BenchCase {
 public:
  BenchCase(Communicator& comm, const BenchOptions& options, size_t bytes)
      : comm_(comm),
        options_(options),
        shape_(bench_shape(options.kind, bytes, options.type, comm.rank(), comm.size(),
                           options.root, options.in_place)),
        first_(comm, buffer_bytes(), options.registered),
        second_(comm, options.in_place ? 0 : buffer_bytes(), options.registered) {
    if (options.kind.is_send_recv()) {
      calls_.push_back(transfer(Collective::send, (comm.rank() + 1) % comm.size()));
      calls_.push_back(transfer(Collective::recv, (comm.rank() + comm.size() - 1) % comm.size()));
    } else {
      plan_ = comm.plan(call());
    }
  }

  const BenchShape& shape() const { return shape_; }
  Algorithm algorithm() const {
    return options_.kind.is_send_recv() ? Algorithm::direct : plan_.algorithm();
  }
  void run() {
    if (calls_.empty()) {
      plan_.run();
    } else {
      comm_.start_group(calls_).wait();
    }
  }
  void rewrite_input() { fill_ones(in(), shape_.in_count, options_.type); }

  /// Runs once on known data; the number of wrong elements here.
  int64_t check() {
    const BenchData data(options_.kind, options_.type, options_.op, comm_.size(), options_.root);
    first_.poison();
    second_.poison();
    data.fill(in(), shape_.in_count, comm_.rank());
    run();
    return static_cast<int64_t>(data.count_wrong(out(), shape_, comm_.rank()));
  }

 private:
  size_t buffer_bytes() const { return shape_.buffer_count * size_of(options_.type); }
  std::byte* in() { return first_.data() + shape_.in_offset * size_of(options_.type); }
  std::byte* out() {
    std::byte* base = options_.in_place ? first_.data() : second_.data();
    return base + shape_.out_offset * size_of(options_.type);
  }
  Call call() {
    Call call;
    call.collective = options_.kind.collective;
    call.count = shape_.count;
    call.type = options_.type;
    call.op = {options_.op, BenchData::scale_of(options_.op, comm_.rank())};
    call.root = options_.root;
    call.algorithm = options_.algorithm;
    call.in = in();
    call.out = out();
    return call;
  }
  Call transfer(Collective direction, int peer) {
    Call call = this->call();
    call.collective = direction;
    call.root = peer;
    if (direction == Collective::send) call.out = nullptr;
    if (direction == Collective::recv) call.in = nullptr;
    return call;
  }

  Communicator& comm_;
  const BenchOptions& options_;
  BenchShape shape_;
  BenchBuffer first_, second_;
  Plan plan_;
  std::vector<Call> calls_;  // send_recv only
};

// Fills `us` with the time of each iteration on this rank.
void measure(BenchCase& bench_case, Plan& barrier, std::span<double> us) {
  for (double& time : us) {
    bench_case.rewrite_input();
    barrier.run();
    const double begin = now_us();
    bench_case.run();
    time = now_us() - begin;
  }
}

int choose_iterations(Communicator& comm, const BenchOptions& options, double iteration_us) {
  if (options.iterations > 0) return options.iterations;
  comm.all_reduce(std::span<double>(&iteration_us, 1), kMax);  // the same number on every rank
  return static_cast<int>(std::clamp<double>(options.budget_us / std::max(iteration_us, 0.01),
                                             options.iterations_min, options.iterations_max));
}

}  // namespace

void check_memory_of_all(Communicator& comm, const BenchOptions& options) {
  uint64_t bytes = buffer_bytes(options, comm.rank(), comm.size());
  bytes *= static_cast<uint64_t>(comm.local_size());
  std::optional<Error> shortage;
  try {
    check_memory(options.sizes, bytes);
  } catch (const Error& error) {
    shortage = error;
  }
  int32_t ranks_short = shortage ? 1 : 0;
  comm.all_reduce(std::span<int32_t>(&ranks_short, 1));
  if (shortage) throw *shortage;
  if (ranks_short > 0)
    throw Error(ErrorCode::exhausted, "bench", "another host has too little memory",
                "choose smaller --sizes");
}

Plan plan_barrier(Communicator& comm) {
  Call call;
  call.collective = Collective::barrier;
  return comm.plan(call);
}

BenchResult measure_size(Communicator& comm, const BenchOptions& options, Plan& barrier,
                         size_t bytes) {
  BenchCase bench_case(comm, options, bytes);
  std::vector<double> us(static_cast<size_t>(std::max(options.warmup, 1)));
  const double begin = now_us();
  measure(bench_case, barrier, us);
  const double iteration_us = (now_us() - begin) / static_cast<double>(us.size());
  us.assign(static_cast<size_t>(choose_iterations(comm, options, iteration_us)), 0);
  measure(bench_case, barrier, us);
  // Only now, so that it does not disturb: an iteration takes as long as its slowest rank.
  comm.all_reduce(std::span<double>(us), kMax);
  int64_t wrong = bench_case.check();
  comm.all_reduce(std::span<int64_t>(&wrong, 1));
  return summarize(bench_case.shape(), bench_case.algorithm(), std::move(us), wrong);
}

int run_bench_rank(const BenchOptions& options) {
  const auto comm = join_job("bench", options.ranks,
                             join_options(options.transport, options.secure, options.timeout));
  if (options.root >= comm->size()) {
    throw Error(ErrorCode::invalid_argument, "bench",
                fmt::format("--root {} of {} ranks", options.root, comm->size()));
  }
  check_memory_of_all(*comm, options);
  Plan barrier = plan_barrier(*comm);
  const bool prints = comm->rank() == 0;
  const BenchJob job{comm->size(), comm->transport()};
  std::optional<BenchPlot> plot;
  if (prints && !options.plot.empty()) plot.emplace(options);
  if (prints) print_header(options, job);
  const std::vector<size_t> sizes =
      options.kind.collective == Collective::barrier ? std::vector<size_t>{0} : options.sizes;
  int64_t wrong = 0;
  for (const size_t bytes : sizes) {
    const BenchResult result = measure_size(*comm, options, barrier, bytes);
    if (prints) print_result(options, job, result);
    if (plot) plot->add(job, result);
    wrong += result.wrong;
  }
  if (plot) plot->write();
  return wrong == 0 ? 0 : 1;
}

}  // namespace ropewalk::tools
