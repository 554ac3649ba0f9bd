// What docs/protocol.md prints as examples is what ranks send.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/auth.h"
#include "bootstrap/monitor_testing.h"
#include "bootstrap/wire.h"
#include "job/plan_request.h"
#include "tests/support/lone_engine.h"
#include "transports/fake/forwarding_transport.h"
#include "transports/fake/instant_fabric.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/records.h"
#include "transports/ucx/handshake.h"
#include "transports/ucx/message.h"
#include "transports/verbs/handshake.h"

namespace ropewalk {
namespace {

/// The indented lines after "<!-- bytes: NAME -->", without what stands behind two blanks. Bytes
/// are written as "00 2a ff".
std::string printed(const std::string& name) {
  const char* path = std::getenv("PROTOCOL_DOCUMENT");  // meson sets it
  std::ifstream document(path == nullptr ? "docs/protocol.md" : path);
  std::string line, hex;
  while (std::getline(document, line) && line != "<!-- bytes: " + name + " -->") continue;
  while (std::getline(document, line) && (line.empty() || line.starts_with("    "))) {
    const std::string bytes = line.substr(std::min<size_t>(line.size(), 4));
    const size_t end = bytes.find("  ");
    if (end != 0 && !bytes.empty()) hex += (hex.empty() ? "" : " ") + bytes.substr(0, end);
  }
  return hex;
}

std::string hex_of(const std::byte* bytes, size_t count) {
  std::string hex;
  for (size_t i = 0; i < count; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned>(bytes[i]);
    if (i > 0) hex += ' ';
    hex += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return hex;
}
std::string hex_of(const std::vector<std::byte>& bytes) {
  return hex_of(bytes.data(), bytes.size());
}

struct Put {
  std::vector<std::byte> bytes;
  RemoteKey key;
  uint64_t offset;
  uint32_t notice;
  bool urgent;
};

/// How a transport makes the id of a key of a slot in its table, used for the first time.
using IdOf = uint64_t (*)(uint64_t slot);
constexpr uint64_t tcp_id(uint64_t slot) {
  return uint64_t{1} << 32 | slot;  // src/memory/regions.h
}
constexpr uint64_t shm_id(uint64_t slot) {
  return (slot + 1) << 14 | slot;  // transports/shm/region_table.h
}
constexpr uint64_t slot_of(uint64_t id) {
  return id & 0x3fff;
}

/// Keeps what passes; names memory as TCP or shared memory would.
class Recorder final : public ForwardingTransport, public MappedMemory {
 public:
  Recorder(Transport& below, IdOf id_of)
      : ForwardingTransport(below), mapped_below_(below.mapped_memory()), id_of_(id_of) {}
  std::vector<std::byte> hello;
  std::vector<Put> puts;
  std::vector<Region> regions;

  std::unique_ptr<MemoryRegistration> register_memory(const Region& region) override {
    const RemoteKey key{id_of_(regions.size()), region.bytes};
    regions.push_back(region);
    return std::make_unique<Named>(below_.register_memory(region), key);
  }
  void connect(int peer, std::span<const std::byte> bytes) override {
    hello.assign(bytes.begin(), bytes.end());
    below_.connect(peer, bytes);
  }
  Posted put(const PutRequest& request) override {
    puts.push_back({{request.source, request.source + request.bytes},
                    request.key,
                    request.offset,
                    request.notice,
                    request.urgent});
    PutRequest renamed = request;
    renamed.key = below(request.key);
    return below_.put(renamed);
  }
  MappedMemory* mapped_memory() override { return mapped_below_ != nullptr ? this : nullptr; }
  std::unique_ptr<TransportAllocation> allocate(size_t bytes) override {
    return mapped_below_->allocate(bytes);
  }
  std::byte* map(int peer, RemoteKey key, uint64_t offset, size_t bytes) override {
    return mapped_below_->map(peer, below(key), offset, bytes);
  }
  void unmap_deregistered() override { mapped_below_->unmap_deregistered(); }
  void wake(int peer) override { mapped_below_->wake(peer); }

 private:
  class Named final : public MemoryRegistration {
   public:
    Named(std::unique_ptr<MemoryRegistration> below, RemoteKey key)
        : below_(std::move(below)), key_(key) {}
    RemoteKey key() const override { return key_; }
    const std::byte* base() const override { return below_->base(); }

   private:
    const std::unique_ptr<MemoryRegistration> below_;
    const RemoteKey key_;
  };
  /// InstantFabric makes ids as TCP does.
  static RemoteKey below(RemoteKey key) { return {tcp_id(slot_of(key.id)), key.bytes}; }

  MappedMemory* const mapped_below_;
  const IdOf id_of_;
};

/// Two ranks that call all_reduce once, as the planner wants it.
class Pair {
 public:
  Pair(bool mapped, std::vector<int> hosts)
      : hosts_(std::move(hosts)), fabric_(2, {.load_store = mapped}) {
    for (int rank = 0; rank < 2; ++rank) {
      transports_[rank] =
          std::make_unique<Recorder>(fabric_.transport(rank), mapped ? shm_id : tcp_id);
      engines_[rank] =
          std::make_unique<LoneEngine>(rank, 2, std::vector<Transport*>{transports_[rank].get()},
                                       std::vector<int>{0, 0}, memories_[rank], monitor_, clock_);
    }
  }

  Recorder& transport(int rank) { return *transports_[rank]; }
  float* allocate(int rank, size_t count) {
    buffers_.push_back(std::make_shared<RegisteredMemory>(count * sizeof(float)));
    buffers_.back()->register_with(*transports_[rank]);
    memories_[rank].add(buffers_.back());
    return reinterpret_cast<float*>(buffers_.back()->data());
  }

  void all_reduce(std::array<float*, 2> vectors, size_t count) {
    for (int rank = 0; rank < 2; ++rank) {
      Call call;
      call.in = call.out = vectors[rank];
      call.count = count;
      const TransportChoice transports{&shm_provider(), &tcp_provider()};
      const PlanDecision decision =
          plan_for(call, Config(), transports, {.hosts = hosts_}, unmeasured_costs(transports));
      const Schedule schedule =
          build_schedule({call.collective, decision.algorithm, 2, 0, hosts_}, rank);
      operations_.push_back(
          engines_[rank]->prepare(call, schedule, decision.algorithm, decision.slice_bytes));
      engines_[rank]->start(*operations_.back());
    }
    constexpr int kTurnsMax = 100;
    for (int turn = 0; turn < kTurnsMax; ++turn)
      for (auto& engine : engines_) engine->progress();
    for (const auto& operation : operations_) EXPECT_EQ(operation->state, Operation::State::done);
  }

 private:
  const std::vector<int> hosts_;
  const MonotonicClock clock_;
  NothingFails monitor_;
  InstantFabric fabric_;
  std::array<std::unique_ptr<Recorder>, 2> transports_;
  std::array<MemoryRegistry, 2> memories_;
  std::array<std::unique_ptr<LoneEngine>, 2> engines_;
  std::vector<std::shared_ptr<RegisteredMemory>> buffers_;
  std::vector<std::shared_ptr<Operation>> operations_;
};

std::string frame(const tcp::FrameHeader& header) {
  std::vector<std::byte> bytes(tcp::kFrameHeaderBytes);
  tcp::encode(header, bytes.data());
  return hex_of(bytes);
}

TEST(WireExample, ShortMessageOverTcp) {
  Pair pair(false, {0, 1});
  std::array<std::array<float, 2>, 2> vectors = {{{1, 2}, {3, 4}}};
  pair.all_reduce({vectors[0].data(), vectors[1].data()}, 2);
  EXPECT_EQ(vectors[0], (std::array<float, 2>{4, 6}));

  const Recorder& sender = pair.transport(0);
  ASSERT_EQ(sender.puts.size(), 1u);
  EXPECT_EQ(pair.transport(1).puts.size(), 1u);
  const Put& put = sender.puts[0];
  EXPECT_EQ(hex_of(put.bytes), printed("eager message"));
  EXPECT_EQ(put.notice, 0x20000001u);
  EXPECT_EQ(sender.regions[slot_of(put.key.id)].bytes, 526592u);

  const auto bytes = static_cast<uint32_t>(put.bytes.size());
  EXPECT_TRUE(put.urgent);
  EXPECT_EQ(frame({tcp::FrameKind::urgent, put.notice, put.key.id, put.offset, bytes, bytes,
                   /*sequence=*/0}),
            printed("its frame"));
  const auto hello_bytes = static_cast<uint32_t>(sender.hello.size());
  EXPECT_EQ(frame({tcp::FrameKind::hello, tcp::kProtocolVersion, /*rank=*/0, /*stream=*/0,
                   hello_bytes, /*streams=*/1, 0}) +
                " " + hex_of(sender.hello),
            printed("hello"));
}

TEST(WireExample, DescriptorOverSharedMemory) {
  constexpr size_t kCount = 16384;
  Pair pair(true, {0, 0});
  const std::array<float*, 2> vectors = {pair.allocate(0, kCount), pair.allocate(1, kCount)};
  for (size_t i = 0; i < kCount; ++i) vectors[0][i] = 1, vectors[1][i] = 2;
  pair.all_reduce(vectors, kCount);
  EXPECT_EQ(std::count(vectors[0], vectors[0] + kCount, 3.0f), kCount);

  const std::byte* inbox = pair.transport(1).regions[1].base + kRingOffset;
  EXPECT_EQ(hex_of(inbox, 48) + " " + hex_of(inbox + 64, 64), printed("descriptor"));
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(pair.transport(rank).puts.size(), 1u);
    EXPECT_EQ(pair.transport(rank).puts[0].notice, 0xa0000001u);
  }
}

TEST(WireExample, HandshakeAndFirstRecord) {
  using namespace bootstrap;
  start_cryptography();
  // X25519 of 32 times 0x11 and 0x22.
  const auto key = [](std::string_view hex) {
    PublicKey bytes;
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(std::stoi(std::string(hex.substr(2 * i, 2)), nullptr, 16));
    return bytes;
  };
  Hello hello;
  hello.from = 1;
  hello.public_key = key("7b4e909bbe7ffe44c465a220037d608ee35897d31ef972f07f74892cb0f73f13");
  Reply reply;
  reply.public_key = key("0faa684ed28867b97f4a6a2dee5df8ce974e76b7018e3f22a1c4cf2678570f20");
  Key secret_key;
  secret_key.fill(0x11);
  const auto secrets =
      HandshakeSecrets::derive(job_key("secret"), hello, reply, secret_key, reply.public_key);
  EXPECT_EQ(hex_of(secrets->proof().data(), kProofBytes), printed("proof"));
  SecureChannel dialer(secrets->dialers_keys());
  Bytes record;
  dialer.seal(frame(FrameType::ready), record);
  EXPECT_EQ(hex_of(record), printed("record"));
}

TEST(WireExample, FramesOfTheBootstrap) {
  bootstrap::start_cryptography();
  const auto keys_of = [](uint8_t seed) {
    Key bytes;
    bytes.fill(seed);
    return bootstrap::signing_keys(bytes);
  };
  LeaveToken token;
  token.fill(std::byte{0x77});
  const PeerRecord record{1,
                          1234,
                          "a",
                          "id-a",
                          {"127.0.0.1:4242"},
                          "auto",
                          "0-3,8",
                          {{"shm", "shm3:1234:6:00c0ffee00c0ffee:5"}, {"verbs", "!no port"}},
                          {1, 4},
                          keys_of(0x33).verify_key,
                          bootstrap::commitment_to(token)};
  EXPECT_EQ(hex_of(bootstrap::frame(bootstrap::Join{2, {{30000, record}}})), printed("join"));
  const auto said = [&](uint8_t seed, const auto& message) {
    bootstrap::WorldId world;
    world.fill(std::byte{0x55});
    const auto type = bootstrap::type_of(message);
    return hex_of(bootstrap::frame(bootstrap::Signed<std::decay_t<decltype(message)>>{
        message, bootstrap::sign(keys_of(seed), world, type, bootstrap::encode(message))}));
  };
  EXPECT_EQ(said(0x33, bootstrap::Leave{1, {2, 0x8e1f90ab, "barrier(1 uint8)"}, token}),
            printed("leave"));
  EXPECT_EQ(
      said(0x44,
           bootstrap::JobFailure{
               {ErrorCode::peer_lost, "control", "cut off: r", "adv", 0, 4, {4, 5, 6, 7, 9}}, 0}),
      printed("failure"));
  const Wait wait{.operation = Collective::recv,
                  .sequence = 7,
                  .awaited = true,
                  .since_ns = 30'000'000'000,
                  .peers = {3},
                  .peer_count = 1};
  EXPECT_EQ(said(0x33, bootstrap::Waits{1, {0, 8, {wait}}}), printed("waits"));
  const bootstrap::AgreementMessage accept{
      .kind = bootstrap::AgreementMessage::Kind::accept,
      .instance = 1,
      .ballot = {1, 0},
      .decision = {.members = {0, 1, 2, 3, 8}, .ended = {9}, .bits = 0, .call = 2, .text = "id"}};
  EXPECT_EQ(hex_of(bootstrap::frame(accept)), printed("agreement"));
}

TEST(WireExample, SealedRecordOverTcp) {
  tcp::FrameBytes header;
  tcp::encode({tcp::FrameKind::put, 7, uint64_t{1} << 32, 16, 2, 2, 0}, header.data());
  std::vector<std::byte> frame(header.begin(), header.end());
  frame.insert(frame.end(), {std::byte{0xaa}, std::byte{0xbb}});
  Key key;
  std::iota(key.begin(), key.end(), static_cast<unsigned char>(0));
  std::vector<std::byte> record(frame.size() + tcp::RecordCipher::kOverheadBytes);
  tcp::RecordCipher(key).seal(frame, record.data());
  EXPECT_EQ(hex_of(record), printed("sealed record"));
}

TEST(WireExample, HandshakeOfVerbs) {
  verbs::Handshake handshake;
  handshake.rank = 3;
  handshake.notices = 256;
  verbs::LaneAddress& lane = handshake.lanes.emplace_back();
  lane.queue_pair = 0x11;
  lane.packet_number = 0x123456;
  lane.port.link_layer = verbs::LinkLayer::ethernet;
  lane.port.mtu = 5;
  const std::array<int, 6> address = {0xff, 0xff, 10, 99, 0, 1};
  for (size_t i = 0; i < address.size(); ++i)
    lane.port.gid[10 + i] = static_cast<std::byte>(address[i]);
  EXPECT_EQ(hex_of(verbs::encode(handshake)), printed("verbs handshake"));
}

TEST(WireExample, MessagesOverUcx) {
  const std::vector<std::byte> address(4, std::byte{0xaa});
  EXPECT_EQ(hex_of(ucx::encode(ucx::Handshake{3, 0x33440001, address, {}})),
            printed("ucx handshake"));
  std::array<std::byte, ucx::kPutHeaderBytes> put;
  ucx::encode(ucx::PutHeader{0x33440001, 7, 5, 2, 0x100000002, 4096}, put.data());
  EXPECT_EQ(hex_of(put.data(), put.size()), printed("ucx put"));
  ucx::encode_compact(ucx::PutHeader{0x33440001, 7, 5, 2, 0x100000002, 4096}, put.data());
  EXPECT_EQ(hex_of(put.data(), ucx::kCompactPutHeaderBytes), printed("ucx compact put"));
  std::array<std::byte, ucx::kCreditBytes> credit;
  ucx::encode(ucx::Credit{0x33440001, 66}, credit.data());
  EXPECT_EQ(hex_of(credit.data(), credit.size()), printed("ucx credit"));
}

}  // namespace
}  // namespace ropewalk
