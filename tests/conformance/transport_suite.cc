#include "tests/conformance/transport_suite.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

namespace ropewalk::conformance {

using Kind = Completion::Kind;

void fill(std::byte* data, size_t bytes, uint32_t seed) {
  for (size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<std::byte>((i * 7 + (i >> 8) + seed * 31 + 1) & 0xff);
}

size_t wrong_bytes(const std::byte* data, size_t bytes, uint32_t seed) {
  size_t wrong = 0;
  for (size_t i = 0; i < bytes; ++i)
    wrong += data[i] != static_cast<std::byte>((i * 7 + (i >> 8) + seed * 31 + 1) & 0xff);
  return wrong;
}

namespace {
std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
}  // namespace

void TransportSuite::start(int ranks, bool linked) {
  group_ = GetParam().make(ranks);
  seen_.assign(static_cast<size_t>(ranks), {});
  notices_.assign(static_cast<size_t>(ranks), 0);
  posted_ = put_done_ = 0;
  if (!linked) return;
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < ranks; ++b)
      if (a != b) at(a).connect(b, {});
  ASSERT_TRUE(until([&] {
    for (int a = 0; a < ranks; ++a)
      for (int b = 0; b < ranks; ++b)
        if (a != b && !at(a).connected(b)) return false;
    return true;
  }));
}

void TransportSuite::pump() {
  group_->pass_time();
  std::array<Completion, 64> all;
  // Now and then there is room for a few only.
  const std::span batch = std::span(all).first(++pumps_ % 4 == 0 ? all.size() : pumps_ % 4);
  for (size_t rank = 0; rank < seen_.size(); ++rank) {
    const size_t filled = at(static_cast<int>(rank)).poll(batch);
    ASSERT_LE(filled, batch.size());
    for (const Completion& c : batch.first(filled)) {
      seen_[rank].push_back(c);
      notices_[rank] += c.kind == Kind::notice;
      put_done_ += c.kind == Kind::put_done;
    }
  }
}

bool TransportSuite::until(const std::function<bool()>& done) {
  const auto deadline = SteadyClock::now() + kTimeout;
  while (!done()) {
    if (SteadyClock::now() > deadline) return false;
    pump();
  }
  return true;
}

void TransportSuite::linger() {
  const auto end = SteadyClock::now() + std::chrono::milliseconds(30);
  while (SteadyClock::now() < end) pump();
}

bool TransportSuite::settle() {
  return until([this] { return put_done_ >= posted_; });
}

std::vector<Completion> TransportSuite::notices_seen(int rank) {
  std::vector<Completion> found;
  std::copy_if(seen(rank).begin(), seen(rank).end(), std::back_inserter(found),
               [](const Completion& c) { return c.kind == Kind::notice; });
  return found;
}

Posted TransportSuite::put(int from, int to, const Target* source, size_t source_offset,
                           size_t bytes, RemoteKey key, uint64_t offset, uint32_t notice,
                           uint64_t cookie) {
  return until_taken([&] {
    return at(from).put({.peer = to,
                         .source = source ? source->data() + source_offset : nullptr,
                         .source_memory = source ? source->registration() : nullptr,
                         .bytes = bytes,
                         .key = key,
                         .offset = offset,
                         .notice = notice,
                         .cookie = cookie});
  });
}

Posted TransportSuite::until_taken(const std::function<Posted()>& put) {
  const auto deadline = SteadyClock::now() + kTimeout;
  for (;;) {
    const Posted posted = put();
    posted_ += posted == Posted::posted;
    if (posted != Posted::full || SteadyClock::now() > deadline) return posted;
    pump();
  }
}

namespace {

TEST_P(TransportSuite, ExchangesHellos) {
  start(3, /*linked=*/false);
  const std::string longest(kHelloBytesMax, 'x');
  at(0).connect(1, bytes_of("from 0"));
  linger();
  EXPECT_FALSE(at(0).connected(1));
  EXPECT_FALSE(at(1).connected(0));
  at(1).connect(0, bytes_of(longest));
  at(0).connect(1, bytes_of("a repeated call does nothing"));
  at(0).connect(2, {});
  at(2).connect(0, bytes_of("from 2"));
  ASSERT_TRUE(until([&] {
    return at(0).connected(1) && at(1).connected(0) && at(0).connected(2) && at(2).connected(0);
  }));
  EXPECT_EQ(text_of(*at(1).hello_of(0)), "from 0");
  EXPECT_EQ(text_of(*at(0).hello_of(1)), longest);
  EXPECT_EQ(text_of(*at(0).hello_of(2)), "from 2");
  EXPECT_EQ(text_of(*at(2).hello_of(0)), "");
  EXPECT_FALSE(at(1).connected(2));
}

TEST_P(TransportSuite, PutsArriveWholeBothWays) {
  start(2);
  constexpr size_t kRegion = (1 << 20) + 4096;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{777}, size_t{4096}, size_t{1} << 20}) {
    for (const int from : {0, 1}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes from rank " << from);
      const int to = 1 - from;
      const Target source(kRegion, at(from)), target(kRegion, at(to));
      const auto seed = static_cast<uint32_t>(bytes) + static_cast<uint32_t>(from);
      constexpr size_t kOffset = 1003;
      fill(source.data() + 5, bytes, seed);
      const size_t before = notices(to);
      ASSERT_NE(put(from, to, &source, 5, bytes, target.key(), kOffset, 0xffffffff - seed),
                Posted::lost);
      ASSERT_TRUE(until([&] { return notices(to) == before + 1; }));
      const Completion notice = notices_seen(to).back();
      EXPECT_EQ(notice.peer, from);
      EXPECT_EQ(notice.notice, 0xffffffff - seed);
      EXPECT_EQ(wrong_bytes(target.data() + kOffset, bytes, seed), 0u);
      const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
      EXPECT_TRUE(std::all_of(target.data(), target.data() + kOffset, is_zero));
      EXPECT_TRUE(std::all_of(target.data() + kOffset + bytes, target.data() + kRegion, is_zero));
      ASSERT_TRUE(settle());
    }
  }
}

TEST_P(TransportSuite, KeepsTheOrderOfEachPair) {
  start(3);
  constexpr uint32_t kPuts = 3000;
  constexpr size_t kSlot = 64;
  const Target target(2 * kPuts * kSlot, at(0));
  const std::array<std::unique_ptr<Target>, 2> sources = {
      std::make_unique<Target>(kPuts * kSlot, at(1)),
      std::make_unique<Target>(kPuts * kSlot, at(2))};
  for (uint32_t i = 0; i < kPuts; ++i)
    for (const int from : {1, 2}) {
      const Target& source = *sources[static_cast<size_t>(from - 1)];
      const size_t bytes = i % (kSlot + 1), at_byte = i * kSlot;
      fill(source.data() + at_byte, bytes, i);
      const size_t offset = static_cast<size_t>(from - 1) * kPuts * kSlot + at_byte;
      ASSERT_NE(put(from, 0, &source, at_byte, bytes, target.key(), offset, i, i), Posted::lost);
    }
  ASSERT_TRUE(until([&] { return notices(0) == 2 * kPuts; }));
  ASSERT_TRUE(settle());
  std::array<uint32_t, 2> next = {0, 0};
  for (const Completion& c : notices_seen(0)) {
    const auto from = static_cast<size_t>(c.peer - 1);
    const uint32_t i = next[from]++;
    ASSERT_EQ(c.notice, i);
    EXPECT_EQ(wrong_bytes(target.data() + (from * kPuts + i) * kSlot, i % (kSlot + 1), i), 0u);
  }
}

