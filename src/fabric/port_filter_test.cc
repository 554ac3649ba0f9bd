#include <gtest/gtest.h>

#include "fabric/select_ports.h"

namespace ropewalk::verbs {
namespace {

bool allows(const char* text, const char* device, uint8_t port = 1) {
  return PortFilter::parse(text).value().allows(device, port);
}
bool allows_device(const char* text, const char* device) {
  return PortFilter::parse(text).value().allows_device(device);
}

TEST(PortFilter, EmptyAllowsAll) {
  EXPECT_TRUE(allows("", "mlx5_0"));
  EXPECT_TRUE(allows_device("", "mlx5_0"));
}

TEST(PortFilter, NamesArePrefixes) {
  EXPECT_TRUE(allows("mlx5", "mlx5_0"));
  EXPECT_TRUE(allows("mlx5_1", "mlx5_10"));
  EXPECT_FALSE(allows("mlx5_1", "mlx5_2"));
  EXPECT_TRUE(allows("rxe,mlx5_2", "mlx5_2"));
}

TEST(PortFilter, ExactNames) {
  EXPECT_TRUE(allows("=mlx5_1", "mlx5_1"));
  EXPECT_FALSE(allows("=mlx5_1", "mlx5_10"));
  EXPECT_FALSE(allows("=mlx5", "mlx5_1"));
  EXPECT_TRUE(allows("=mlx5_1,mlx5_10", "mlx5_10"));
}

TEST(PortFilter, PortsOfDevices) {
  EXPECT_TRUE(allows("mlx5_0:2", "mlx5_0", 2));
  EXPECT_FALSE(allows("mlx5_0:2", "mlx5_0", 1));
  EXPECT_TRUE(allows_device("mlx5_0:2", "mlx5_0"));
  EXPECT_FALSE(allows_device("mlx5_0:2", "mlx5_1"));
}

TEST(PortFilter, Excluding) {
  EXPECT_FALSE(allows("^mlx5_3", "mlx5_3"));
  EXPECT_FALSE(allows("^mlx5_3", "mlx5_30"));
  EXPECT_TRUE(allows("^=mlx5_3", "mlx5_30"));
  EXPECT_TRUE(allows("^mlx5_3,mlx5_4", "mlx5_0"));
  EXPECT_FALSE(allows("^mlx5_3,mlx5_4", "mlx5_4"));
  EXPECT_FALSE(allows_device("^mlx5_3", "mlx5_3"));
  // Of a device of which one port is excluded another may be used.
  EXPECT_TRUE(allows_device("^mlx5_3:1", "mlx5_3"));
  EXPECT_FALSE(allows("^mlx5_3:1", "mlx5_3", 1));
  EXPECT_TRUE(allows("^mlx5_3:1", "mlx5_3", 2));
}

TEST(PortFilter, NonsenseIsRefused) {
  for (const char* text : {"^", "=", "=^mlx5", "^^mlx5", ",", "mlx5_0,", ",mlx5_0", "mlx5_0:",
                           "mlx5_0:0", "mlx5_0:256", "mlx5_0:1x", ":1", "mlx5 0", "a:1:2"})
    EXPECT_FALSE(PortFilter::parse(text)) << text;
}

}  // namespace
}  // namespace ropewalk::verbs
