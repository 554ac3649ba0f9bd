#include "bootstrap/net.h"

#include <gtest/gtest.h>

namespace ropewalk::bootstrap {
namespace {

TEST(NodeList, FirstHost) {
  EXPECT_EQ(first_host("login1"), "login1");
  EXPECT_EQ(first_host("a,b,c"), "a");
  EXPECT_EQ(first_host("node[01-03,07],login1"), "node01");
  EXPECT_EQ(first_host("node[7]"), "node7");
  EXPECT_EQ(first_host("rack[1-2]n[01-16].site"), "rack1n01.site");
}

TEST(NodeList, NoList) {
  for (const char* bad :
       {"", ",a", "node[", "node[]", "node[a-b]", "node[-3]", "a b", "a]b", "a/b"})
    EXPECT_FALSE(first_host(bad)) << bad;
  EXPECT_FALSE(first_host(std::string(300, 'a')));
  EXPECT_FALSE(first_host("a," + std::string(kNodeListBytesMax, 'b')));
}

}  // namespace
}  // namespace ropewalk::bootstrap
