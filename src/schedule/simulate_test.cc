#include "schedule/simulate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

// Round numbers: 10 us latency, 1 us overhead, 1 GB/s, 4 GB/s adding.
constexpr double kLatency = 10e-6, kOverhead = 1e-6, kByte = 1e-9, kAdd = 0.25e-9;
const CostModel kFlat{{kLatency, kOverhead, kByte}, {kLatency, kOverhead, kByte}, kAdd};

double seconds(Collective collective, Algorithm algorithm, int ranks, double bytes,
               size_t slice_bytes = size_t{1} << 40, const CostModel& cost = kFlat) {
  return simulate({collective, algorithm, ranks, 0, {}}, {cost, bytes, slice_bytes, {}}).seconds;
}

TEST(Simulate, RingAllReduceIsItsClosedForm) {
  for (int n : {2, 3, 8, 33}) {
    const double bytes = 1e6, block = bytes / n;
    const double hop = kOverhead + block * kByte + kLatency;
    EXPECT_NEAR(seconds(Collective::all_reduce, Algorithm::ring, n, bytes),
                (n - 1) * (2 * hop + block * kAdd), 1e-12);
  }
}

TEST(Simulate, ChainBroadcastPipelinesSlices) {
  for (int slices : {1, 4, 50}) {
    const int n = 6;
    const double bytes = 1e6, stage = bytes / slices * kByte;
    EXPECT_NEAR(seconds(Collective::broadcast, Algorithm::ring, n, bytes,
                        static_cast<size_t>(bytes / slices)),
                (n - 1) * (kOverhead + stage + kLatency) + (slices - 1) * stage, 1e-12);
  }
}

TEST(Simulate, DirectAllReduceIsItsClosedForm) {
  for (int n : {2, 4, 16}) {
    const double bytes = 1e6, block = bytes / n;
    const double out = kOverhead + (n - 1) * block * kByte + kLatency;
    EXPECT_NEAR(seconds(Collective::all_reduce, Algorithm::direct, n, bytes),
                2 * out + block * kAdd, 1e-12);
  }
}

TEST(Simulate, RecursiveDoublingIsItsClosedForm) {
  for (int rounds : {1, 3, 6}) {
    const double bytes = 1e5;
    EXPECT_NEAR(seconds(Collective::all_reduce, Algorithm::recursive_doubling, 1 << rounds, bytes),
                rounds * (kOverhead + bytes * (kByte + kAdd) + kLatency), 1e-12);
  }
}

TEST(Simulate, TreeTakesItsDepthWhenBytesAreFree) {
  const CostModel latency_only{{kLatency, 0, 0}, {kLatency, 0, 0}, 0};
  for (int n : {2, 5, 8, 9, 100}) {
    const double depth = 1 + std::floor(std::log2(n - 1));
    EXPECT_NEAR(seconds(Collective::broadcast, Algorithm::tree, n, 1e6, 1 << 20, latency_only),
                depth * kLatency, 1e-12);
    EXPECT_NEAR(seconds(Collective::all_reduce, Algorithm::tree, n, 1e6, 1 << 20, latency_only),
                2 * depth * kLatency, 1e-12);
  }
}

// The point of two trees: a long vector goes down at nearly the full bandwidth of a port.
TEST(Simulate, TreeBroadcastReachesFullBandwidth) {
  const double bytes = 100e6;
  const double tree = seconds(Collective::broadcast, Algorithm::tree, 64, bytes, 100'000);
  EXPECT_LT(tree, 1.25 * bytes * kByte);
  EXPECT_GE(tree, bytes * kByte);
}

TEST(Simulate, FlatGatherIsLimitedByTheRootsPort) {
  const int n = 10;
  const double bytes = 1e6;
  EXPECT_NEAR(seconds(Collective::gather, Algorithm::direct, n, bytes),
              kOverhead + kLatency + (n - 1) * bytes / n * kByte, 1e-12);
}

TEST(Simulate, SlicesHideTheAdding) {
  const double whole = seconds(Collective::reduce, Algorithm::ring, 5, 10e6);
  const double sliced = seconds(Collective::reduce, Algorithm::ring, 5, 10e6, 100'000);
  EXPECT_LT(sliced, whole / 3);
}

TEST(Simulate, TwoLevelBeatsFlatAlgorithmsOnASharedNetworkPort) {
  const CostModel cost{{1e-6, 0.1e-6, 0.1e-9}, {20e-6, 1e-6, 1e-9}, 0};
  std::vector<int> hosts;
  for (int rank = 0; rank < 32; ++rank) hosts.push_back(rank / 8);
  const auto run = [&](Algorithm algorithm) {
    return simulate({Collective::all_reduce, algorithm, 32, 0, hosts},
                    {cost, 64e6, 1 << 18, hosts});
  };
  const SimulationReport two_level = run(Algorithm::two_level), direct = run(Algorithm::direct),
                         doubling = run(Algorithm::halving_doubling), ring = run(Algorithm::ring);
  EXPECT_NEAR(two_level.bytes_between_hosts, 4 * 2.0 * 3 / 4 * 64e6, 1);
  EXPECT_GT(direct.seconds, 2 * two_level.seconds);
  EXPECT_GT(doubling.seconds, 2 * two_level.seconds);
  EXPECT_LT(two_level.seconds, 1.2 * ring.seconds);
}

TEST(Simulate, CountsMessages) {
  const SimulationReport report =
      simulate({Collective::all_reduce, Algorithm::ring, 4, 0, {}}, {kFlat, 4096, 512, {}});
  EXPECT_EQ(report.messages, 4u * 6 * 2);  // ranks, sends, slices
}

TEST(Simulate, TensOfThousandsOfRanks) {
  const double time = seconds(Collective::all_reduce, Algorithm::recursive_doubling, 1 << 14, 8);
  EXPECT_NEAR(time, 14 * (kOverhead + 8 * (kByte + kAdd) + kLatency), 1e-9);
}

TEST(Simulate, RefusesWhatWouldNotFit) {
  EXPECT_THROW(seconds(Collective::broadcast, Algorithm::ring, 1000, 1e9, 1), Error);
}

TEST(Simulate, OneRankTakesNoTime) {
  EXPECT_EQ(seconds(Collective::all_reduce, Algorithm::tree, 1, 1e9), 0);
}

}  // namespace
}  // namespace ropewalk
