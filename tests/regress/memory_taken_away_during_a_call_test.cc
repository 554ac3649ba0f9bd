// Memory that its owner freed, or unmapped, while a call used it was told as a broken connection
// ("Bad address") or with advice that did not help. The error says whose memory it was, in which
// call, and what to do; so does the one of a limit of address space.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <fstream>
#include <optional>

#include "tests/faults/forked_job.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

constexpr size_t kElements = 4 << 20;

/// Two ranks; every error must name `culprit` and hold each of `texts`.
void expect_told(const std::string& transport, int culprit, const std::vector<std::string>& texts,
                 const std::function<void(Communicator&)>& body) {
  Options options;
  options.size = 2;
  options.transport = transport;
  ForkedJob job(2, options, body);
  job.mark();
  for (const Verdict& verdict : job.verdicts(-1, 20)) {
    EXPECT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.peer, culprit) << verdict.text;
    for (const std::string& text : texts)
      EXPECT_NE(verdict.text.find(text), std::string::npos) << verdict.text;
  }
}

/// Rank 1 starts its part of a broadcast and unmaps its memory; rank 0 comes later.
void unmap_during_a_broadcast(Communicator& comm) {
  const size_t bytes = kElements * sizeof(float);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const std::span data(static_cast<float*>(memory), kElements);
  if (comm.rank() == 1) {
    Work work = comm.start(Call::broadcast(data, 1));
    munmap(memory, bytes);
    work.wait();
  } else {
    sleep_s(0.3);
    comm.broadcast(data, 1);
    comm.barrier();  // all may have been sent
  }
}

TEST(MemoryTakenAway, UnmappedWhileItIsSentOverTcp) {
  expect_told("tcp", 1, {"broadcast #", "unmapped or freed on this side", "keep every buffer"},
              unmap_during_a_broadcast);
}

/// Rank 0 reads the memory of rank 1, which only says where it lies.
TEST(MemoryTakenAway, FreedBeforeAPeerMapsIt) {
  expect_told("shm", 1,
              {"reduce #", "rank 1: its memory cannot be mapped: it has no region", "freed",
               "every buffer must live"},
              [](Communicator& comm) {
                std::optional<Buffer<float>> own(comm.allocate<float>(kElements));
                std::vector<float> sum(comm.rank() == 0 ? kElements : 0);
                if (comm.rank() == 0) sleep_s(0.3);
                Work work = comm.start(Call::reduce(own->span(), sum));
                if (comm.rank() == 1) own.reset();
                work.wait();
                comm.barrier();
              });
}

size_t virtual_bytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(MemoryTakenAway, LimitOfAddressSpaceIsTheRanksOwn) {
  expect_told("shm", 0, {"reduce #", "cannot map", "ulimit -v"}, [](Communicator& comm) {
    // Enough for its own, and not for the peer's.
    const size_t elements = comm.rank() == 0 ? 1 : 16 * kElements;
    Buffer<float> own = comm.allocate<float>(elements);
    std::vector<float> plain(comm.rank() == 0 ? 16 * kElements : 0), sum(plain.size());
    comm.barrier();
    if (comm.rank() == 0) {
      const rlim_t limit = virtual_bytes() + (size_t{32} << 20);
      const rlimit address_space{limit, limit};
      setrlimit(RLIMIT_AS, &address_space);
      comm.reduce(plain, sum);
    } else {
      comm.reduce(own, sum);
    }
    comm.barrier();
  });
}

}  // namespace
}  // namespace ropewalk::testing
