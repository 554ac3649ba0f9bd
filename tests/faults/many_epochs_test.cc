// A job of very many epochs: what an epoch has held goes with it.
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "tests/faults/growing.h"
#include "tests/support/descriptors.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

/// Of this process.
struct Held {
  int descriptors = 0, threads = 0, mappings = 0;
  size_t heap_bytes = 0;

  static Held now() {
    // What an epoch has used goes a tenth of a second after its end.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    std::ifstream maps("/proc/self/maps");
    Held held;
    held.descriptors = open_descriptors();
    held.threads = static_cast<int>(std::distance(begin(tasks), end(tasks)));
    for (std::string line; std::getline(maps, line);) ++held.mappings;
    held.heap_bytes = ::mallinfo2().uordblks;
    return held;
  }
};

class EpochLimits : public Growing {};

TEST_P(EpochLimits, HundredsOfEpochsHoldWhatAFewDo) {
  constexpr int kWarmUp = 20, kRounds = 150;  // of two epochs each, one of which joins anew
  std::future<void> newcomer;
  Held few, many;
  run_members(2, [&](Communicator& first) {
    const bool is_first = first.rank() == 0;
    std::unique_ptr<Communicator> later;
    Communicator* comm = &first;
    for (int round = 0; round <= kRounds; ++round) {
      if (is_first && round == kWarmUp) few = Held::now();
      if (is_first && round == kRounds) many = Held::now();
      if (round == kRounds) break;
      if (is_first)
        newcomer = start_newcomer([](Communicator& late) {
          expect_sum_of_ranks(late, 10'000);
          late.agree(0);  // all have that
          late.depart();
        });
      const auto grown = grow_by(*comm, 1);
      ASSERT_EQ(grown->epoch().number, 2 * round + 1);
      expect_sum_of_ranks(*grown, 10'000);
      grown->agree(0);
      later = grown->shrink();
      comm = later.get();
      expect_sum_of_ranks(*comm, 10'000);
      if (is_first) newcomer.get();
    }
    comm->barrier();
  });
  printf(
      "epoch %d: %d descriptors, %d threads, %d mappings, %zu bytes of heap; epoch %d: %d, %d, %d, "
      "%zu\n",
      2 * kWarmUp, few.descriptors, few.threads, few.mappings, few.heap_bytes, 2 * kRounds,
      many.descriptors, many.threads, many.mappings, many.heap_bytes);
  EXPECT_LE(many.descriptors, few.descriptors + 5);
  EXPECT_LE(many.threads, few.threads + 2);
  EXPECT_LE(many.mappings, few.mappings + 20);
  EXPECT_LE(many.heap_bytes, few.heap_bytes + (128 << 10));
}

INSTANTIATE_TEST_SUITE_P(Transports, EpochLimits, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing
