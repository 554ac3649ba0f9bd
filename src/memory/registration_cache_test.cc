// The cache over a "card" that really holds pages: it reads them as a network card would, whatever
// has become of the addresses.
#include "memory/registration_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPagesMax = 16;  // of a pipe

std::atomic<int> pinned_now{0};

/// Holds pages in a pipe.
class PipedPages final : public PinnedPages {
 public:
  explicit PipedPages(const Region& pages) {
    ++pinned_now;
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(ErrorCode::exhausted, "test", "no pipe");
    read_end_ = UniqueFd(ends[0]);
    write_end_ = UniqueFd(ends[1]);
    if (!pages.source_only) prefault(pages.base, pages.bytes);  // as who writes does
    iovec all{pages.base, pages.bytes};
    bytes_ = pages.bytes;
    if (::vmsplice(write_end_.get(), &all, 1, SPLICE_F_NONBLOCK) !=
        static_cast<ssize_t>(pages.bytes))
      throw Error(ErrorCode::system, "test", std::string("vmsplice: ") + ::strerror(errno));
  }
  ~PipedPages() override { --pinned_now; }

  /// What is in the pages now.
  std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(bytes_);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return {};
    const UniqueFd out(ends[0]), in(ends[1]);
    if (::tee(read_end_.get(), in.get(), bytes_, 0) != static_cast<ssize_t>(bytes_)) return {};
    size_t got = 0;
    while (got < bytes_) {
      const ssize_t n = ::read(out.get(), bytes.data() + got, bytes_ - got);
      if (n <= 0) return {};
      got += static_cast<size_t>(n);
    }
    return bytes;
  }

 private:
  UniqueFd read_end_, write_end_;
  size_t bytes_ = 0;
};

std::unique_ptr<PinnedPages> pin(const Region& pages) {
  return std::make_unique<PipedPages>(pages);
}

/// True when the card sees what the CPU sees.
bool sees(const RegistrationCache::Use& use, const std::byte* address, size_t bytes) {
  const auto pages = static_cast<const PipedPages&>(use.pinned()).read();
  const auto offset = static_cast<size_t>(address - use.pages().base);
  return offset + bytes <= pages.size() && std::memcmp(pages.data() + offset, address, bytes) == 0;
}

Region region(std::byte* base, size_t bytes, bool source_only = false) {
  Region r;
  r.base = base;
  r.bytes = bytes;
  r.source_only = source_only;
  return r;
}

std::byte* map_pages(size_t pages, std::byte* at = nullptr) {
  void* address = ::mmap(at, pages * kPage, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0);
  std::memset(address, 1, pages * kPage);
  return static_cast<std::byte*>(address);
}

class CacheTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!UnmapWatch::of_process()->refusal().empty())
      GTEST_SKIP() << UnmapWatch::of_process()->refusal();
    pinned_now = 0;
  }
};

TEST_F(CacheTest, KeepsWhatIsNotInUse) {
  {
    RegistrationCache cache(pin);
    std::byte* memory = map_pages(4);
    const PinnedPages* first = nullptr;
    {
      const auto use = cache.acquire(region(memory + 5, 3 * kPage));
      EXPECT_EQ(use->pages().base, memory);
      EXPECT_EQ(use->pages().bytes, 4 * kPage);
      EXPECT_TRUE(use->current());
      first = &use->pinned();
    }
    EXPECT_EQ(pinned_now, 1);
    const auto whole = cache.acquire(region(memory, 4 * kPage));
    const auto part = cache.acquire(region(memory + kPage, 10));
    EXPECT_EQ(&whole->pinned(), first);
    EXPECT_EQ(&part->pinned(), first);
    EXPECT_EQ(cache.counts().hits, 2u);
    EXPECT_EQ(cache.counts().kept_bytes, 4 * kPage);
    memory[7] = std::byte{42};
    EXPECT_TRUE(sees(*part, memory, 4 * kPage));
    ::munmap(memory, 4 * kPage);
  }
  EXPECT_EQ(pinned_now, 0);
}

