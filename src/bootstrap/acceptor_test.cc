#include "bootstrap/acceptor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "bootstrap/dialer.h"
#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {
namespace {

/// A rank's acceptor and those who dial it, all in one thread.
class Crowd : public testing::Test {
 protected:
  static void SetUpTestSuite() { start_cryptography(); }
  Crowd() {
    auto any = *numeric_address("127.0.0.1:1");
    any.set_port(0);
    UniqueFd listener = listen_at(any);
    address_ = local_address(listener.get());
    acceptor_.emplace(std::move(listener), UniqueFd(), 0, key_);
  }
  void dial(uint32_t from) {
    Hello hello;
    hello.from = from;
    dialers_.push_back(std::make_unique<Dialer>(std::vector<SocketAddress>{address_}, hello, key_));
  }
  bool all_connected() const {
    return std::ranges::all_of(
        dialers_, [](const auto& dialer) { return dialer->state() == Dialer::State::connected; });
  }
  /// Until all are connected, for at most 20 s.
  void run() {
    const MonotonicClock clock;
    const int64_t end_ns = clock.now_ns() + 20'000 * kMillisecond_ns;
    while (!all_connected() && clock.now_ns() < end_ns) {
      PollSet set;
      set.wake_at(end_ns);
      acceptor_->prepare(set, clock.now_ns());
      for (auto& dialer : dialers_) dialer->prepare(set);
      set.wait(clock.now_ns());
      const int64_t now_ns = clock.now_ns();
      for (AuthenticatedSocket& incoming : acceptor_->advance(set, now_ns)) {
        EXPECT_TRUE(send_verdict(incoming, Verdict::accepted));
        accepted_.push_back(std::move(incoming));
      }
      for (auto& dialer : dialers_) dialer->advance(set, now_ns);
    }
    EXPECT_TRUE(all_connected());
  }

  const Key key_ = job_key("secret");
  SocketAddress address_;
  std::optional<Acceptor> acceptor_;
  std::vector<std::unique_ptr<Dialer>> dialers_;
  std::vector<AuthenticatedSocket> accepted_;
};

/// Once each that came closed the oldest, as soon as there were 256, and all began again.
TEST_F(Crowd, MoreThanTheLimitComeAtOnceAndNobodyIsSentAway) {
  for (uint32_t from = 1; from <= 400; ++from) dial(from);
  run();
  EXPECT_EQ(acceptor_->refused(), 0) << acceptor_->last_refused();
  for (const auto& dialer : dialers_) EXPECT_EQ(dialer->why(), "");
  EXPECT_EQ(accepted_.size(), dialers_.size());
}

TEST_F(Crowd, StrangersWhoSayNothingKeepNobodyOut) {
  std::vector<UniqueFd> strangers;
  for (size_t i = 0; i < Acceptor::kHalfOpenMax + 44; ++i)
    strangers.push_back(connect_to(address_.text()));
  dial(1);
  run();
  EXPECT_GE(acceptor_->refused(), 44);
}

}  // namespace
}  // namespace ropewalk::bootstrap
