// What is particular to the fake; what every transport must do is in tests/conformance.
#include "transports/fake/fake_fabric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "memory/registered_memory.h"

namespace ropewalk {
namespace {

using Kind = Completion::Kind;

FakeOptions gentle() {
  FakeOptions options;
  options.full_probability = 0;
  options.done_probability = 0;
  return options;
}

std::vector<Completion> drain(Transport& transport) {
  std::array<Completion, 1000> into;
  const size_t filled = transport.poll(into);
  return {into.begin(), into.begin() + filled};
}

void link_all(FakeFabric& fabric, int ranks) {
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < ranks; ++b)
      if (a != b) fabric.transport(a).connect(b, {});
  fabric.advance_to(100'000);
}

size_t count(const std::vector<Completion>& all, Kind kind) {
  return static_cast<size_t>(
      std::count_if(all.begin(), all.end(), [kind](const auto& c) { return c.kind == kind; }));
}

/// Three ranks send each other notices; returns the digest.
uint64_t run(uint64_t seed) {
  FakeOptions options;
  options.cuts = {{0, 2, 400'000}};
  FakeFabric fabric(3, seed, options);
  link_all(fabric, 3);
  for (uint32_t i = 0; i < 200; ++i) {
    for (int from = 0; from < 3; ++from)
      fabric.transport(from).put({.peer = (from + 1) % 3, .notice = i, .cookie = i});
    fabric.advance();
  }
  while (fabric.advance()) {
  }
  return fabric.digest();
}

TEST(FakeFabric, SameSeedSameRun) {
  std::set<uint64_t> digests;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    EXPECT_EQ(run(seed), run(seed));
    digests.insert(run(seed));
  }
  EXPECT_EQ(digests.size(), 10u);
}

TEST(FakeFabric, TimeIsVirtual) {
  FakeFabric fabric(2, 1, gentle());
  EXPECT_EQ(fabric.clock().now_ns(), 0);
  EXPECT_FALSE(fabric.advance());
  fabric.advance_to(int64_t{3600} * 1'000'000'000);
  EXPECT_EQ(fabric.clock().now_ns(), int64_t{3600} * 1'000'000'000);
}

TEST(FakeFabric, LatencyAndBandwidthAreAsTold) {
  FakeOptions options = gentle();
  options.latency_min_ns = options.latency_max_ns = 5'000;
  options.ns_per_byte = 2;
  FakeFabric fabric(2, 1, options);
  link_all(fabric, 2);
  RegisteredMemory memory(1000), source(1000);
  memory.register_with(fabric.transport(1));
  const int64_t begin = fabric.clock().now_ns();
  for (uint32_t i = 0; i < 2; ++i)
    ASSERT_EQ(fabric.transport(0).put({.peer = 1,
                                       .source = source.data(),
                                       .bytes = 1000,
                                       .key = memory.registrations()[0]->key(),
                                       .notice = i,
                                       .cookie = i}),
              Posted::posted);
  for (size_t arrived = 1; arrived <= 2; ++arrived) {
    while (drain(fabric.transport(1)).empty()) ASSERT_TRUE(fabric.advance());
    EXPECT_EQ(fabric.clock().now_ns() - begin, static_cast<int64_t>(arrived) * 2'000 + 5'000);
  }
}

TEST(FakeFabric, PairsOvertakeEachOther) {
  FakeFabric fabric(3, 1, gentle());
  link_all(fabric, 3);
  bool overtaken = false;
  for (int i = 0; i < 50; ++i) {
    fabric.transport(1).put({.peer = 0, .notice = 1});
    fabric.transport(2).put({.peer = 0, .notice = 2});
    while (fabric.advance()) {
    }
    const auto seen = drain(fabric.transport(0));
    ASSERT_EQ(seen.size(), 2u);
    overtaken |= seen[0].peer == 2;
  }
  EXPECT_TRUE(overtaken);
}

TEST(FakeFabric, ReuseBeforePutDoneSpoilsTheData) {
  int spoiled = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    FakeFabric fabric(2, seed, gentle());
    link_all(fabric, 2);
    RegisteredMemory source(100), target(100);
    target.register_with(fabric.transport(1));
    std::memset(source.data(), 1, 100);
    ASSERT_EQ(fabric.transport(0).put({.peer = 1,
                                       .source = source.data(),
                                       .bytes = 100,
                                       .key = target.registrations()[0]->key()}),
              Posted::posted);
    fabric.advance();  // some time passes, but no put_done has come
    if (count(drain(fabric.transport(0)), Kind::put_done) == 0) std::memset(source.data(), 2, 100);
    while (fabric.advance()) {
    }
    spoiled += target.data()[50] == std::byte{2};
  }
  EXPECT_EQ(spoiled, 0) << "the first event of a put is that its source is read";

  for (uint64_t seed = 0; seed < 20; ++seed) {
    FakeFabric fabric(2, seed, gentle());
    link_all(fabric, 2);
    RegisteredMemory source(100), target(100);
    target.register_with(fabric.transport(1));
    std::memset(source.data(), 1, 100);
    fabric.transport(0).put({.peer = 1,
                             .source = source.data(),
                             .bytes = 100,
                             .key = target.registrations()[0]->key()});
    std::memset(source.data(), 2, 100);  // at once: always wrong
    while (fabric.advance()) {
    }
    spoiled += target.data()[50] == std::byte{2};
  }
  EXPECT_EQ(spoiled, 20);
}

TEST(FakeFabric, PutToFreedMemoryBreaksTheLink) {
  FakeFabric fabric(2, 1, gentle());
  link_all(fabric, 2);
  RegisteredMemory source(100);
  RemoteKey stale;
  {
    RegisteredMemory target(100);
    target.register_with(fabric.transport(1));
    stale = target.registrations()[0]->key();
  }
  ASSERT_EQ(
      fabric.transport(0).put({.peer = 1, .source = source.data(), .bytes = 100, .key = stale}),
      Posted::posted);
  while (fabric.advance()) {
  }
  EXPECT_EQ(count(drain(fabric.transport(0)), Kind::lost), 1u);
  const auto seen = drain(fabric.transport(1));
  EXPECT_EQ(count(seen, Kind::lost), 1u);
  EXPECT_EQ(count(seen, Kind::notice), 0u);
}

TEST(FakeFabric, CutLosesBothSidesOnceAndNothingAfter) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    FakeOptions options;
    options.cuts = {{0, 1, 130'000}};
    FakeFabric fabric(3, seed, options);
    link_all(fabric, 3);
    {
      // Sources live exactly as long as they must: AddressSanitizer watches.
      std::vector<std::byte> source(5000);
      RegisteredMemory target(5000);
      target.register_with(fabric.transport(1));
      std::vector<Completion> seen_0, seen_1;
      while (count(seen_0, Kind::lost) == 0) {
        for (int to : {1, 2})
          fabric.transport(0).put({.peer = to,
                                   .source = source.data(),
                                   .bytes = to == 1 ? size_t{5000} : 0,
                                   .key = target.registrations()[0]->key()});
        fabric.advance_to(fabric.clock().now_ns() + 1'000);
        for (const auto& c : drain(fabric.transport(0))) seen_0.push_back(c);
        for (const auto& c : drain(fabric.transport(1))) seen_1.push_back(c);
        ASSERT_LT(fabric.clock().now_ns(), 130'000 + options.detection_max_ns + 2'000);
      }
      EXPECT_EQ(fabric.transport(0).put({.peer = 1, .source = source.data(), .bytes = 1}),
                Posted::lost);
      EXPECT_EQ(fabric.transport(0).why_lost(1).text, "the link was cut");
      const auto last = std::find_if(seen_0.begin(), seen_0.end(),
                                     [](const auto& c) { return c.kind == Kind::lost; });
      EXPECT_TRUE(std::all_of(last + 1, seen_0.end(), [](const auto& c) { return c.peer == 2; }));
    }
    while (fabric.advance()) {
    }
    EXPECT_EQ(count(drain(fabric.transport(0)), Kind::lost), 0u);
    EXPECT_GT(count(drain(fabric.transport(2)), Kind::notice), 0u);
  }
}

TEST(FakeFabric, ACutMayLeaveHalfAPut) {
  std::set<size_t> landed;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    FakeOptions options = gentle();
    options.cuts = {{0, 1, 101'000}};
    FakeFabric fabric(2, seed, options);
    link_all(fabric, 2);
    RegisteredMemory source(1000), target(1000);
    target.register_with(fabric.transport(1));
    std::memset(source.data(), 1, 1000);
    fabric.transport(0).put({.peer = 1,
                             .source = source.data(),
                             .bytes = 1000,
                             .key = target.registrations()[0]->key()});
    fabric.advance_to(102'000);
    const auto end = std::find(target.data(), target.data() + 1000, std::byte{0});
    landed.insert(static_cast<size_t>(end - target.data()));
    while (fabric.advance()) {
    }
    EXPECT_EQ(count(drain(fabric.transport(1)), Kind::notice), 0u);
  }
  EXPECT_GT(landed.size(), 20u);
}

TEST(FakeFabric, ALostRankIsToldToAllOthers) {
  FakeOptions options = gentle();
  options.losses = {{1, 200'000}};
  FakeFabric fabric(4, 9, options);
  link_all(fabric, 4);
  EXPECT_TRUE(fabric.alive(1));
  fabric.advance_to(200'000);
  EXPECT_FALSE(fabric.alive(1));
  fabric.advance_to(200'000 + options.detection_max_ns);
  for (const int rank : {0, 2, 3}) {
    const auto seen = drain(fabric.transport(rank));
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0].kind, Kind::lost);
    EXPECT_EQ(seen[0].peer, 1);
    EXPECT_EQ(fabric.transport(rank).why_lost(1).text, "the rank died");
  }
}

TEST(FakeFabric, DropFreesTheSourcesAtOnce) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    FakeFabric fabric(2, seed, gentle());
    link_all(fabric, 2);
    RegisteredMemory target(100);
    target.register_with(fabric.transport(1));
    {
      std::vector<std::byte> source(100);
      fabric.transport(0).put({.peer = 1,
                               .source = source.data(),
                               .bytes = 100,
                               .key = target.registrations()[0]->key()});
      fabric.transport(0).drop(1);
    }
    while (fabric.advance()) {
    }
    EXPECT_TRUE(drain(fabric.transport(0)).empty());
    EXPECT_EQ(count(drain(fabric.transport(1)), Kind::lost), 1u);
  }
}

}  // namespace
}  // namespace ropewalk
