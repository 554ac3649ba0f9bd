#include "transports/shm/region_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "memory/registered_memory.h"
#include "transports/shm/sharing.h"

namespace ropewalk::shm {
namespace {

struct Published {
  std::unique_ptr<RegionTable> table = std::make_unique<RegionTable>();  // zeroed, as a new file is
  MemfdSharing sharing;
  RegionPublisher publisher{*table, sharing};
  PeerRegions regions{*table, sharing, MailboxAddress{1, "shm", getpid(), -1, 0, {}}};
  RegionEntry& entry_of(uint64_t id) { return table->entries[id % kRegionsMax]; }
};

TEST(RegionTable, MapsWhatIsPublishedUntilItIsWithdrawn) {
  Published p;
  const RegisteredMemory memory(5000);
  const uint64_t id = p.publisher.publish(memory.region());
  memory.data()[4999] = std::byte{9};
  ASSERT_NE(p.regions.find(id, 4999, 1), nullptr);
  EXPECT_EQ(*p.regions.find(id, 4999, 1), std::byte{9});
  EXPECT_EQ(p.regions.find(id, 4999, 2), nullptr);
  EXPECT_NE(p.regions.why().find("5000 bytes"), std::string::npos) << p.regions.why();
  p.publisher.withdraw(id);
  p.regions.unmap_deregistered();
  EXPECT_EQ(p.regions.find(id, 0, 1), nullptr);
}

TEST(RegionTable, KnowsNoKeyThatWasNeverPublished) {
  Published p;
  const RegisteredMemory memory(4096);
  const uint64_t id = p.publisher.publish(memory.region());
  for (const uint64_t other : {uint64_t{0}, id + 1, id + kRegionsMax, ~uint64_t{0}})
    EXPECT_EQ(p.regions.find(other, 0, 0), nullptr) << other;
}

TEST(RegionTable, DoesNotMapAFileThatTookTheDescriptorsNumber) {
  Published p;
  const RegisteredMemory memory(4096), another(4096);
  const uint64_t id = p.publisher.publish(memory.region());
  // As after the owner's death.
  p.entry_of(id).share[0] = static_cast<uint64_t>(another.region().memfd);
  EXPECT_EQ(p.regions.find(id, 0, 1), nullptr);
  EXPECT_NE(p.regions.why().find("died"), std::string::npos) << p.regions.why();
}

TEST(RegionTable, DoesNotMapBeyondTheFile) {
  Published p;
  const RegisteredMemory memory(4096);
  const uint64_t id = p.publisher.publish(memory.region());
  p.entry_of(id).bytes = 8192;  // would be SIGBUS
  EXPECT_EQ(p.regions.find(id, 0, 1), nullptr);
}

/// Of the pages there, those that an access does not fault for.
size_t pages_present(const std::byte* at, size_t bytes) {
  const UniqueFd map(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  std::vector<uint64_t> entries(bytes / page_bytes());
  const auto first = static_cast<off_t>(reinterpret_cast<uintptr_t>(at) / page_bytes());
  const size_t wanted = entries.size() * sizeof(uint64_t);
  if (pread(map.get(), entries.data(), wanted, first * 8) != static_cast<ssize_t>(wanted)) return 0;
  return static_cast<size_t>(
      std::ranges::count_if(entries, [](uint64_t entry) { return (entry >> 63) != 0; }));
}

TEST(RegionTable, MakesPresentWhatIsAskedFor) {
  Published p;
  const size_t bytes = 64 * page_bytes();
  const RegisteredMemory memory(bytes);
  const uint64_t id = p.publisher.publish(memory.region());
  const std::byte* const base = p.regions.find(id, 0, 0);
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(pages_present(base, bytes), 0u);
  const size_t at = 20 * page_bytes(), wanted = 3 * page_bytes();
  ASSERT_EQ(p.regions.find(id, at, wanted), base + at);
  EXPECT_EQ(pages_present(base + at, wanted), 3u);
  EXPECT_LT(pages_present(base, bytes), 32u);
  ASSERT_NE(p.regions.find(id, 0, 1), nullptr);  // before, then behind
  ASSERT_NE(p.regions.find(id, bytes - 1, 1), nullptr);
  EXPECT_EQ(pages_present(base, bytes), 64u);
}

TEST(RegionTable, NamesEveryRegistrationAnew) {
  Published p;
  const RegisteredMemory memory(4096);
  const uint64_t first = p.publisher.publish(memory.region());
  p.publisher.withdraw(first);
  const uint64_t second = p.publisher.publish(memory.region());
  EXPECT_EQ(first % kRegionsMax, second % kRegionsMax);
  EXPECT_NE(first, second);
  EXPECT_EQ(p.regions.find(first, 0, 1), nullptr);
  EXPECT_NE(p.regions.find(second, 0, 1), nullptr);
}

}  // namespace
}  // namespace ropewalk::shm
