#include "transports/ucx/wires.h"

#include <gtest/gtest.h>

namespace ropewalk::ucx {
namespace {

TEST(Wires, SharedMemoryIsAllowedByNameFamilyOrOmission) {
  for (const char* wires :
       {"all", "shm", "tcp,posix,self", "rc,mm", "sysv", "^tcp", "^posix", "^posix,sysv", "^"})
    EXPECT_TRUE(allows_shared_memory(wires)) << wires;
  for (const char* wires :
       {"tcp,self", "rc_verbs", "cma", "^shm", "^tcp,sm", "^posix,sysv,xpmem", "posixish", ""})
    EXPECT_FALSE(allows_shared_memory(wires)) << wires;
}

}  // namespace
}  // namespace ropewalk::ucx
