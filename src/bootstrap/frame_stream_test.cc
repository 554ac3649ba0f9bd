#include "bootstrap/frame_stream.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {
namespace {

/// Two ends of a TCP connection of loopback, where a segment is with the other end when `send`
/// returns, and so is what the kernel answers at once.
class OverLoopback : public ::testing::Test {
 protected:
  OverLoopback() {
    auto [dialed, accepted] = connect_over_loopback();
    for (const int fd : {dialed.get(), accepted.get()}) tune_data_stream(fd);
    sender_.emplace(ConnectedSocket{std::move(dialed), {}});
    receiver_.emplace(ConnectedSocket{std::move(accepted), {}});
  }

  void say() {
    sender_->send(frame(FrameType::ready));
    sender_->flush();
  }
  size_t hear() {
    PollSet set;
    receiver_->prepare(set);
    set.wait(0);
    return receiver_->advance(set).size();
  }
  /// Until its kernel waits for an answer that could bring the acknowledgement: at first it does
  /// not.
  void say_until_it_is_not_acknowledged() {
    for (int i = 0; i < 1000; ++i) {
      say();
      ASSERT_EQ(hear(), 1u);
      if (!sender_->flushed()) return;
      receiver_->send(frame(FrameType::go));  // it looks like questions and answers
      receiver_->flush();
    }
    FAIL() << "this kernel acknowledges everything at once";
  }

  std::optional<FrameStream> sender_, receiver_;
};

// Once whoever went waited some 40 ms for the other end's delayed acknowledgement.
TEST_F(OverLoopback, LastWordsAreAcknowledgedAtOnce) {
  say_until_it_is_not_acknowledged();
  receiver_->acknowledge();
  EXPECT_TRUE(sender_->flushed());
}

}  // namespace
}  // namespace ropewalk::bootstrap
