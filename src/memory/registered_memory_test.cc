#include "memory/registered_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <exception>

#include "ropewalk/status.h"
#include "tests/support/sanitized.h"

namespace ropewalk {
namespace {

/// Lowers a soft limit for one scope.
class LowerLimit {
 public:
  LowerLimit(decltype(RLIMIT_AS) resource, rlim_t value) : resource_(resource) {
    getrlimit(resource, &old_);
    rlimit low = old_;
    low.rlim_cur = value;
    setrlimit(resource, &low);
  }
  ~LowerLimit() { setrlimit(resource_, &old_); }

 private:
  decltype(RLIMIT_AS) resource_;
  rlimit old_{};
};

/// The error is looked at after the limit has gone: sanitizers need descriptors for that.
Failure failure_of_allocating(size_t bytes, decltype(RLIMIT_AS) resource = RLIMIT_CORE,
                              rlim_t limit = 0) {
  std::exception_ptr thrown;
  try {
    const LowerLimit low(resource, limit);
    RegisteredMemory memory(bytes);
  } catch (...) {
    thrown = std::current_exception();
  }
  if (!thrown) return {};
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return error.failure();
  }
}

class RegisteredMemorySizes : public testing::TestWithParam<size_t> {};

TEST_P(RegisteredMemorySizes, IsAlignedZeroedWritableAndPresent) {
  const size_t bytes = GetParam();
  RegisteredMemory memory(bytes);
  EXPECT_EQ(memory.bytes(), bytes);
  ASSERT_NE(memory.data(), nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % page_bytes(), 0u);
  EXPECT_TRUE(std::all_of(memory.data(), memory.data() + bytes,
                          [](std::byte b) { return b == std::byte{0}; }));
  std::memset(memory.data(), 0x5a, bytes);

  const size_t pages = round_up(std::max<size_t>(bytes, 1), page_bytes()) / page_bytes();
  std::vector<unsigned char> present(pages);
  ASSERT_EQ(mincore(memory.data(), pages * page_bytes(), present.data()), 0);
  EXPECT_TRUE(std::all_of(present.begin(), present.end(), [](auto p) { return p & 1; }));
}

INSTANTIATE_TEST_SUITE_P(All, RegisteredMemorySizes,
                         testing::Values(0, 1, 4095, 4097, (2 << 20) - 1, 2 << 20, (5 << 20) + 3));

/// Not instrumented: a sanitizer's shadow memory faults too.
__attribute__((no_sanitize("address", "thread"))) void touch(volatile std::byte* data,
                                                             size_t bytes) {
  for (size_t i = 0; i < bytes; i += 512) data[i] = std::byte{1};
}

TEST(RegisteredMemory, DoesNotFaultWhenUsed) {
  RegisteredMemory memory(size_t{8} << 20);
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  touch(memory.data(), memory.bytes());
  getrusage(RUSAGE_THREAD, &after);
  EXPECT_LT(after.ru_minflt - before.ru_minflt, 20);  // of 2048 pages
}

TEST(RegisteredMemory, CanBeMappedThroughItsFile) {
  RegisteredMemory memory(10000);
  const Region region = memory.region();
  EXPECT_EQ(region.base, memory.data());
  EXPECT_EQ(region.bytes, 10000u);
  SharedMapping alias("test", region.memfd, region.memfd_offset, 3 * page_bytes());
  memory.data()[9999] = std::byte{7};
  EXPECT_EQ(alias.base()[9999], std::byte{7});
  EXPECT_NE(alias.base(), memory.data());
}

TEST(RegisteredMemory, SizeIsSealed) {
  RegisteredMemory memory(4096);
  EXPECT_NE(ftruncate(memory.region().memfd, 0), 0);
  EXPECT_NE(ftruncate(memory.region().memfd, 1 << 20), 0);
}

TEST(RegisteredMemory, BindsTheWholeRangeBeforeItsPagesExist) {
  static size_t bound_bytes;
  static bool was_present;
  RegisteredMemory memory(10000, {}, [](void* address, size_t bytes) {
    bound_bytes = bytes;
    unsigned char present = 0;
    mincore(address, 1, &present);
    was_present = present & 1;
    return true;
  });
  EXPECT_EQ(bound_bytes, round_up(10000, page_bytes()));
  EXPECT_FALSE(was_present);
}

TEST(RegisteredMemory, NamesTheLimitOfOpenFiles) {
  const Failure failure = failure_of_allocating(4096, RLIMIT_NOFILE, 3);
  EXPECT_EQ(failure.code, ErrorCode::exhausted);
  EXPECT_NE(failure.advice.find("ulimit -n"), std::string::npos) << failure.text();
}

TEST(RegisteredMemory, NamesTheLimitOfFileSizesInsteadOfDying) {
  const Failure failure = failure_of_allocating(8192, RLIMIT_FSIZE, 4096);
  EXPECT_EQ(failure.code, ErrorCode::exhausted);
  EXPECT_NE(failure.advice.find("ulimit -f"), std::string::npos) << failure.text();
}

TEST(RegisteredMemory, NamesTheLimitOfAddressSpace) {
  if (kIsSanitized) GTEST_SKIP() << "shadow memory takes terabytes of address space";
  const Failure failure = failure_of_allocating(size_t{8} << 30, RLIMIT_AS, size_t{4} << 30);
  EXPECT_EQ(failure.code, ErrorCode::exhausted);
  EXPECT_NE(failure.advice.find("ulimit -v"), std::string::npos) << failure.text();
}

TEST(RegisteredMemory, RefusesAnAbsurdSize) {
  EXPECT_EQ(failure_of_allocating(~size_t{0}).code, ErrorCode::exhausted);
}

TEST(RegisteredMemory, LeavesNoDescriptorBehind) {
  const auto lowest_free_fd = [] {
    const UniqueFd probe(dup(0));
    return probe.get();
  };
  const int before = lowest_free_fd();
  { RegisteredMemory memory(3 << 20); }
  failure_of_allocating(~size_t{0});
  EXPECT_EQ(lowest_free_fd(), before);
}

/// Counts registrations; the rest of a transport is not used here.
class CountingTransport final : public Transport {
 public:
  struct Registration final : MemoryRegistration {
    explicit Registration(int* live) : live(live) { ++*live; }
    ~Registration() override { --*live; }
    RemoteKey key() const override { return {1, 2}; }
    const std::byte* base() const override { return nullptr; }
    int* live;
  };
  Capabilities capabilities() const override { return {.name = "counting"}; }
  MappedMemory* mapped_memory() override { return nullptr; }
  std::unique_ptr<MemoryRegistration> register_memory(const Region& region) override {
    last = region;
    return std::make_unique<Registration>(&live);
  }
  void connect(int, std::span<const std::byte>) override {}
  std::optional<std::span<const std::byte>> hello_of(int) const override { return {}; }
  void find_wanted(std::vector<int>&) override {}
  Posted put(const PutRequest&) override { return Posted::lost; }
  void set_batching(bool) override {}
  bool has_unsent() override { return false; }
  size_t poll(std::span<Completion>) override { return 0; }
  bool arm() override { return true; }
  void drop(int) override {}
  void set_stopped(bool) override {}
  LossReason why_lost(int) const override { return {}; }

  int live = 0;
  Region last;
};

TEST(RegisteredMemory, OwnsItsRegistrations) {
  CountingTransport first, second;
  {
    RegisteredMemory memory(100);
    memory.register_with(first);
    memory.register_with(second);
    EXPECT_EQ(memory.registrations().size(), 2u);
    EXPECT_EQ(first.live + second.live, 2);
    EXPECT_EQ(second.last.base, memory.data());
    EXPECT_EQ(second.last.bytes, 100u);
  }
  EXPECT_EQ(first.live + second.live, 0);
}

}  // namespace
}  // namespace ropewalk