TEST_F(CacheTest, WhatPeersMayNotWriteServesSourcesOnly) {
  RegistrationCache cache(pin);
  std::byte* memory = map_pages(2);
  cache.acquire(region(memory, kPage, true));
  cache.acquire(region(memory, kPage, true));
  EXPECT_EQ(cache.counts().hits, 1u);
  cache.acquire(region(memory, kPage, false));
  EXPECT_EQ(cache.counts().misses, 2u);
  cache.acquire(region(memory, kPage, true));
  EXPECT_EQ(cache.counts().hits, 2u);
  ::munmap(memory, 2 * kPage);
}

using Change = void (*)(std::byte* memory);
/// What may happen to the third of eight pages; afterwards all are mapped at the same address.
constexpr std::pair<const char*, Change> kChanges[] = {
    {"munmap",
     [](std::byte* memory) {
       ::munmap(memory + 2 * kPage, kPage);
       map_pages(1, memory + 2 * kPage);
     }},
    {"mapped over", [](std::byte* memory) { map_pages(1, memory + 2 * kPage); }},
    {"mremap",
     [](std::byte* memory) {
       void* moved = ::mremap(memory + 2 * kPage, kPage, 2 * kPage, MREMAP_MAYMOVE);
       ::munmap(moved, 2 * kPage);
       map_pages(1, memory + 2 * kPage);
     }},
    {"mremap that leaves the addresses",
     [](std::byte* memory) {
       // The C library passes no fifth argument on, which the kernel looks at.
       const long moved = ::syscall(SYS_mremap, memory + 2 * kPage, kPage, kPage,
                                    MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
       ::munmap(reinterpret_cast<void*>(moved), kPage);
     }},
    {"mremap onto",
     [](std::byte* memory) {
       std::byte* other = map_pages(1);
       ::mremap(other, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, memory + 2 * kPage);
     }},
    {"dontneed", [](std::byte* memory) { ::madvise(memory + 2 * kPage, kPage, MADV_DONTNEED); }},
    {"free", [](std::byte* memory) { ::madvise(memory + 2 * kPage, kPage, MADV_FREE); }},
    {"another thread", [](std::byte* memory) {
       std::thread([memory] { map_pages(1, memory + 2 * kPage); }).join();
     }}};

TEST_F(CacheTest, ForgetsWhatIsUnmappedMovedOrDropped) {
  for (const auto& [name, change] : kChanges) {
    SCOPED_TRACE(name);
    pinned_now = 0;
    RegistrationCache cache(pin), second(pin);
    std::byte* memory = map_pages(8);
    std::byte* other = map_pages(1);
    auto use = cache.acquire(region(memory, 8 * kPage));
    const auto beside = cache.acquire(region(other, kPage));
    const auto elsewhere = second.acquire(region(memory + 2 * kPage, kPage));
    change(memory);
    EXPECT_FALSE(use->current());
    EXPECT_FALSE(elsewhere->current());
    EXPECT_TRUE(beside->current());
    EXPECT_EQ(pinned_now, 3) << "in use until let go";
    auto again = cache.acquire(region(memory + 2 * kPage, kPage));
    EXPECT_EQ(cache.counts().hits, 0u);
    EXPECT_TRUE(again->current());
    memory[2 * kPage] = std::byte{77};
    EXPECT_TRUE(sees(*again, memory + 2 * kPage, kPage));
    use.reset();
    EXPECT_EQ(pinned_now, 3) << "ended with its use";
    ::munmap(memory, 8 * kPage);
    ::munmap(other, kPage);
  }
}

TEST_F(CacheTest, ForgetsSharedMemoryThatIsPunched) {
  RegistrationCache cache(pin);
  const UniqueFd file = create_memfd("test", "test", 2 * kPage);
  SharedMapping memory("test", file.get(), 0, 2 * kPage);
  std::memset(memory.base(), 1, 2 * kPage);
  const auto use = cache.acquire(region(memory.base(), 2 * kPage));
  EXPECT_TRUE(use->current());
  ::madvise(memory.base(), kPage, MADV_REMOVE);
  EXPECT_FALSE(use->current());
}

TEST_F(CacheTest, WhatIsGoneEndsWithTheNextCall) {
  RegistrationCache cache(pin);
  std::byte* memory = map_pages(1);
  std::byte* other = map_pages(1);
  cache.acquire(region(memory, kPage));
  ::munmap(memory, kPage);
  EXPECT_EQ(pinned_now, 1);
  cache.acquire(region(other, kPage));
  EXPECT_EQ(pinned_now, 1);
  ::munmap(other, kPage);
}

TEST_F(CacheTest, EvictsTheLeastRecentlyUsed) {
  RegistrationCache cache(pin, {.registrations_max = 3, .bytes_max = 6 * kPage});
  std::byte* memory = map_pages(16);
  const auto page = [&](size_t i, size_t pages = 1) {
    return cache.acquire(region(memory + i * kPage, pages * kPage));
  };
  page(0);
  page(1);
  page(2);
  page(0);
  page(3);  // instead of 1
  EXPECT_EQ(cache.counts().kept, 3u);
  page(0);
  page(2);
  EXPECT_EQ(cache.counts().hits, 3u);
  const auto most = page(8, 5);  // with one of a page
  EXPECT_EQ(cache.counts().kept_bytes, 6 * kPage);
  {
    const auto too_much = page(4, 2);
    EXPECT_EQ(cache.counts().kept, 1u) << "tried to make room";
    EXPECT_FALSE(too_much->current()) << "not kept";
    EXPECT_EQ(pinned_now, 2);
  }
  EXPECT_EQ(pinned_now, 1);
  EXPECT_TRUE(most->current());
  ::munmap(memory, 16 * kPage);
}

TEST_F(CacheTest, GivesUpWhatIsIdleWhereTheMachineHasNoMore) {
  int limit = 3;
  RegistrationCache cache([&](const Region& pages) {
    if (pinned_now >= limit) throw Error(ErrorCode::exhausted, "test", "no more", "ulimit -l");
    return pin(pages);
  });
  std::byte* memory = map_pages(8);
  const auto page = [&](size_t i) { return cache.acquire(region(memory + i * kPage, kPage)); };
  const auto used = page(0);
  page(1);
  page(2);
  const auto another = page(3);
  EXPECT_EQ(pinned_now, 3);
  const auto third = page(4);
  EXPECT_THROW(page(5), Error);
  limit = 4;
  EXPECT_TRUE(page(5)->current());
  ::munmap(memory, 8 * kPage);
}

TEST_F(CacheTest, FilesAreNotKept) {
  // Not on tmpfs, whose files are memory.
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  void* mapped = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* memory = static_cast<std::byte*>(mapped);
  memory[0] = std::byte{1};
  RegistrationCache cache(pin);
  {
    const auto use = cache.acquire(region(memory, kPage));
    EXPECT_FALSE(use->current());
    EXPECT_TRUE(sees(*use, memory, kPage));
  }
  EXPECT_EQ(pinned_now, 0);
  ::munmap(mapped, kPage);
}

TEST_F(CacheTest, AChildUnmapsItsOwn) {
  RegistrationCache cache(pin);
  std::byte* memory = map_pages(1);
  const auto use = cache.acquire(region(memory, kPage));
  const pid_t child = ::fork();
  if (child == 0) {
    ::munmap(memory, kPage);
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(use->current());
  ::munmap(memory, kPage);
}

/// userfaultfd fails from now on, as in most containers.
bool forbid_userfaultfd() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(RegistrationCache, WithoutUserfaultfdNothingIsKept) {
  pinned_now = 0;
  const pid_t child = ::fork();
  if (child == 0) {
    if (!forbid_userfaultfd()) ::_exit(2);
    RegistrationCache cache(pin);
    std::byte* memory = map_pages(1);
    bool right = !cache.refusal().empty() && !cache.advice().empty();
    for (int i = 0; i < 2; ++i) {
      const auto use = cache.acquire(region(memory, kPage));
      right &= !use->current() && sees(*use, memory, kPage) && pinned_now == 1;
    }
    right &= pinned_now == 0;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

/// One thread's life: memory of every kind comes, is used through the cache, and goes.
class Churn {
 public:
  Churn(RegistrationCache& cache, uint32_t seed) : cache_(cache), random_(seed) {}

  void turn() {
    const size_t bytes = kPage + random_() % (kPagesMax - 2) * kPage;
    switch (random_() % 3) {
      case 0: {  // from the allocator, which gives back to the kernel when it likes
        const auto memory = std::make_unique<std::byte[]>(bytes);
        use(memory.get(), bytes);
        break;
      }
      case 1: {
        auto* memory = map_pages(bytes / kPage);
        use(memory, bytes);
        if (random_() % 2 == 0) ::madvise(memory, bytes, MADV_DONTNEED);
        use(memory, bytes);
        ::munmap(memory, bytes);
        break;
      }
      default: {
        auto* memory = map_pages(bytes / kPage);
        use(memory, bytes);
        void* grown = remap(memory, bytes, bytes + kPage);
        const bool moved = grown != MAP_FAILED;  // refused where a part of it is watched
        if (moved) memory = static_cast<std::byte*>(grown);
        use(memory, bytes);
        ::munmap(memory, bytes + (moved ? kPage : 0));
      }
    }
  }

  size_t uses() const { return uses_; }
  size_t wrong() const { return wrong_; }

 private:
  /// The kernel lets nobody have an address before it is left. ThreadSanitizer, which does not know
  /// this call, takes the one's writes and the other's for a race unless it is told of the order.
  static void* remap(std::byte* memory, size_t bytes, size_t new_bytes) {
    static std::atomic<int> moves{0};
    ++moves;
    void* moved = ::mremap(memory, bytes, new_bytes, MREMAP_MAYMOVE);
    ++moves;
    return moved;
  }

  void use(std::byte* memory, size_t bytes) {
    for (int i = 0; i < 2; ++i) {
      const auto value = static_cast<int>(random_());
      for (size_t at = 0; at < bytes; at += kPage) std::memset(memory + at, value, 16);
      const size_t begin = random_() % (bytes / kPage) * kPage;
      const auto use = cache_.acquire(region(memory + begin, bytes - begin));
      std::memset(memory + begin, value + 1, 16);
      ++uses_;
      wrong_ += !sees(*use, memory + begin, bytes - begin);
    }
  }

  RegistrationCache& cache_;
  std::minstd_rand random_;
  size_t uses_ = 0, wrong_ = 0;
};

TEST_F(CacheTest, NeverGivesWhatIsNoLongerThere) {
  constexpr int kThreads = 6;
  constexpr auto kDuration = std::chrono::seconds(2);
  size_t uses = 0, wrong = 0;
  {
    RegistrationCache cache(pin, {.registrations_max = 40, .bytes_max = 1 << 30});
    std::vector<Churn> churns;
    for (uint32_t seed = 1; seed <= kThreads; ++seed) churns.emplace_back(cache, seed);
    std::vector<std::thread> threads;
    const auto end = std::chrono::steady_clock::now() + kDuration;
    for (Churn& churn : churns)
      threads.emplace_back([&churn, end] {
        while (std::chrono::steady_clock::now() < end) churn.turn();
      });
    for (std::thread& thread : threads) thread.join();
    for (const Churn& churn : churns) {
      uses += churn.uses();
      wrong += churn.wrong();
    }
    EXPECT_GT(cache.counts().hits, 0u);
    RecordProperty("hits", static_cast<int>(cache.counts().hits));
    std::printf("%zu uses, %zu hits, %zu misses\n", uses, cache.counts().hits,
                cache.counts().misses);
  }
  EXPECT_GT(uses, 0u);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(pinned_now, 0);
}

}  // namespace
}  // namespace ropewalk
