#include "memory/lock_limit.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ropewalk {
namespace {

// Bit 14 of the first word. Kept away from this thread for as long as the object lives.
class WithoutIpcLock {
 public:
  WithoutIpcLock() {
    EXPECT_EQ(syscall(SYS_capget, &header_, before_), 0);
    __user_cap_data_struct less[2] = {before_[0], before_[1]};
    less[0].effective &= ~(1u << CAP_IPC_LOCK);
    EXPECT_EQ(syscall(SYS_capset, &header_, less), 0);
  }
  ~WithoutIpcLock() { EXPECT_EQ(syscall(SYS_capset, &header_, before_), 0); }

 private:
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2]{};
};

/// Past the sanitizers, which make mlock do nothing.
bool can_lock(const void* memory, size_t bytes) {
  if (syscall(SYS_mlock, memory, bytes) != 0) return false;
  syscall(SYS_munlock, memory, bytes);
  return true;
}

// One page more than the limit must be refused where there is one, and not where there is none.
TEST(LockLimit, IsWhatTheKernelGrants) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  rlimit low = before;
  low.rlim_cur = size_t{1} << 16;
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
  const size_t bytes = low.rlim_cur + 4096;
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(can_lock(memory, bytes), lock_limit().bytes == kUnlimited);
  {
    const WithoutIpcLock without;
    EXPECT_EQ(lock_limit().bytes, low.rlim_cur);
    EXPECT_FALSE(lock_limit().suffices());
    EXPECT_EQ(text_of(lock_limit()), "64 KiB can be locked");
    EXPECT_FALSE(can_lock(memory, bytes));
  }
  munmap(memory, bytes);
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

TEST(LockLimit, TheWayToRaiseItIsOneThatIsOpen) {
  EXPECT_EQ(advice({4096, kUnlimited}), "ulimit -l unlimited");
  EXPECT_EQ(advice({4096, kLockedBytesWanted}), "ulimit -l hard");
  EXPECT_NE(advice({4096, 8192}).find("limits.d"), std::string::npos);
  EXPECT_EQ(text_of({size_t{8} << 20, kUnlimited}), "8 MiB can be locked");
}

}  // namespace
}  // namespace ropewalk