TEST_P(TransportSuite, KeepsTheOrderOfLongAndShort) {
  start(2);
  constexpr uint32_t kPuts = 300;
  constexpr size_t kLong = 100'000;
  const auto bytes_of_put = [](uint32_t i) { return i % 3 == 0 ? kLong : size_t{8}; };
  const Target target(kPuts * kLong, at(0)), source(kLong, at(1));
  fill(source.data(), kLong, 7);
  for (uint32_t i = 0; i < kPuts; ++i)
    ASSERT_NE(put(1, 0, &source, 0, bytes_of_put(i), target.key(), i * kLong, i, i), Posted::lost);
  ASSERT_TRUE(until([&] { return notices(0) == kPuts; }));
  ASSERT_TRUE(settle());
  const auto got = notices_seen(0);
  for (uint32_t i = 0; i < kPuts; ++i) {
    ASSERT_EQ(got[i].notice, i);
    const std::byte* written = target.data() + i * kLong;
    ASSERT_EQ(wrong_bytes(written, bytes_of_put(i), 7), 0u) << "put " << i;
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    ASSERT_TRUE(std::all_of(written + bytes_of_put(i), written + kLong, is_zero)) << "put " << i;
  }
}

TEST_P(TransportSuite, UrgentPutsAreInOrderApartFromOthers) {
  start(2);
  constexpr uint32_t kPuts = 600, kUrgent = 1 << 16;
  constexpr size_t kLong = 50'000;
  const auto bytes_of_put = [](uint32_t i) {
    return i % 2 == 0 ? kLong : i % 3 == 0 ? size_t{0} : kUrgentPutBytesMax - i;
  };
  const Target target(kPuts * kLong, at(0)), source(kLong, at(1));
  fill(source.data(), kLong, 7);
  for (uint32_t i = 0; i < kPuts; ++i) {
    const bool urgent = i % 2 == 1;
    if (i % 64 == 0) at(1).set_batching(i % 128 == 0);
    ASSERT_NE(until_taken([&] {
                return at(1).put({.peer = 0,
                                  .source = source.data(),
                                  .source_memory = source.registration(),
                                  .bytes = bytes_of_put(i),
                                  .key = target.key(),
                                  .offset = i * kLong,
                                  .notice = urgent ? i | kUrgent : i,
                                  .urgent = urgent,
                                  .cookie = i});
              }),
              Posted::lost);
  }
  at(1).set_batching(false);
  ASSERT_TRUE(until([&] { return notices(0) == kPuts; }));
  ASSERT_TRUE(settle());
  uint32_t next = 0, next_urgent = 1;
  for (const Completion& c : notices_seen(0)) {
    if (c.notice >= kUrgent) {
      ASSERT_EQ(c.notice - kUrgent, std::exchange(next_urgent, next_urgent + 2));
    } else {
      ASSERT_EQ(c.notice, std::exchange(next, next + 2));
    }
  }
  for (uint32_t i = 0; i < kPuts; ++i)
    ASSERT_EQ(wrong_bytes(target.data() + i * kLong, bytes_of_put(i), 7), 0u) << "put " << i;
}

TEST_P(TransportSuite, HoldsBackNoLongPuts) {
  start(2);
  constexpr size_t kLong = (64 << 10) + 100;  // over three lanes the last piece is short
  const Target target(kLong, at(1)), source(kLong, at(0));
  uint32_t sent = 0;
  const auto put_one = [&](size_t bytes) {
    ASSERT_NE(put(0, 1, &source, 0, bytes, target.key(), 0, sent, sent), Posted::lost);
    ++sent;
  };
  at(0).set_batching(true);
  for (int i = 0; i < 3; ++i) put_one(8);
  put_one(kLong);
  ASSERT_TRUE(until([&] { return notices(1) == sent; })) << "it waits for a release";
  for (int i = 0; i < 40; ++i) put_one(8);
  at(0).set_batching(false);
  ASSERT_TRUE(until([&] { return notices(1) == sent; }));
  ASSERT_TRUE(settle());
  const auto got = notices_seen(1);
  for (uint32_t i = 0; i < sent; ++i) ASSERT_EQ(got[i].notice, i);
}

