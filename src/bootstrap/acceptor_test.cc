#include "bootstrap/acceptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/descriptors.h"
#include "bootstrap/dialer.h"
#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {
namespace {

/// Rank 0's acceptor and those who dial it, all in one thread.
class Crowd : public testing::Test {
 protected:
  static void SetUpTestSuite() { start_cryptography(); }
  Crowd() {
    auto any = *numeric_address("127.0.0.1:1");
    any.set_port(0);
    std::vector<UniqueFd> own(1), coordinator(1);
    own[0] = listen_at(any);
    coordinator[0] = listen_at(any);
    own_ = local_address(own[0].get());
    coordinator_ = local_address(coordinator[0].get());
    acceptor_.emplace(std::move(own), std::move(coordinator), 0, key_);
  }
  void dial(uint32_t from) {
    Hello hello;
    hello.from = from;
    dialers_.push_back(
        std::make_unique<Dialer>(std::vector<SocketAddress>{coordinator_}, hello, key_));
  }
  bool all_connected() const {
    return std::ranges::all_of(
        dialers_, [](const auto& dialer) { return dialer->state() == Dialer::State::connected; });
  }
  /// Until `is_done`, for at most 20,000 rounds; `meanwhile` goes on in each. A round counts as a
  /// millisecond, so that no pause of this machine makes anybody slow.
  void run(const std::function<void()>& meanwhile, const std::function<bool()>& is_done) {
    int64_t now_ns = MonotonicClock().now_ns();
    for (int round = 0; round < 20'000 && !is_done(); ++round) {
      meanwhile();
      PollSet set;
      set.wake_at(now_ns + kMillisecond_ns);
      acceptor_->prepare(set, now_ns);
      for (auto& dialer : dialers_) dialer->prepare(set);
      set.wait(now_ns);
      now_ns += kMillisecond_ns;
      for (AuthenticatedSocket& incoming : acceptor_->advance(set, now_ns)) {
        EXPECT_TRUE(send_result(incoming, HandshakeResult::accepted));
        accepted_.push_back(std::move(incoming));
      }
      for (auto& dialer : dialers_) dialer->advance(set, now_ns);
    }
    EXPECT_TRUE(is_done());
  }
  void run(const std::function<void()>& meanwhile = [] {}) {
    run(meanwhile, [this] { return all_connected(); });
  }

  const Key key_ = job_key("secret");
  SocketAddress own_, coordinator_;
  std::optional<Acceptor> acceptor_;
  std::vector<std::unique_ptr<Dialer>> dialers_;
  std::vector<AuthenticatedSocket> accepted_;
};

/// Once each that came closed the oldest, as soon as there were 256, and all began again.
TEST_F(Crowd, MoreThanTheLimitComeAtOnceAndAllGetIn) {
  for (uint32_t from = 1; from <= 400; ++from) dial(from);
  run();
  EXPECT_EQ(accepted_.size(), dialers_.size());
  EXPECT_LT(acceptor_->refused(), 40) << "few are closed and come again, if they are slow";
}

/// They come back as soon as they are sent away.
void come_back(std::vector<UniqueFd>& strangers, const SocketAddress& address) {
  for (UniqueFd& stranger : strangers) {
    pollfd p = {stranger.get(), POLLIN, 0};  // closed
    if (!stranger || poll(&p, 1, 0) == 1) begin_connect(address, stranger);
  }
}

TEST_F(Crowd, StrangersWhoSayNothingAndComeBackKeepNobodyOut) {
  std::vector<UniqueFd> strangers(Acceptor::kHalfOpenMax + 44);
  dial(1);
  run([&] { come_back(strangers, coordinator_); });
  EXPECT_EQ(accepted_.size(), 1u);
}

/// The two listeners share nothing but the thread.
TEST_F(Crowd, StrangersAtOnePortKeepNobodyOutOfTheOther) {
  std::vector<UniqueFd> strangers(Acceptor::kHalfOpenMax + 44);
  for (uint32_t from = 1; from <= 20; ++from) dial(from);
  run([&] { come_back(strangers, own_); });
  for (const auto& dialer : dialers_) EXPECT_EQ(dialer->why(), "");
}

/// As it is until the end of the scope.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    errno_text(EMFILE);  // sanitizers need a descriptor when they first see an object's type
    const int next = fcntl(0, F_DUPFD_CLOEXEC, 0);
    ::close(next);
    const rlimit low = {static_cast<rlim_t>(next), found_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &found_); }

 private:
  const rlimit found_ = descriptor_limits();
};

// Once nobody heard of it but by the timeout, and a warning came twenty times a second.
TEST_F(Crowd, ARankForWhichThereIsNoDescriptorIsTold) {
  dial(1);
  dialers_[0]->advance({}, MonotonicClock().now_ns());  // has its own
  {
    const NoMoreDescriptors none;
    run([] {}, [this] { return acceptor_->exhausted_since_ns() != 0; });
    EXPECT_TRUE(accepted_.empty());
  }
  run();  // it comes again
  EXPECT_EQ(accepted_.size(), 1u);
  EXPECT_EQ(acceptor_->exhausted_since_ns(), 0);
}

TEST_F(Crowd, WhoHasNoDescriptorToDialWithSaysSo) {
  dial(1);
  {
    const NoMoreDescriptors none;
    dialers_[0]->advance({}, MonotonicClock().now_ns());
    EXPECT_NE(dialers_[0]->exhausted_since_ns(), 0);
  }
  run();
  EXPECT_EQ(dialers_[0]->exhausted_since_ns(), 0);
}

TEST_F(Crowd, AStrangerForWhomThereIsNoDescriptorEndsNothing) {
  const UniqueFd stranger = connect_to(coordinator_.text());
  {
    const NoMoreDescriptors none;
    PollSet set;
    const int64_t now_ns = MonotonicClock().now_ns();
    acceptor_->prepare(set, now_ns);
    set.wait(now_ns);
    EXPECT_TRUE(acceptor_->advance(set, now_ns).empty());
    ::shutdown(stranger.get(), SHUT_RDWR);
  }
  dial(1);
  run();
  EXPECT_EQ(acceptor_->exhausted_since_ns(), 0);
}

TEST_F(Crowd, EachPortHasItsPurpose) {
  Hello hello;
  hello.from = 1;
  hello.public_key = random_key_pair().public_key;
  const Bytes join = encode(hello);
  hello.purpose = Purpose::socket;
  const Bytes socket = encode(hello);
  const UniqueFd at_own = connect_to(own_.text()), at_coordinator = connect_to(coordinator_.text());
  acceptor_->set_session_key(key_);
  ::send(at_own.get(), join.data(), join.size(), MSG_NOSIGNAL);
  ::send(at_coordinator.get(), socket.data(), socket.size(), MSG_NOSIGNAL);
  dial(1);
  run();
  EXPECT_EQ(acceptor_->refused(), 2) << acceptor_->last_refused();
}

}  // namespace
}  // namespace ropewalk::bootstrap
