// How fast messages go from one process to another through NCCL's network plugin, as NCCL moves
// them: each end keeps eight steps under way. nccl_bench [BYTES...] prints GB/s per size.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/nccl/pair.h"

namespace ropewalk::testing {

size_t steps = 8;

namespace {

/// As many messages as take about a second, at a first guess of 2 GB/s.
size_t messages_of(size_t bytes) {
  return std::clamp<size_t>(size_t{2'000'000'000} / bytes, 64, 200'000);
}

template <class Post>
void run_steps(Side& side, size_t count, Post post) {
  std::vector<void*> requests(steps);
  for (size_t i = 0; i < count + steps; ++i) {
    void*& request = requests[i % steps];
    if (i >= steps) side.net.wait(request);
    if (i < count) request = post(i % steps);
  }
}

/// As `ropewalk bench` binds its ranks: each to a CPU of its own, where there are two.
void bind_to(size_t number) {
  cpu_set_t allowed, one;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (number-- == 0) break;
  }
  ::sched_setaffinity(0, sizeof one, &one);
}

void measure(size_t bytes, bool one_buffer) {
  const size_t count = messages_of(bytes), apart = one_buffer ? 0 : bytes;
  run_linked(
      12,
      [&](Side& side) {
        bind_to(0);
        std::vector<char> data(steps * bytes, 'x');
        void* const memory = side.net.register_now(side.comm, data.data(), data.size());
        const auto post = [&](size_t step) {
          return side.net.isend_now(side.comm, data.data() + step * apart, bytes, 0, memory);
        };
        run_steps(side, count / 8, post);
        side.meet();
        run_steps(side, count, post);
        side.meet();
      },
      [&](Side& side) {
        bind_to(1);
        std::vector<char> data(steps * bytes, 'y');
        void* const memory = side.net.register_now(side.comm, data.data(), data.size());
        const auto post = [&](size_t step) {
          return side.net.irecv_now(side.comm, data.data() + step * apart, bytes, 0, memory);
        };
        run_steps(side, count / 8, post);
        side.meet();
        const auto begun = std::chrono::steady_clock::now();
        run_steps(side, count, post);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
        std::printf("%12zu bytes %9zu messages %8.3f GB/s\n", bytes, count,
                    static_cast<double>(bytes * count) / took.count() / 1e9);
        side.meet();
      });
}

}  // namespace
}  // namespace ropewalk::testing

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool one_buffer = std::erase(words, "--one-buffer") > 0;
  std::erase_if(words, [](const std::string& word) {
    const bool is_steps = word.starts_with("--steps=");
    if (is_steps) ropewalk::testing::steps = std::strtoul(word.c_str() + 8, nullptr, 10);
    return is_steps;
  });
  if (words.empty()) words = {"4096", "65536", "524288", "1048576", "4194304"};
  for (const std::string& word : words)
    ropewalk::testing::measure(std::strtoul(word.c_str(), nullptr, 10), one_buffer);
  return ::testing::Test::HasFailure() ? 1 : 0;
}