TEST_P(TransportSuite, SaysFullAndLosesNothing) {
  start(2);
  constexpr uint32_t kAcceptedMax = 1 << 20;
  std::array<Completion, 64> batch;
  uint32_t sent = 0;
  // Nobody polls rank 1, and no time passes.
  for (int refused = 0; sent < kAcceptedMax && refused < 5;) {
    const Posted posted = at(0).put({.peer = 1, .notice = sent, .cookie = sent});
    ASSERT_NE(posted, Posted::lost);
    if (posted == Posted::full) {
      ++refused;
      at(0).poll(batch);
    } else {
      refused = 0;
      ++sent;
    }
  }
  EXPECT_GT(sent, 0u);
  EXPECT_LT(sent, kAcceptedMax) << "a transport must bound what it queues";
  const uint32_t total = sent + 5000;
  for (; sent < total; ++sent) ASSERT_NE(put(0, 1, nullptr, 0, 0, {}, 0, sent, sent), Posted::lost);
  ASSERT_TRUE(until([&] { return notices(1) >= total; }));
  linger();
  const auto got = notices_seen(1);
  ASSERT_EQ(got.size(), total);
  for (uint32_t i = 0; i < total; ++i) ASSERT_EQ(got[i].notice, i);
}

TEST_P(TransportSuite, PutDoneFreesTheSource) {
  start(2);
  constexpr size_t kBytes = 20'000;
  constexpr uint32_t kPuts = 60;
  const Target target(kPuts * kBytes, at(1));
  std::vector<std::unique_ptr<Target>> sources;
  std::set<uint64_t> awaited, finished;
  size_t looked_at = 0;
  const auto scribble_on_finished = [&] {
    for (; looked_at < seen(0).size(); ++looked_at) {
      const Completion& c = seen(0)[looked_at];
      ASSERT_EQ(c.kind, Kind::put_done);
      EXPECT_EQ(c.peer, 1);
      ASSERT_TRUE(finished.insert(c.cookie).second) << "twice: " << c.cookie;
      std::memset(sources[c.cookie - 1000]->data(), 0xee, kBytes);
    }
  };
  for (uint32_t i = 0; i < kPuts; ++i) {
    sources.push_back(std::make_unique<Target>(kBytes, at(0)));
    fill(sources[i]->data(), kBytes, i);
    const Posted posted =
        put(0, 1, sources[i].get(), 0, kBytes, target.key(), i * kBytes, i, 1000 + i);
    ASSERT_TRUE(posted == Posted::done || posted == Posted::posted);
    if (posted == Posted::done) std::memset(sources[i]->data(), 0xee, kBytes);
    if (posted == Posted::posted) awaited.insert(1000 + i);
    scribble_on_finished();
  }
  ASSERT_TRUE(until([&] {
    scribble_on_finished();
    return finished.size() >= awaited.size() && notices(1) == kPuts;
  }));
  linger();
  scribble_on_finished();
  EXPECT_EQ(finished, awaited);
  for (uint32_t i = 0; i < kPuts; ++i)
    EXPECT_EQ(wrong_bytes(target.data() + i * kBytes, kBytes, i), 0u) << "put " << i;
}

