// Planned calls on registered memory over verbs copy nothing: the adapter reads the caller's
// buffer, or a window of slots that the reduction reads, and writes the peers' final buffers.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <vector>

#include "tests/local_world.h"

namespace {

// Short messages travel in slots, which are filled by copying; slices are longer.
constexpr size_t kShort = 5000;
std::atomic<size_t> copied_bytes{0};  // by copies longer than that

void copy_forward(void* to, const void* from, size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

}  // namespace

// In the place of the C library's, for the whole program.
extern "C" void* memcpy(void* to, const void* from, size_t bytes) {
  if (bytes > kShort) copied_bytes += bytes;
  copy_forward(to, from, bytes);
  return to;
}

extern "C" void* memmove(void* to, const void* from, size_t bytes) {
  if (bytes > kShort) copied_bytes += bytes;
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  if (target <= source || target >= source + bytes)
    copy_forward(to, from, bytes);
  else
    for (size_t i = bytes; i-- > 0;) {
      target[i] = source[i];
      asm volatile("" ::: "memory");  // or the loop becomes a call of memmove
    }
  return to;
}

namespace ropewalk::testing {
namespace {

TEST(VerbsCopies, AreCounted) {
  std::vector<char> a(100'000, 1), b(100'000);
  const size_t before = copied_bytes;
  volatile size_t bytes = a.size();
  std::memcpy(b.data(), a.data(), bytes);
  EXPECT_EQ(copied_bytes - before, 100'000u);
  EXPECT_EQ(a, b);
}

size_t copied_by(Communicator& comm, const Call& call) {
  Plan plan = comm.plan(call);
  plan.run();  // the first may link, which allocates and greets
  comm.barrier();
  const size_t before = copied_bytes;
  comm.barrier();
  for (int i = 0; i < 3; ++i) plan.run();
  comm.barrier();
  return copied_bytes - before;
}

TEST(VerbsCopies, PlannedCallsOnRegisteredMemoryMakeNone) {
  constexpr size_t kCount = 300'000;
  for (const int ranks : {2, 3}) {
    run_ranks(ranks, "verbs", [ranks](Communicator& comm) {
      auto in = comm.allocate<float>(kCount);
      auto out = comm.allocate<float>(kCount * static_cast<size_t>(ranks));
      Call all_reduce;
      all_reduce.in = all_reduce.out = in.data();
      all_reduce.count = kCount;
      EXPECT_EQ(copied_by(comm, all_reduce), 0u) << ranks << " ranks";
      Call broadcast = all_reduce;
      broadcast.collective = Collective::broadcast;
      EXPECT_EQ(copied_by(comm, broadcast), 0u) << ranks << " ranks";
      Call all_gather = all_reduce;
      all_gather.collective = Collective::all_gather;
      all_gather.in = out.data() + static_cast<size_t>(comm.rank()) * kCount;  // in place
      all_gather.out = out.data();
      EXPECT_EQ(copied_by(comm, all_gather), 0u) << ranks << " ranks";
    });
  }
}

}  // namespace
}  // namespace ropewalk::testing
