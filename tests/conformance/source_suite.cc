// The memory that puts read.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tests/conformance/transport_suite.h"

namespace ropewalk::conformance {
namespace {

TEST_P(TransportSuite, TakesSourcesThatAreRegisteredOnly) {
  start(2);
  const Capabilities capabilities = at(0).capabilities();
  const size_t bytes = capabilities.inline_bytes_max + 1000;
  const Target source(bytes, at(0)), other(bytes, at(0)), target(bytes, at(1));
  fill(source.data(), bytes, 5);
  const auto put_with = [&](const MemoryRegistration* memory, size_t length) {
    return until_taken([&] {
      return at(0).put({.peer = 1,
                        .source = source.data(),
                        .source_memory = memory,
                        .bytes = length,
                        .key = target.key(),
                        .notice = 1});
    });
  };
  ASSERT_NE(put_with(nullptr, capabilities.inline_bytes_max), Posted::lost);
  ASSERT_NE(put_with(source.registration(), bytes), Posted::lost);
  ASSERT_TRUE(until([&] { return notices(1) == 2; }));
  ASSERT_TRUE(settle());
  EXPECT_EQ(wrong_bytes(target.data(), bytes, 5), 0u);
  for (const MemoryRegistration* memory :
       {static_cast<const MemoryRegistration*>(nullptr), other.registration()}) {
    if (!capabilities.registered_sources) {
      EXPECT_NE(put_with(memory, bytes), Posted::lost);
      continue;
    }
    EXPECT_EQ(put_with(memory, bytes), Posted::lost);
    EXPECT_FALSE(at(0).why_lost(1).text.empty());
  }
  if (capabilities.registered_sources) return;
  ASSERT_TRUE(settle());
}

TEST_P(TransportSuite, PutsFromAndToPlainMemory) {
  start(2);
  if (at(0).capabilities().needs_registration) return;
  constexpr size_t kBytes = 30'000, kSkip = 77;
  // A source may be memory that nobody can write.
  void* pages = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  auto* source = static_cast<std::byte*>(pages);
  fill(source, kBytes, 6);
  ASSERT_EQ(::mprotect(pages, kBytes, PROT_READ), 0);
  std::vector<std::byte> target(kBytes + 2 * kSkip);
  {
    const size_t bytes = kBytes - kSkip;
    const auto from = at(0).register_memory({source + kSkip, bytes, -1, 0, /*source_only=*/true});
    const auto to = at(1).register_memory({target.data() + kSkip, kBytes});
    EXPECT_LE(to->base(), target.data() + kSkip);
    EXPECT_TRUE(from->current() || at(0).capabilities().registered_sources);
    const auto offset = static_cast<uint64_t>(target.data() + kSkip - to->base());
    ASSERT_NE(until_taken([&] {
                return at(0).put({.peer = 1,
                                  .source = source + kSkip,
                                  .source_memory = from.get(),
                                  .bytes = bytes,
                                  .key = to->key(),
                                  .offset = offset,
                                  .notice = 1});
              }),
              Posted::lost);
    ASSERT_TRUE(until([&] { return notices(1) == 1; }));
    ASSERT_TRUE(settle());
    EXPECT_EQ(std::memcmp(target.data() + kSkip, source + kSkip, bytes), 0);
  }
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  EXPECT_TRUE(std::all_of(target.begin(), target.begin() + kSkip, is_zero));
  EXPECT_TRUE(std::all_of(target.end() - 2 * kSkip, target.end(), is_zero));
  ::munmap(pages, kBytes);
}

}  // namespace
}  // namespace ropewalk::conformance
