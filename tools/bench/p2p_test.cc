// The link that point-to-point benchmarks measure, and what they print.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "tools/bench/p2p_link.h"
#include "tools/bench/p2p_report.h"
#include "transports/shm/shm_transport.h"

namespace ropewalk::tools {
namespace {

using testing::HasSubstr;

class OwnMonitor final : public Monitor {
 public:
  const Failure* failure() const noexcept override { return failure_ ? &*failure_ : nullptr; }
  void report(const Failure& failure) override { failure_ = failure; }
  bool has_left(int) const noexcept override { return left; }
  int event_fd() const noexcept override { return -1; }
  bool left = false;

 private:
  std::optional<Failure> failure_;
};

struct Pair {
  Pair() : zero(0, 2), one(1, 2) {
    const std::vector<std::string> infos = {zero.info(), one.info()};
    zero.set_peers(infos);
    one.set_peers(infos);
  }
  P2pLink::Setup setup(int rank, int64_t timeout_ns = 30'000'000'000) {
    return {rank == 0 ? zero : one,
            monitors[static_cast<size_t>(rank)],
            "bench put",
            rank,
            1 - rank,
            64,
            timeout_ns};
  }
  ShmTransport zero, one;
  std::array<OwnMonitor, 2> monitors;
};

TEST(P2pLink, PutsAndExchangesArriveInOrder) {
  Pair pair;
  constexpr uint64_t kPuts = 1000;
  std::byte seen{};
  uint64_t told = 0, misplaced = 1;
  std::thread peer([&] {
    P2pLink link(pair.setup(1));
    link.await_puts(kPuts);
    seen = link.in()[63];
    told = link.exchange(7);
    misplaced = link.misplaced();
  });
  P2pLink link(pair.setup(0));
  link.out()[63] = std::byte{42};
  for (uint64_t i = 0; i < kPuts; ++i) link.put(64);
  EXPECT_EQ(link.exchange(8), 7U);
  peer.join();
  EXPECT_EQ(told, 8U);
  EXPECT_EQ(seen, std::byte{42});
  EXPECT_EQ(misplaced, 0U);
}

// News of its leaving overtook what it had sent: "rank 0 has left the job".
TEST(P2pLink, APeerThatHasLeftIsHeardToItsEnd) {
  Pair pair;
  std::thread peer([&] {
    P2pLink link(pair.setup(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    link.put(64);
    link.await_out();
  });
  P2pLink link(pair.setup(0));
  pair.monitors[0].left = true;
  EXPECT_NO_THROW(link.await_puts(1));
  peer.join();
}

TEST(P2pLink, ASilentPeerIsNamed) {
  Pair pair;
  try {
    P2pLink link(pair.setup(0, 20'000'000));
    FAIL() << "there is nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_EQ(error.peer(), 1);
    EXPECT_THAT(error.what(), HasSubstr("bench put: rank 1 did not answer"));
  }
  ASSERT_NE(pair.monitors[0].failure(), nullptr);  // the other ranks learn of it
}

TEST(P2pLink, APeerThatLeftIsNamed) {
  Pair pair;
  pair.monitors[0].left = true;
  try {
    P2pLink link(pair.setup(0));
    FAIL() << "there is nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_lost);
    EXPECT_EQ(error.peer(), 1);
  }
}

TEST(P2pLink, TheJobsFailureEndsAWait) {
  Pair pair;
  pair.monitors[0].report({ErrorCode::aborted, "job", "somebody else failed", "", 2, 2});
  EXPECT_THROW(P2pLink link(pair.setup(0)), Error);
}

TEST(P2pReport, OnlyPutHasABandwidth) {
  P2pOptions options;
  options.both = true;
  P2pResult result;
  result.bytes = 64;
  result.latency = {1, 2, 3};
  result.bw_gbs = 4;
  const auto put = nlohmann::json::parse(p2p_json_line(options, "shm", result));
  EXPECT_EQ(put["benchmark"], "put");
  EXPECT_EQ(put["direction"], "both");
  EXPECT_EQ(put["bw_gbs"], 4);
  EXPECT_EQ(put["median_us"], 2);
  EXPECT_THAT(p2p_table_header(options, "shm"), HasSubstr("both ways"));
  options.kind = P2pKind::signal;
  const auto signal = nlohmann::json::parse(p2p_json_line(options, "shm", result));
  EXPECT_EQ(signal["benchmark"], "signal");
  EXPECT_FALSE(signal.contains("bw_gbs"));
  EXPECT_TRUE(signal.contains("wrong"));
}

}  // namespace
}  // namespace ropewalk::tools
