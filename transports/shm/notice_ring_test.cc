#include "transports/shm/notice_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>

namespace ropewalk::shm {
namespace {

struct RingPair {
  std::unique_ptr<NoticeRing> ring = std::make_unique<NoticeRing>();  // zeroed, as a new file is
  NoticeSender sender{*ring};
  NoticeReceiver receiver{*ring};
};

TEST(NoticeRing, ZeroedMemoryIsEmpty) {
  RingPair pair;
  std::array<Completion, 4> into;
  EXPECT_FALSE(pair.receiver.ready());
  EXPECT_EQ(pair.receiver.take(into, 0), 0u);
  EXPECT_FALSE(pair.sender.full());
}

TEST(NoticeRing, CarriesExtremeValues) {
  RingPair pair;
  pair.sender.send(0xffffffff);
  pair.sender.send(0);
  std::array<Completion, 4> into;
  EXPECT_TRUE(pair.receiver.ready());
  ASSERT_EQ(pair.receiver.take(into, 3), 2u);
  EXPECT_EQ(into[0].notice, 0xffffffffu);
  EXPECT_EQ(into[0].peer, 3);
  EXPECT_EQ(into[1].notice, 0u);
  EXPECT_FALSE(pair.receiver.ready());
}

TEST(NoticeRing, IsFullAfterExactlyItsSizeOnEveryLap) {
  RingPair pair;
  std::array<Completion, 100> into;
  uint32_t sent = 0, taken = 0;
  for (int lap = 0; lap < 5; ++lap) {
    while (!pair.sender.full()) pair.sender.send(sent++);
    EXPECT_EQ(sent - taken, kNoticesMax);
    for (int batch = 0; batch < 1 + lap; ++batch) {
      ASSERT_EQ(pair.receiver.take(into, 0), into.size());
      for (const Completion& c : into) ASSERT_EQ(c.notice, taken++);
    }
  }
  while (const size_t filled = pair.receiver.take(into, 0))
    for (size_t i = 0; i < filled; ++i) ASSERT_EQ(into[i].notice, taken++);
  EXPECT_EQ(taken, sent);
  EXPECT_FALSE(pair.receiver.ready());
}

TEST(NoticeRing, PassesPlainWritesFromThreadToThread) {
  RingPair pair;
  constexpr uint32_t kNotices = 100'000;
  std::vector<uint32_t> payload(kNotices);
  std::thread sender([&] {
    for (uint32_t i = 0; i < kNotices; ++i) {
      payload[i] = i * 3;
      while (pair.sender.full()) std::this_thread::yield();
      pair.sender.send(i);
    }
  });
  std::array<Completion, 64> into;
  uint32_t next = 0, wrong = 0;
  while (next < kNotices) {
    const size_t filled = pair.receiver.take(into, 0);
    if (filled == 0) std::this_thread::yield();
    for (size_t i = 0; i < filled; ++i, ++next)
      wrong += into[i].notice != next || payload[next] != next * 3;
  }
  sender.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace ropewalk::shm
