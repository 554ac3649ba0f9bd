#include "transports/ucx/wires.h"

#include <gtest/gtest.h>

namespace ropewalk::ucx {
namespace {

TEST(Wires, SharedMemoryIsAllowedByNameFamilyOrOmission) {
  for (const char* wires : {"all", "shm", "tcp,posix,self", "rc,mm", "sysv", "^tcp", "^posix", "^"})
    EXPECT_TRUE(allows_shared_memory(wires)) << wires;
  for (const char* wires :
       {"tcp,self", "rc_verbs", "cma", "^shm", "^tcp,sm", "^posix,sysv", "xpmem", "posixish", ""})
    EXPECT_FALSE(allows_shared_memory(wires)) << wires;
}

TEST(Wires, TransportsAreAllowedByNameFamilyOrOmission) {
  for (const char* wires :
       {"all", "ib", "rc", "rc_x", "rc_mlx5", "\\rc_mlx5", "tcp,rc,self", "^tcp", "^ud,posix"})
    EXPECT_TRUE(allows_transport(wires, "rc_mlx5")) << wires;
  for (const char* wires :
       {"tcp,self", "rc_v", "ud", "^ib", "^rc_mlx5", "^rc,tcp", "rc_mlx5:aux", ""})
    EXPECT_FALSE(allows_transport(wires, "rc_mlx5")) << wires;
}

TEST(Wires, DevicesAreAllowedByName) {
  EXPECT_TRUE(allows_device("all", "mlx5_0:1"));
  EXPECT_TRUE(allows_device("eth0,mlx5_0:1", "mlx5_0:1"));
  EXPECT_FALSE(allows_device("mlx5_0:10,mlx5_1:1", "mlx5_0:1"));
  EXPECT_FALSE(allows_device("^mlx5_0:1", "mlx5_0:1"));
}

}  // namespace
}  // namespace ropewalk::ucx