TEST_P(TransportSuite, MapsThePeersMemoryIfItSaysSo) {
  start(2);
  const Target target(10'000, at(1));
  MappedMemory* const memory = at(0).mapped_memory();
  if (memory == nullptr) return;
  std::byte* mapped = memory->map(1, target.key(), 100, 9'900);
  ASSERT_NE(mapped, nullptr);
  fill(mapped, 9'900, 3);
  EXPECT_EQ(wrong_bytes(target.data() + 100, 9'900, 3), 0u);
  target.data()[5] = std::byte{42};
  EXPECT_EQ(*memory->map(1, target.key(), 5, 1), std::byte{42});
  EXPECT_EQ(memory->map(1, target.key(), 101, 9'900), nullptr);
  EXPECT_EQ(memory->map(1, target.key(), 10'001, 0), nullptr);
  EXPECT_EQ(memory->map(1, target.key(), ~uint64_t{0}, 2), nullptr);
  EXPECT_EQ(memory->map(1, {target.key().id + (uint64_t{1} << 50), 10'000}, 0, 1), nullptr);
  EXPECT_NE(memory->map(1, target.key(), 0, 10'000), nullptr);
}

TEST_P(TransportSuite, RefusesWhatIsOutOfBounds) {
  for (const auto& [offset, bytes] :
       {std::pair<uint64_t, size_t>{4090, 7}, {5000, 1}, {~0ull, 2}}) {
    start(2);
    const Target source(8192, at(0)), target(4096, at(1));
    fill(source.data(), 8192, 9);
    EXPECT_EQ(put(0, 1, &source, 0, bytes, target.key(), offset, 1), Posted::lost);
    EXPECT_FALSE(at(0).why_lost(1).text.empty());
    linger();
    EXPECT_EQ(notices(1), 0u);
    EXPECT_TRUE(std::all_of(target.data(), target.data() + 4096,
                            [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_P(TransportSuite, NeverConfusesRegistrations) {
  start(2);
  std::set<uint64_t> ids;
  const Target source(4096, at(0));
  for (uint32_t i = 0; i < 50; ++i) {
    const Target target(4096 + i, at(1));  // often at the address of the last one
    EXPECT_TRUE(ids.insert(target.key().id).second);
    EXPECT_EQ(target.key().bytes, 4096u + i);
    fill(source.data(), 4096, i);
    ASSERT_NE(put(0, 1, &source, 0, 4096, target.key(), i, i), Posted::lost);
    ASSERT_TRUE(until([&] { return notices(1) == i + 1; }));
    EXPECT_EQ(wrong_bytes(target.data() + i, 4096, i), 0u);
    ASSERT_TRUE(settle());
  }
}

TEST_P(TransportSuite, DropsOnePeerOnly) {
  start(3);
  for (const int from : {1, 2}) ASSERT_NE(put(from, 0, nullptr, 0, 0, {}, 0, 1), Posted::lost);
  ASSERT_TRUE(until([&] { return notices(0) == 2; }));
  at(0).drop(1);
  at(0).drop(1);
  EXPECT_FALSE(at(0).connected(1));
  EXPECT_EQ(put(0, 1, nullptr, 0, 0, {}, 0, 2), Posted::lost);
  for (int i = 0; i < 3; ++i) put(1, 0, nullptr, 0, 0, {}, 0, 3);  // whatever the answer
  ASSERT_NE(put(2, 0, nullptr, 0, 0, {}, 0, 4), Posted::lost);
  ASSERT_NE(put(0, 2, nullptr, 0, 0, {}, 0, 5), Posted::lost);
  ASSERT_TRUE(until([&] { return notices(0) == 3 && notices(2) == 1; }));
  linger();
  for (const Completion& c : seen(0)) EXPECT_TRUE(c.peer == 2 || c.notice == 1) << c.notice;
}

TEST_P(TransportSuite, LinksManyPeers) {
  constexpr int kRanks = 9;
  start(kRanks);
  std::vector<std::unique_ptr<Target>> targets, sources;
  for (int rank = 0; rank < kRanks; ++rank) {
    targets.push_back(std::make_unique<Target>(kRanks * 100, at(rank)));
    sources.push_back(std::make_unique<Target>(100, at(rank)));
    fill(sources.back()->data(), 100, static_cast<uint32_t>(rank));
  }
  for (int from = 0; from < kRanks; ++from)
    for (int to = 0; to < kRanks; ++to)
      if (from != to) {
        ASSERT_NE(put(from, to, sources[static_cast<size_t>(from)].get(), 0, 100,
                      targets[static_cast<size_t>(to)]->key(), static_cast<uint64_t>(from) * 100,
                      static_cast<uint32_t>(from * kRanks + to)),
                  Posted::lost);
      }
  ASSERT_TRUE(until([&] {
    for (int rank = 0; rank < kRanks; ++rank)
      if (notices(rank) < kRanks - 1) return false;
    return true;
  }));
  ASSERT_TRUE(settle());
  for (int to = 0; to < kRanks; ++to)
    for (const Completion& c : notices_seen(to)) {
      EXPECT_EQ(c.notice, static_cast<uint32_t>(c.peer * kRanks + to));
      EXPECT_EQ(wrong_bytes(targets[static_cast<size_t>(to)]->data() + c.peer * 100, 100,
                            static_cast<uint32_t>(c.peer)),
                0u);
    }
}

}  // namespace
}  // namespace ropewalk::conformance
