#include "bootstrap/socket_broker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "base/clock.h"

namespace ropewalk::bootstrap {
namespace {

constexpr int64_t kTimeoutNs = 1'000'000'000;

ConnectedSocket some_socket() {
  return {UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), {}};
}
bool is_readable(int fd) {
  pollfd p = {fd, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

TEST(SocketBroker, LowerThatDialsRefusesTheHigher) {
  SocketBroker lower(0, 2, kTimeoutNs);
  lower.request(1, 0);
  ASSERT_EQ(lower.to_dial().size(), 1u);
  EXPECT_EQ(lower.claim({1, 0}), HandshakeResult::yield);
  EXPECT_TRUE(lower.is_dialing({1, 0}));
}

TEST(SocketBroker, LowerThatDoesNotDialTakesTheHigherAndNeverDials) {
  SocketBroker lower(0, 2, kTimeoutNs);
  ASSERT_EQ(lower.claim({1, 0}), HandshakeResult::accepted);
  lower.request(1, 0);
  EXPECT_TRUE(lower.to_dial().empty());
  lower.deliver({1, 0}, some_socket());
  EXPECT_EQ(lower.claim({1, 0}), HandshakeResult::already);
}

TEST(SocketBroker, HigherAlwaysTakesTheLower) {
  SocketBroker higher(1, 2, kTimeoutNs);
  higher.request(0, 0);
  EXPECT_EQ(higher.claim({0, 0}), HandshakeResult::accepted);
  EXPECT_FALSE(higher.is_dialing({0, 0}));
  higher.request(0, 1);
  higher.yielded({0, 1});
  EXPECT_FALSE(higher.is_dialing({0, 1}));
  EXPECT_EQ(higher.claim({0, 1}), HandshakeResult::accepted);
}

TEST(SocketBroker, ALostArrivalCanBeDialedAgain) {
  SocketBroker lower(0, 2, kTimeoutNs);
  ASSERT_EQ(lower.claim({1, 0}), HandshakeResult::accepted);
  lower.lost({1, 0});
  EXPECT_EQ(lower.claim({1, 0}), HandshakeResult::accepted);
}

TEST(SocketBroker, TakeHandsOutOnceAndClearsTheEvent) {
  SocketBroker board(0, 3, kTimeoutNs);
  board.request(1, 0);
  board.request(1, 0);
  EXPECT_EQ(board.to_dial().size(), 1u) << "a repeated request is harmless";
  EXPECT_FALSE(board.take(1, 0));
  EXPECT_FALSE(is_readable(board.event_fd()));
  board.deliver({1, 0}, some_socket());
  EXPECT_TRUE(is_readable(board.event_fd()));
  const ConnectedSocket taken = board.take(1, 0);
  EXPECT_TRUE(taken);
  EXPECT_FALSE(is_readable(board.event_fd()));
  EXPECT_FALSE(board.take(1, 0));
  EXPECT_FALSE(board.take(2, 5)) << "never requested";
}

TEST(SocketBroker, UnfulfilledRequestsBecomeOverdue) {
  SocketBroker board(0, 3, kTimeoutNs);
  EXPECT_EQ(board.next_deadline().first, INT64_MAX);
  const int64_t before_ns = MonotonicClock().now_ns();
  board.request(2, 1);
  board.request(1, 0);
  EXPECT_GE(board.next_deadline().first, before_ns + kTimeoutNs);
  EXPECT_LE(board.next_deadline().first, MonotonicClock().now_ns() + kTimeoutNs);
  EXPECT_EQ(board.next_deadline().second, (SocketBroker::SocketId{2, 1}));
  board.deliver({2, 1}, some_socket());
  EXPECT_EQ(board.next_deadline().second, (SocketBroker::SocketId{1, 0}));
  board.deliver({1, 0}, some_socket());
  EXPECT_EQ(board.next_deadline().second.peer, -1);
}

TEST(SocketBroker, ImpossibleLinksAreRefused) {
  SocketBroker board(0, 2, kTimeoutNs);
  EXPECT_THROW(board.request(0, 0), Error);
  EXPECT_THROW(board.request(2, 0), Error);
  EXPECT_THROW(board.request(1, -1), Error);
  EXPECT_THROW(board.request(1, static_cast<int>(kStreamsMax)), Error);
}

TEST(SocketBroker, GivesStreamsTheNetworksInTurn) {
  SocketBroker board(0, 2, kTimeoutNs);
  EXPECT_EQ(board.network_of(1), "");
  board.use_networks({"10.77.0.0/16", "10.78.0.0/16"});
  EXPECT_EQ(board.network_of(0), "10.77.0.0/16");
  EXPECT_EQ(board.network_of(1), "10.78.0.0/16");
  EXPECT_EQ(board.network_of(2), "10.77.0.0/16");
}

}  // namespace
}  // namespace ropewalk::bootstrap
