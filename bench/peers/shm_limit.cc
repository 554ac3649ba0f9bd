// What the memory of this machine allows: two threads, one per core, buffers in shared memory. Each
// does half of the work in one pass, between two barriers. Variant streaming: copies bypass the
// cache, which is faster from some size on; sums never are.
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "measure.h"

namespace ropewalk::peers {
namespace {

constexpr int kThreads = 2;

// ---- The passes, for the widest vectors that the machine has ----

// Vectors that never overlap: the sum into both, or into a third.
[[gnu::always_inline]] inline void add_in_place(float* __restrict a, float* __restrict b,
                                                size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    a[i] = sum;
    b[i] = sum;
  }
}
[[gnu::always_inline]] inline void add_to(const float* __restrict a, const float* __restrict b,
                                          float* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
}

// `to`: null for in place.
using Add = void (*)(float* a, float* b, float* to, size_t count);

void add_any(float* a, float* b, float* to, size_t count) {
  to == nullptr ? add_in_place(a, b, count) : add_to(a, b, to, count);
}
#if defined(__x86_64__)
[[gnu::target("avx2")]] void add_avx2(float* a, float* b, float* to, size_t count) {
  to == nullptr ? add_in_place(a, b, count) : add_to(a, b, to, count);
}
[[gnu::target("avx512f")]] void add_avx512(float* a, float* b, float* to, size_t count) {
  to == nullptr ? add_in_place(a, b, count) : add_to(a, b, to, count);
}
#endif

void copy_past_cache(const float* from, size_t count, float* to) {
  size_t i = 0;
#if defined(__x86_64__)
  for (; i < count && reinterpret_cast<uintptr_t>(to + i) % sizeof(__m128) != 0; ++i)
    to[i] = from[i];
  for (; i + 4 <= count; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
  _mm_sfence();
#endif
  std::copy_n(from + i, count - i, to + i);
}

void copy_plainly(const float* from, size_t count, float* to) {
  std::copy_n(from, count, to);
}

Add widest_add() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return add_avx512;
  if (__builtin_cpu_supports("avx2")) return add_avx2;
#endif
  return add_any;
}

// ---- The threads ----

// Shared memory, on huge pages where the machine gives them.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes) : bytes_(bytes) {
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    madvise(memory_, bytes, MADV_HUGEPAGE);
    std::fill_n(floats(), bytes / sizeof(float), 0.0F);
  }
  ~SharedMemory() { munmap(memory_, bytes_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  float* floats() const { return static_cast<float*>(memory_); }

 private:
  void* memory_;
  size_t bytes_;
};

// Where each thread's buffers are.
struct Board {
  float* in[kThreads];
  float* out[kThreads];
};

class LimitRunner final : public Runner {
 public:
  LimitRunner(const PeerOptions& options, const tools::BenchShape& shape, int thread, Board& board,
              Barrier& barrier)
      : collective_(options.kind.collective),
        thread_(thread),
        board_(board),
        barrier_(barrier),
        copy_(options.variant == "streaming" ? copy_past_cache : copy_plainly),
        half_(half_of(shape, thread)),
        in_(std::max<size_t>(shape.buffer_count * sizeof(float), 1)),
        out_(options.kind.in_place_by_default() ? 1 : shape.buffer_count * sizeof(float)) {
    board.in[thread] = in_.floats();
    board.out[thread] = options.kind.in_place_by_default() ? in_.floats() : out_.floats();
    barrier_.wait();
  }
  ~LimitRunner() override { barrier_.wait(); }  // the other may still be writing
  std::byte* in() override { return reinterpret_cast<std::byte*>(board_.in[thread_]); }
  std::byte* out() override { return reinterpret_cast<std::byte*>(board_.out[thread_]); }

  void run() override {
    barrier_.wait();
    pass();
    barrier_.wait();
  }

 private:
  struct Range {
    size_t begin, count;
  };
  static Range half_of(const tools::BenchShape& shape, int thread) {
    const size_t middle = shape.buffer_count / 2;
    return thread == 0 ? Range{0, middle} : Range{middle, shape.buffer_count - middle};
  }

  void pass() {
    const auto [begin, count] = half_;
    float* const* in = board_.in;
    float* const* out = board_.out;
    switch (collective_) {
      case Collective::all_reduce:
        return add_(in[0] + begin, in[1] + begin, nullptr, count);
      case Collective::reduce_scatter:
        return add_(in[0] + begin, in[1] + begin, out[thread_], count);
      case Collective::all_gather:
        // Each puts its part into both results.
        for (float* to : {out[0], out[1]}) copy_(in[thread_], count, to + begin);
        return;
      default:
        copy_(in[0] + begin, count, out[1] + begin);
    }
  }

  Collective collective_;
  int thread_;
  Board& board_;
  Barrier& barrier_;
  void (*copy_)(const float* from, size_t count, float* to);
  Range half_;
  SharedMemory in_, out_;
  Add add_ = widest_add();
};

int64_t run_thread(const PeerOptions& options, int thread, Board& board, Segment& segment) {
  const Waiting waiting = bind_to_core(options, thread);
  Barrier barrier(segment->inside, thread, kThreads, waiting);
  return measure(options, thread, waiting, segment, [&](const tools::BenchShape& shape) {
    return std::make_unique<LimitRunner>(options, shape, thread, board, barrier);
  });
}

}  // namespace
}  // namespace ropewalk::peers

int main(int argc, char** argv) {
  using namespace ropewalk::peers;
  try {
    const PeerOptions options = parse_options(argc, argv);
    if (options.ranks != kThreads || options.type != ropewalk::DataType::float32)
      throw std::invalid_argument("two ranks and float32 only");
    Segment segment(options.segment);
    Board board{};
    std::thread other([&] { run_thread(options, 1, board, segment); });  // before this one is bound
    const int64_t wrong = run_thread(options, 0, board, segment);
    other.join();
    return wrong == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shm_limit: %s\n", error.what());
    return 1;
  }
}
