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

}  // namespace
}  // namespace ropewalk::bootstrap
