#include "transports/ucx/inbox.h"

#include <gtest/gtest.h>

#include "transports/ucx/message.h"

namespace ropewalk::ucx {
namespace {

TEST(Inbox, GivesNoticesInOrderWhateverArrivesFirst) {
  Inbox inbox;
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(inbox.begin(i, 10 + i));
  inbox.arrived(2);
  inbox.arrived(1);
  EXPECT_FALSE(inbox.ready());
  inbox.arrived(0);
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(inbox.ready());
    EXPECT_EQ(inbox.take(), 10 + i);
  }
  EXPECT_FALSE(inbox.ready());
  EXPECT_EQ(inbox.taken(), 3u);
}

TEST(Inbox, RefusesWhatWasSentTwiceOrLiesBeyondItsWindow) {
  Inbox inbox;
  ASSERT_TRUE(inbox.begin(0, 1));
  EXPECT_FALSE(inbox.begin(0, 1));
  inbox.arrived(0);
  EXPECT_FALSE(inbox.begin(0, 1));
  EXPECT_FALSE(inbox.begin(Inbox::kWindow, 1));
  EXPECT_TRUE(inbox.begin(Inbox::kWindow - 1, 1));
  inbox.take();
  EXPECT_FALSE(inbox.begin(0, 1)) << "taken already";
  EXPECT_TRUE(inbox.begin(Inbox::kWindow, 1));
}

TEST(Inbox, PassesOnlyWhatIsNext) {
  Inbox inbox;
  EXPECT_TRUE(inbox.pass(0));
  EXPECT_FALSE(inbox.pass(0)) << "sent twice";
  EXPECT_FALSE(inbox.pass(2));
  ASSERT_TRUE(inbox.begin(2, 12));
  inbox.arrived(2);
  EXPECT_FALSE(inbox.ready());
  EXPECT_TRUE(inbox.pass(1));
  EXPECT_TRUE(inbox.ready());
  EXPECT_FALSE(inbox.pass(2)) << "it is here already";
  EXPECT_EQ(inbox.take(), 12u);
  EXPECT_EQ(inbox.taken(), 3u);
}

TEST(Inbox, CountsOnAfterManyWindows) {
  Inbox inbox;
  for (uint32_t i = 0; i < 10 * Inbox::kWindow + 7; ++i) {
    ASSERT_TRUE(inbox.begin(i, i));
    inbox.arrived(i);
    ASSERT_EQ(inbox.take(), i);
  }
}

TEST(Widen, FindsTheCountNearTheOneThatIsKnown) {
  for (const uint32_t known : {0u, 5u, 65'500u, 65'536u, 1'000'000u, 0xfffffff0u})
    for (const uint32_t ahead : {0u, 1u, 200u})
      EXPECT_EQ(widen(static_cast<uint16_t>(known + ahead), known), known + ahead);
}

}  // namespace
}  // namespace ropewalk::ucx
