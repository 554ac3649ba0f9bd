// The conformance suite of transports, over UCX with the wires that UCX_TLS names.
#include <algorithm>

#include "tests/conformance/transport_suite.h"
#include "transports/shm/shm_transport.h"
#include "transports/tcp/test_sockets.h"
#include "transports/ucx/ucx_sharing.h"
#include "transports/ucx/ucx_transport.h"

namespace ropewalk::conformance {
namespace {

class Group final : public TransportGroup {
 public:
  explicit Group(int ranks) : network_(ranks, tcp::LocalNetwork::Kind::unix_sockets) {
    for (int rank = 0; rank < ranks; ++rank)
      transports_.push_back(std::make_unique<UcxTransport>(rank, ranks, network_.source(rank)));
  }
  Transport& at(int rank) override { return *transports_.at(static_cast<size_t>(rank)); }

 private:
  tcp::LocalNetwork network_;
  std::vector<std::unique_ptr<UcxTransport>> transports_;
};

/// Over memory that UCX shares.
class MappedGroup final : public TransportGroup {
 public:
  explicit MappedGroup(int ranks) {
    std::vector<std::string> infos;
    for (int rank = 0; rank < ranks; ++rank) {
      transports_.push_back(
          std::make_unique<ShmTransport>(rank, ranks, std::make_unique<ucx::UcxSharing>()));
      infos.push_back(transports_.back()->info());
    }
    for (auto& transport : transports_) transport->set_peers(infos);
  }
  Transport& at(int rank) override { return *transports_.at(static_cast<size_t>(rank)); }

 private:
  std::vector<std::unique_ptr<ShmTransport>> transports_;
};

TransportParam messages_kind() {
  return {"Messages", [](int ranks) { return std::make_unique<Group>(ranks); }};
}

TransportParam mapped_kind() {
  return {"Mapped", [](int ranks) { return std::make_unique<MappedGroup>(ranks); }};
}

// Sequence numbers and counts of what was taken have 16 bits on the wire.
TEST_P(TransportSuite, CountsPastTwoToTheSixteenth) {
  constexpr uint32_t kPuts = 70'000;
  start(2);
  const Target in(8, at(1)), out(8, at(0));
  for (uint32_t i = 0; i < kPuts; ++i)
    ASSERT_NE(put(0, 1, &out, 0, 8, in.key(), 0, i), Posted::lost) << i;
  ASSERT_TRUE(until([&] { return notices(1) == kPuts; }));
  const std::vector<Completion> arrived = notices_seen(1);
  for (uint32_t i = 0; i < kPuts; ++i) ASSERT_EQ(arrived[i].notice, i);
  EXPECT_TRUE(settle());
}

// Messages only: of the key of a region that uses a slot for the 70,000th time the compact header
// has no room.
TEST_P(TransportSuite, FindsRegionsWithLongKeys) {
  start(2);
  std::vector<std::byte> target(4096);
  Region region;
  region.base = target.data();
  region.bytes = target.size();
  std::unique_ptr<MemoryRegistration> memory;
  for (int i = 0; i < 70'000; ++i) {
    memory.reset();
    memory = at(1).register_memory(region);
  }
  ASSERT_GT(memory->key().id >> 32, uint64_t{1} << 16);
  const Target out(4096, at(0));
  fill(out.data(), 4096, 1);
  uint32_t sent = 0;
  for (const size_t bytes : {8, 216, 217, 4096}) {
    std::fill(target.begin(), target.end(), std::byte{});
    ASSERT_NE(put(0, 1, &out, 0, bytes, memory->key(), 0, sent++), Posted::lost);
    ASSERT_TRUE(until([&] { return notices(1) == sent; })) << at(1).why_lost(0).text;
    EXPECT_EQ(wrong_bytes(target.data(), bytes, 1), 0u) << bytes;
  }
  EXPECT_TRUE(settle());
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportSuite, ::testing::Values(messages_kind(), mapped_kind()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ropewalk::conformance
