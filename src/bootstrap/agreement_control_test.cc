#include "bootstrap/agreement_control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/clock.h"

namespace ropewalk::bootstrap {
namespace {

std::pair<ConnectedSocket, ConnectedSocket> connected_pair() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  return {ConnectedSocket{UniqueFd(ends[0]), {}}, ConnectedSocket{UniqueFd(ends[1]), {}}};
}

/// Both ranks may dial, or one again before the other notices that a connection was cut.
TEST(AgreementControl, APeerIsReachedAsLongAsOneOfItsConnectionsIs) {
  AgreementControl control([](int) { return nullptr; }, std::chrono::seconds(1));
  control.begin({.rank = 0,
                 .members = {0, 1},
                 .contribution = {0, 1, ""},
                 .suspects = {},
                 .begun_ns = 0,
                 .patient_until_ns = 4000 * kMillisecond_ns},
                8000 * kMillisecond_ns);
  auto [first, first_peer] = connected_pair();
  auto [second, second_peer] = connected_pair();
  control.hear(1, std::move(first));
  control.hear(1, std::move(second));
  const auto turn = [](auto& owner, auto advance) {
    PollSet set;
    owner.prepare(set);
    set.wake_at(0);
    set.wait(0);
    return advance(set);
  };
  turn(control, [&](PollSet& set) { control.advance(set, 0); });
  const std::array<char, 25> forged = {21};  // a record that does not open
  ASSERT_EQ(write(first_peer.fd.get(), forged.data(), forged.size()), ssize_t{25});
  turn(control, [&](PollSet& set) { control.advance(set, 1); });

  FrameStream peer(std::move(second_peer));
  const auto hear = [&](PollSet& set) { return peer.advance(set); };
  turn(peer, hear);
  constexpr int64_t kLater_ns = 300 * kMillisecond_ns;  // it has said it again
  turn(control, [&](PollSet& set) { control.advance(set, kLater_ns); });
  const std::vector<Frame> frames = turn(peer, hear);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(decode<AgreementMessage>(frames[0].payload)->kind, AgreementMessage::Kind::prepare);
  EXPECT_TRUE(control.ended().empty());
}

}  // namespace
}  // namespace ropewalk::bootstrap
