// last_words COMMAND [CALLS]: all-reduces until that fails, and prints the error with the time
// since the last call that succeeded; or until so many calls gave what they should. Rank 1 has
// COMMAND, a fault, carried out beside its calls.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "ropewalk/communicator.h"

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  if (argc != 2 && argc != 3) return 2;
  const int calls = argc == 3 ? std::atoi(argv[2]) : INT_MAX;
  std::jthread fault;
  auto last = Clock::now();
  int rank = -1;
  try {
    const auto comm = ropewalk::Communicator::create();
    rank = comm->rank();
    auto buffer = comm->allocate<float>(100'000);
    for (int call = 0; call < calls; ++call) {
      std::ranges::fill(buffer.span(), 1.0f);
      comm->all_reduce(buffer.span());
      if (std::ranges::count(buffer.span(), 2.0f) != 100'000) std::puts("a sum is wrong");
      last = Clock::now();
      if (call == 20 && rank == 1) {
        fault = std::jthread([command = argv[1]] {
          if (std::system(command) != 0) std::puts("the fault failed");
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      }
    }
    fmt::print("rank {} has made {} calls\n", rank, calls);
  } catch (const ropewalk::Error& error) {
    const std::chrono::duration<double> after = Clock::now() - last;
    fmt::print("rank {} after {:.3f} s: {}\n", rank, after.count(), error.what());
  }
}
