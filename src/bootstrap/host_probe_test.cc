#include "bootstrap/host_probe.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace ropewalk::bootstrap {
namespace {

/// A group's: no stream leads there.
constexpr const char* kNowhere = "224.0.0.1:9";

PeerRecord record(int rank, const std::string& host, std::vector<std::string> addresses) {
  PeerRecord record;
  record.rank = rank;
  record.pid = 100 + rank;
  record.host_name = record.host_id = host;
  record.addresses = std::move(addresses);
  return record;
}

/// What the probe of rank 0 finds.
std::vector<int> probe(const std::vector<PeerRecord>& table,
                       const std::set<std::string>& own_ips = {}) {
  const MonotonicClock clock;
  HostProbe probe(PeerTable(table), 0, own_ips, clock.now_ns() + 300 * kMillisecond_ns);
  PollSet set;
  while (!probe.is_over()) {
    set.clear();
    probe.prepare(set);
    set.wait(clock.now_ns());
    probe.advance(set, clock.now_ns());
  }
  return probe.unreachable();
}

UniqueFd listen_locally() {
  auto address = *numeric_address("127.0.0.1:1");
  address.set_port(0);
  return listen_at(address);
}

TEST(HostProbe, NamesTheRanksOfEachHostThatDoesNotAnswer) {
  const UniqueFd listener = listen_locally();  // a stopped rank's: nobody accepts
  const std::string here = local_address(listener.get()).text();
  EXPECT_EQ(probe({record(0, "a", {kNowhere}), record(1, "b", {here}), record(2, "c", {kNowhere}),
                   record(3, "c", {kNowhere}), record(4, "d", {kNowhere, here}),
                   record(5, "e", {kNowhere})}),
            (std::vector{2, 3, 5}));
}

TEST(HostProbe, WhoRefusesCanBeReached) {
  const std::string closed = local_address(listen_locally().get()).text();
  EXPECT_EQ(probe({record(0, "a", {}), record(1, "b", {closed}), record(2, "c", {kNowhere})}),
            std::vector{2});
}

// Each host has a bridge with the address that this one's has, and a loopback.
TEST(HostProbe, ThisHostsAddressesLeadToNoOther) {
  const UniqueFd listener = listen_locally();
  const std::string own = local_address(listener.get()).text();
  EXPECT_EQ(probe({record(0, "a", {own}), record(1, "b", {kNowhere, own}), record(2, "c", {own})},
                  {"127.0.0.1"}),
            std::vector{1});
}

TEST(HostProbe, AloneOnItsHostThereIsNobodyToAsk) {
  EXPECT_EQ(probe({record(0, "a", {kNowhere}), record(1, "a", {kNowhere})}), std::vector<int>{});
}

TEST(HostProbe, TextsNameRanksAndHosts) {
  PeerTable table(8);
  for (int rank = 0; rank < 8; ++rank)
    table.set(static_cast<size_t>(rank),
              record(rank, std::string(1, static_cast<char>('a' + rank / 2)), {}));
  const Failure found{ErrorCode::peer_lost, "control", "rank 4 (c, pid 104) is cut off", "", 0, 4};
  const Failure halves = name_unreachable(found, table, {4, 5, 6, 7});
  EXPECT_EQ(halves.reason,
            "ranks 4-7 (hosts c, d) cannot be reached: rank 4 (c, pid 104) is cut off");
  EXPECT_EQ(halves.advice,
            "look at the network between hosts a, b and hosts c, d; did it go down, or did they?");
  EXPECT_EQ(halves.peers, (std::vector{4, 5, 6, 7}));
  EXPECT_EQ(name_unreachable(found, table, {4, 5}).reason,
            "ranks 4, 5 (host c) cannot be reached: rank 4 (c, pid 104) is cut off");
  EXPECT_EQ(name_unreachable(found, table, {4}).reason,
            "rank 4 (host c) cannot be reached: rank 4 (c, pid 104) is cut off");
}

}  // namespace
}  // namespace ropewalk::bootstrap
