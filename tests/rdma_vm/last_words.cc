// last_words COMMAND: all-reduces until that fails, and prints the error with the time since the
// last call that succeeded. Rank 1 has COMMAND, a fault, carried out beside its calls.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "ropewalk/communicator.h"

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  if (argc != 2) return 2;
  std::jthread fault;
  auto last = Clock::now();
  int rank = -1;
  try {
    const auto comm = ropewalk::Communicator::create();
    rank = comm->rank();
    auto buffer = comm->allocate<float>(100'000);
    for (int call = 0;; ++call) {
      comm->all_reduce(buffer.span());
      last = Clock::now();
      if (call == 20 && rank == 1)
        fault = std::jthread([command = argv[1]] {
          if (std::system(command) != 0) std::puts("the fault failed");
        });
    }
  } catch (const ropewalk::Error& error) {
    const std::chrono::duration<double> after = Clock::now() - last;
    fmt::print("rank {} after {:.3f} s: {}\n", rank, after.count(), error.what());
  }
}
