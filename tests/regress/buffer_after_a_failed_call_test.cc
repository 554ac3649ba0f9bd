// A call failed, its caller used its buffer for something else, and peers' adapters, which did not
// know, went on writing to it: memory that had been freed meanwhile was overwritten.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

class BufferAfterAFailedCall : public ::testing::TestWithParam<std::string> {};

TEST_P(BufferAfterAFailedCall, IsTheCallersAlone) {
  static constexpr size_t kPart = 2'000'000, kEnd = 200'000;  // of each part, the end comes last
  static constexpr int kPattern = 0x5a5a5a5a;
  for (int odd = 0; odd < 3; ++odd)
    run_ranks(
        3, GetParam(),
        [odd](Communicator& comm) {
          std::vector<int> in(3 * kPart), out(3 * kPart);
          try {
            comm.barrier();  // which one that is late may leave by the failure
            if (comm.rank() == odd) {
              // The others are under way.
              std::this_thread::sleep_for(std::chrono::milliseconds(20));
              comm.broadcast(std::span(in.data(), 2));
            } else {
              comm.all_to_all(std::span<const int>(in), std::span(out));
            }
            comm.barrier();
            FAIL() << "nothing was wrong with the calls";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
          }
          const auto end_of = [&out](size_t part) {
            return std::span(out).subspan((part + 1) * kPart - kEnd, kEnd);
          };
          for (size_t part = 0; part < 3; ++part) std::ranges::fill(end_of(part), kPattern);
          std::this_thread::sleep_for(std::chrono::milliseconds(500));
          for (size_t part = 0; part < 3; ++part)
            EXPECT_EQ(static_cast<size_t>(std::ranges::count(end_of(part), kPattern)), kEnd)
                << "from rank " << part;
        },
        [](int, Options& options) { options.timeout = std::chrono::seconds(10); });
}

INSTANTIATE_TEST_SUITE_P(Transports, BufferAfterAFailedCall,
                         ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing
