// Speed of the reduction kernels against memcpy and a plain triad, in bytes read and written per
// second.
//
//   reduce_bench --benchmark_filter='^reduce/float32/sum'
//   reduce_bench --benchmark_filter='^AVX2/float32'
//
// Names: reduce/TYPE/OP/SHAPE/BYTES, where BYTES is the length of each span, on the best
// instruction set of the machine; INSTRUCTION_SET/TYPE/sum/2to1_in_place/BYTES limited to one
// (SCALAR: plain C++). of_memcpy is the speed beside memcpy's of the same length, measured at the
// start. Shapes: 2to1 (a third span is written), 2to1_in_place (a receive-and-reduce step), 2to2
// (two other spans are written), 2to2_in_place (both sources are written: allreduce of two ranks
// over shared memory). bytes_per_second counts every element read and every element written once.
// Where a span is written that was not read, the processor reads it all the same before it writes,
// which this does not count: compare such shapes with `triad`, which does the same, and the shapes
// in place with `update`, which does not.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>
#include <ctime>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "hwy/highway.h"
#include "median.h"
#include "reduce/kernels.h"
#include "reduce/reduce.h"

namespace {

using ropewalk::DataType;
using ropewalk::ReduceKind;
using ropewalk::ReduceOp;

/// Anonymous memory on huge pages where the machine gives them, filled with ones.
class Span {
 public:
  explicit Span(size_t bytes) : bytes_(bytes) {
    void* memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    madvise(memory, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(memory);
    std::memset(data_, 1, bytes_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() { munmap(data_, bytes_); }

  std::byte* data() const { return data_; }

 private:
  size_t bytes_;
  std::byte* data_;
};

void count_bytes(benchmark::State& state, size_t span_bytes, size_t spans) {
  state.SetBytesProcessed(static_cast<int64_t>(span_bytes * spans) *
                          static_cast<int64_t>(state.iterations()));
}

void copy(benchmark::State& state) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  Span from(bytes), to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes, 2);
}

/// c = a + 3 b, as the STREAM benchmark has it.
void triad(benchmark::State& state) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  Span a(bytes), b(bytes), c(bytes);
  const float* __restrict x = reinterpret_cast<const float*>(a.data());
  const float* __restrict y = reinterpret_cast<const float*>(b.data());
  float* __restrict z = reinterpret_cast<float*>(c.data());
  for (auto _ : state) {
    for (size_t i = 0; i < bytes / sizeof(float); ++i) z[i] = x[i] + 3.0f * y[i];
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes, 3);
}

/// a = a + 3 b.
void update(benchmark::State& state) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  Span a(bytes), b(bytes);
  float* __restrict x = reinterpret_cast<float*>(a.data());
  const float* __restrict y = reinterpret_cast<const float*>(b.data());
  for (auto _ : state) {
    for (size_t i = 0; i < bytes / sizeof(float); ++i) x[i] += 3.0f * y[i];
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes, 3);
}

/// Of this process: other work on the machine does not count.
double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// Bytes read and written by memcpy per second, the median of some runs.
double memcpy_speed(size_t bytes) {
  static std::map<size_t, double> known;
  const auto [entry, is_new] = known.try_emplace(bytes, 0);
  if (!is_new) return entry->second;
  Span from(bytes), to(bytes);
  std::vector<double> speeds;
  for (int run = 0; run < 9; ++run) {
    const double begin = cpu_seconds();
    double copied = 0;
    for (; cpu_seconds() - begin < 0.01; copied += static_cast<double>(bytes) * 64)
      for (int i = 0; i < 64; ++i) {
        std::memcpy(to.data(), from.data(), bytes);
        benchmark::ClobberMemory();
      }
    speeds.push_back(2 * copied / (cpu_seconds() - begin));
  }
  return entry->second = ropewalk::micro::median(speeds);
}

struct Shape {
  const char* name;
  size_t destinations;
  bool in_place;
};
constexpr Shape kShapes[] = {
    {"2to1", 1, false}, {"2to1_in_place", 1, true}, {"2to2", 2, false}, {"2to2_in_place", 2, true}};

void reduce(benchmark::State& state, DataType type, ReduceKind kind, const Shape& shape) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  Span a(bytes), b(bytes), c(bytes), d(bytes);
  const std::byte* sources[] = {a.data(), b.data()};
  std::byte* destinations[] = {shape.in_place ? a.data() : c.data(),
                               shape.in_place ? b.data() : d.data()};
  const ReduceOp op{kind};
  const double begin = cpu_seconds();
  for (auto _ : state) {
    ropewalk::reduce({destinations, shape.destinations}, sources, bytes / size_of(type), type, op);
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes, 2 + shape.destinations);
  const double moved = static_cast<double>(bytes * (2 + shape.destinations)) *
                       static_cast<double>(state.iterations());
  state.counters["of_memcpy"] = moved / (cpu_seconds() - begin) / memcpy_speed(bytes);
}

/// As `reduce`, with no better instruction set than `target` (a bit of Highway's).
void reduce_on(benchmark::State& state, int64_t target, DataType type) {
  ropewalk::limit_targets(target);
  reduce(state, type, ReduceKind::sum, kShapes[1]);
  ropewalk::limit_targets(0);
}

void set_sizes(benchmark::internal::Benchmark* benchmark) {
  for (int64_t bytes : {int64_t{16} << 10, int64_t{1} << 20, int64_t{64} << 20})
    benchmark->Arg(bytes);
}

void register_all() {
  set_sizes(benchmark::RegisterBenchmark("memcpy", copy));
  set_sizes(benchmark::RegisterBenchmark("triad", triad));
  set_sizes(benchmark::RegisterBenchmark("update", update));
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target != HWY_STATIC_TARGET && (ropewalk::usable_targets() & target) == 0) continue;
    for (int t = 0; t < ropewalk::kDataTypes; ++t) {
      const auto type = static_cast<DataType>(t);
      const std::string name =
          fmt::format("{}/{}/sum/2to1_in_place", hwy::TargetName(target), name_of(type));
      set_sizes(benchmark::RegisterBenchmark(name.c_str(), reduce_on, target, type));
    }
  }
  for (int t = 0; t < ropewalk::kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    for (ReduceKind kind : {ReduceKind::sum, ReduceKind::prod, ReduceKind::min, ReduceKind::max}) {
      for (const Shape& shape : kShapes) {
        const std::string name =
            fmt::format("reduce/{}/{}/{}", name_of(type), name_of(kind), shape.name);
        set_sizes(benchmark::RegisterBenchmark(name.c_str(), reduce, type, kind, shape));
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  benchmark::AddCustomContext("instruction set", ropewalk::reduce_target_name());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
