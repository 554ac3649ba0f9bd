// How fast messages go from one process to another through NCCL's network plugin, as NCCL moves
// them: each end keeps eight steps under way. nccl_bench [BYTES...] prints GB/s per size.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/nccl/pair.h"

namespace ropewalk::testing {
namespace {

constexpr size_t kSteps = 8;

/// As many messages as take about a second, at a first guess of 2 GB/s.
size_t messages_of(size_t bytes) {
  return std::clamp<size_t>(size_t{2'000'000'000} / bytes, 64, 200'000);
}

template <class Post>
void run_steps(Side& side, size_t count, Post post) {
  std::vector<void*> requests(kSteps);
  for (size_t i = 0; i < count + kSteps; ++i) {
    void*& request = requests[i % kSteps];
    if (i >= kSteps) side.net.wait(request);
    if (i < count) request = post(i % kSteps);
  }
}

void measure(size_t bytes, bool one_buffer) {
  const size_t count = messages_of(bytes), apart = one_buffer ? 0 : bytes;
  run_linked(
      12,
      [&](Side& side) {
        std::vector<char> data(kSteps * bytes, 'x');
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
        std::vector<char> data(kSteps * bytes, 'y');
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
  if (words.empty()) words = {"4096", "65536", "524288", "1048576", "4194304"};
  for (const std::string& word : words)
    ropewalk::testing::measure(std::strtoul(word.c_str(), nullptr, 10), one_buffer);
  return ::testing::Test::HasFailure() ? 1 : 0;
}
