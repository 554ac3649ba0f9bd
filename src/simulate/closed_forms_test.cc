// Against the closed forms of LogGP, to the picosecond.
#include <gtest/gtest.h>

#include <bit>

#include "simulate/simulate_call.h"

namespace ropewalk {
namespace {

// Round numbers, in picoseconds: 10 us latency, 1 us overhead, 1 GB/s, 4 GB/s adding.
constexpr int64_t kL = 10'000'000, kO = 1'000'000, kG = 1000, kAdd = 250;

Network logp(int ranks) {
  Network network = network_of_template("flat:rate=8gbit:latency=10us:overhead=1us", ranks);
  network.add_s_per_byte = 0.25e-9;
  return network;
}

/// Nothing is announced or cut.
int64_t closed_ps(const Network& network, Collective collective, Algorithm algorithm,
                  size_t bytes) {
  Routes routes(network);
  return simulate_call(routes, {.key = {collective, algorithm, network.ranks(), 0, {}},
                                .bytes = bytes,
                                .eager_bytes_max = SIZE_MAX})
      .ps;
}

TEST(ClosedForm, Ring) {
  for (const int n : {2, 3, 8, 33, 1000}) {
    const int64_t block = 3000, hop = kO + block * kG + kL;
    const auto bytes = static_cast<size_t>(n * block);
    EXPECT_EQ(closed_ps(logp(n), Collective::all_reduce, Algorithm::ring, bytes),
              (n - 1) * (2 * hop + block * kAdd));
    EXPECT_EQ(closed_ps(logp(n), Collective::all_gather, Algorithm::ring, bytes), (n - 1) * hop);
    EXPECT_EQ(closed_ps(logp(n), Collective::reduce_scatter, Algorithm::ring, bytes),
              (n - 1) * (hop + block * kAdd));
  }
}

TEST(ClosedForm, RecursiveDoubling) {
  for (const int64_t bytes : {8, 4096, 100'000})
    for (const int rounds : {1, 3, 6, 10})
      EXPECT_EQ(closed_ps(logp(1 << rounds), Collective::all_reduce, Algorithm::recursive_doubling,
                          static_cast<size_t>(bytes)),
                rounds * (kO + bytes * (kG + kAdd) + kL));
}

TEST(ClosedForm, BinaryTreeTakesItsDepthWhereBytesAreFree) {
  for (const int n : {2, 5, 8, 9, 100, 1000}) {
    Network network = logp(n);
    network.between.overhead_s = network.add_s_per_byte = 0;
    for (NetworkLink& link : network.links) link.s_per_byte = 0;
    const int64_t depth = std::bit_width(static_cast<unsigned>(n - 1));
    // Both halves are too long to go in list order.
    EXPECT_EQ(closed_ps(network, Collective::broadcast, Algorithm::tree, 10'000), depth * kL);
    EXPECT_EQ(closed_ps(network, Collective::all_reduce, Algorithm::tree, 10'000), 2 * depth * kL);
  }
}

// One half goes from 0 to 2 to 1, the other from 0 to 1 to 2; rank 0's port serves the second when
// it has served the first.
TEST(ClosedForm, TwoTreesOfThreeRanks) {
  const int64_t half = 5000;
  EXPECT_EQ(closed_ps(logp(3), Collective::broadcast, Algorithm::tree, 2 * half),
            2 * kO + 3 * half * kG + 2 * kL);
}

TEST(ClosedForm, Chain) {
  for (const int n : {2, 5, 100}) {
    const int64_t bytes = 50'000;
    EXPECT_EQ(closed_ps(logp(n), Collective::broadcast, Algorithm::ring, bytes),
              (n - 1) * (kO + bytes * kG + kL));
  }
}

TEST(ClosedForm, Direct) {
  for (const int n : {2, 4, 16, 100}) {
    const int64_t block = 5000, others = n - 1;
    // The port is slower than the CPU; the last of the others' parts is added when it has come.
    const int64_t out = kO + others * block * kG + kL;
    EXPECT_EQ(closed_ps(logp(n), Collective::all_reduce, Algorithm::direct,
                        static_cast<size_t>(n * block)),
              2 * out + block * kAdd);
    EXPECT_EQ(
        closed_ps(logp(n), Collective::gather, Algorithm::direct, static_cast<size_t>(n * block)),
        out);
  }
}

// LogGOPSim's README has 22000 ns for one byte, 4 (2 o + L), as it counts bytes - 1.
TEST(ClosedForm, DefaultParametersOfLogGOPSim) {
  constexpr int64_t kLatency_ns = 2500, kOverhead_ns = 1500, kByte_ns = 6;
  Network network = network_of_template("flat:latency=2500ns:overhead=1500ns", 16);
  for (NetworkLink& link : network.links) link.s_per_byte = 1e-9 * kByte_ns;
  network.receive_s = 1e-9 * kOverhead_ns;
  network.add_s_per_byte = 0;
  for (const int64_t bytes : {1, 1000, 60'000})
    EXPECT_EQ(closed_ps(network, Collective::all_reduce, Algorithm::recursive_doubling,
                        static_cast<size_t>(bytes)),
              1000 * 4 * (2 * kOverhead_ns + kLatency_ns + bytes * kByte_ns));
}

TEST(ClosedForm, ASharedLinkServesOneAfterTheOther) {
  // Four hosts of one rack send to four of another through an uplink as fast as one of them.
  Network network =
      network_of_template("racks:2x4:uplink=4:rate=8gbit:latency=10us:overhead=1us", 8);
  network.add_s_per_byte = 0;
  Routes routes(network);
  const CallToSimulate call{
      .key = {Collective::all_reduce, Algorithm::recursive_doubling, 8, 0, {}},
      .bytes = 1000,
      .eager_bytes_max = SIZE_MAX};
  const int64_t round = kO + 1000 * kG + kL;
  EXPECT_EQ(simulate_call(routes, call).ps, 3 * round + 3 * 1000 * kG);
}

}  // namespace
}  // namespace ropewalk
