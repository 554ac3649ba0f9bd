#include "rank_info.h"

#include <gtest/gtest.h>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

TEST(RankInfo, IsReadAsWritten) {
  const RankInfo info{"auto", {0, 1, 2, 7}, "12;34"};
  EXPECT_EQ(info.text(), "auto;0-2,7;12;34");
  const RankInfo read = RankInfo::parse(info.text());
  EXPECT_EQ(read.transport, info.transport);
  EXPECT_EQ(read.cpus, info.cpus);
  EXPECT_EQ(read.mailbox, info.mailbox);
  EXPECT_EQ(RankInfo::parse("tcp;3;").mailbox, "");
}

TEST(RankInfo, NonsenseIsRefused) {
  for (const char* text : {"", "auto", "auto;0-1", "auto;x;y"})
    EXPECT_THROW(RankInfo::parse(text), Error) << text;
}

}  // namespace
}  // namespace ropewalk
