#include "bootstrap/dialer.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {
namespace {

using namespace std::chrono_literals;

/// A job whose rank 0 waits at `strange`, and `silent`, where nobody listens.
class Dialing : public testing::Test {
 protected:
  Dialing() : strange(local_address(job.listener.get())) {
    start_cryptography();
    auto any = *numeric_address("127.0.0.1:1");
    any.set_port(0);
    silent = local_address(listen_at(any).get());
    job.config.timeout = 1500ms;
    rank_0 = std::thread([this] { EXPECT_THROW(job.join(0), Error); });  // nobody joins it
  }
  ~Dialing() override { rank_0.join(); }

  /// Dials with another key until it is refused, at most for `limit`.
  static Dialer dialed(std::vector<SocketAddress> addresses, std::vector<size_t> names,
                       std::chrono::nanoseconds limit) {
    Hello hello;
    hello.from = 1;
    Dialer dialer(std::move(addresses), hello, job_key("another"), std::move(names));
    const MonotonicClock clock;
    const int64_t end_ns = clock.now_ns() + limit.count();
    while (dialer.state() == Dialer::State::working && clock.now_ns() < end_ns) {
      PollSet set;
      set.wake_at(end_ns);
      dialer.prepare(set);
      set.wait(clock.now_ns());
      dialer.advance(set, clock.now_ns());
    }
    return dialer;
  }

  TestJob job{2};
  SocketAddress strange, silent;
  std::thread rank_0;
};

TEST_F(Dialing, AStrangerAtOneOfTheAddressesOfANameIsRefused) {
  for (const auto& addresses : {std::vector{silent, strange}, std::vector{strange, silent}}) {
    const Dialer dialer = dialed(addresses, {}, 1s);
    EXPECT_EQ(dialer.state(), Dialer::State::refused);
    EXPECT_FALSE(dialer.found_job());
  }
}

TEST_F(Dialing, AStrangerAtOneOfSeveralNamesIsPassedOver) {
  const Dialer dialer = dialed({silent, strange, silent}, {0, 0, 1}, 500ms);
  EXPECT_EQ(dialer.state(), Dialer::State::working);
  EXPECT_EQ(dialer.other_job(), strange.text());
}

TEST_F(Dialing, StrangersAtAllOfSeveralNamesAreRefused) {
  const Dialer dialer = dialed({strange, silent, strange}, {0, 1, 1}, 1s);
  EXPECT_EQ(dialer.state(), Dialer::State::refused);
}

/// Dials a listener that replies and then says nothing, for an hour; whether it still waits.
bool waits_for_its_answer(Purpose purpose) {
  start_cryptography();
  auto any = *numeric_address("127.0.0.1:1");
  any.set_port(0);
  const UniqueFd listener = listen_at(any);
  Hello hello;
  hello.purpose = purpose;
  Dialer dialer({local_address(listener.get())}, hello, job_key("secret"));
  const int64_t now_ns = MonotonicClock().now_ns();
  PollSet set;
  const auto advance = [&] {
    set.clear();
    dialer.prepare(set);
    set.wait(now_ns);
    dialer.advance(set, now_ns);
  };
  dialer.advance(set, now_ns);
  const UniqueFd accepted(::accept(listener.get(), nullptr, nullptr));
  const Bytes reply = encode(Reply{kProtocolVersion, random_key_pair().public_key});
  EXPECT_EQ(::send(accepted.get(), reply.data(), reply.size(), 0),
            static_cast<ssize_t>(reply.size()));
  for (int turn = 0; turn < 3 && !dialer.awaits_answer(); ++turn) advance();
  EXPECT_TRUE(dialer.awaits_answer()) << dialer.why();
  set.clear();
  dialer.advance(set, now_ns + 3600 * 1000 * kMillisecond_ns);
  return dialer.awaits_answer();
}

// It gave up after 5 s, while the other end, which got no CPU for so long, took the connection for
// made, and the rank for dead when it closed.
TEST(DialerTest, WaitsForItsAnswerAsLongAsTheConnectionStands) {
  EXPECT_TRUE(waits_for_its_answer(Purpose::socket));
  EXPECT_TRUE(waits_for_its_answer(Purpose::tree));
  EXPECT_FALSE(waits_for_its_answer(Purpose::join)) << "there are other addresses";
}

}  // namespace
}  // namespace ropewalk::bootstrap
