// What a link over UCX does with messages that no transport of ours would send.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "transports/tcp/test_sockets.h"
#include "transports/ucx/handshake.h"
#include "transports/ucx/inbox.h"
#include "transports/ucx/library.h"
#include "transports/ucx/message.h"
#include "transports/ucx/ucx_transport.h"

namespace ropewalk {
namespace {

using Bytes = std::vector<std::byte>;

/// Rank 1, which shakes hands as it should, and then sends what it is told to.
class Stranger {
 public:
  explicit Stranger(SocketSource& sockets) : worker_(2) {
    ucp_am_handler_param_t param{};  // UCX does not bear messages without one
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
    param.id = ucx::kCreditMessage;
    param.cb = [](void*, const void*, size_t, void*, size_t, const ucp_am_recv_param_t*) {
      return UCS_OK;
    };
    EXPECT_EQ(ucx::lib().ucp_worker_set_am_recv_handler(worker_.get(), &param), UCS_OK);
    sockets.request(0, 0);
    greeting_.begin(sockets.take(0, 0));
    greeting_.queue(ucx::encode(ucx::Handshake{1, kLink, worker_.address(), {}}));
    greeting_.send();
  }
  ~Stranger() = default;
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  /// True once the transport's own handshake is here.
  bool meet() {
    ucx::HandshakeReader& reader = greeting_.reader;
    EXPECT_EQ(greeting_.receive([&](std::byte byte) { return reader.take(byte); }), "");
    if (!reader.complete()) return false;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;  // as the transport
    params.address = reinterpret_cast<const ucp_address_t*>(reader.handshake().address.data());
    EXPECT_EQ(ucx::lib().ucp_ep_create(worker_.get(), &params, &endpoint_), UCS_OK);
    ucx::encode(ucx::Credit{link(), 0}, contact_.data());
    EXPECT_FALSE(UCS_PTR_IS_ERR(post(ucx::kCreditMessage, {}, contact_)));
    return true;
  }
  uint32_t link() const { return greeting_.reader.handshake().link; }
  void progress() { worker_.progress(); }

  /// UCX's request, or null where the message has left.
  ucs_status_ptr_t post(unsigned id, const Bytes& header, const Bytes& payload) {
    const ucp_request_param_t param{};
    return ucx::lib().ucp_am_send_nbx(endpoint_, id, header.data(), header.size(), payload.data(),
                                      payload.size(), &param);
  }

 private:
  static constexpr uint32_t kLink = 0x77770000;
  ucx::Worker worker_;
  Greeting<ucx::HandshakeReader> greeting_;
  ucp_ep_h endpoint_ = nullptr;
  Bytes contact_ = Bytes(ucx::kCreditBytes);
};

class UcxStranger : public testing::Test {
 protected:
  UcxStranger() {
    Region region;
    region.base = target_.data();
    region.bytes = target_.size();
    memory_ = transport_.register_memory(region);
    transport_.connect(1, {});
    while (!stranger_.meet()) transport_.poll(seen_);
    until([this] { return transport_.connected(1); });
  }

  template <class Done>
  void until(const Done& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      stranger_.progress();
      const size_t count = transport_.poll(seen_);
      for (size_t i = 0; i < count; ++i) {
        notices_ += seen_[i].kind == Completion::Kind::notice;
        lost_ += seen_[i].kind == Completion::Kind::lost;
      }
    }
    EXPECT_TRUE(done());
  }
  void send(unsigned id, const Bytes& header, const Bytes& payload) {
    ucs_status_ptr_t request = stranger_.post(id, header, payload);
    ASSERT_FALSE(UCS_PTR_IS_ERR(request));
    if (request == nullptr) return;
    until([&] { return ucx::lib().ucp_request_check_status(request) != UCS_INPROGRESS; });
    ucx::lib().ucp_request_free(request);
  }
  ucx::PutHeader header(uint16_t sequence = 0) {
    return {stranger_.link(), 7, sequence, 0, memory_->key().id, 0};
  }
  void send_put(const ucx::PutHeader& header, size_t bytes = 8) {
    Bytes message(ucx::kPutHeaderBytes + bytes);
    ucx::encode(header, message.data());
    send(ucx::kPutMessage, {}, message);
  }
  void expect_lost(const std::string& why) {
    until([this] { return lost_ == 1; });
    EXPECT_EQ(transport_.why_lost(1).text, why);
  }
  /// What came before had no effect: a right put arrives.
  void expect_ignored() {
    send_put(header());
    until([this] { return notices_ == 1; });
    EXPECT_EQ(lost_, 0);
  }

  tcp::LocalNetwork network_{2, tcp::LocalNetwork::Kind::unix_sockets};
  UcxTransport transport_{0, 2, network_.source(0)};
  Bytes target_ = Bytes(64);
  std::unique_ptr<MemoryRegistration> memory_;
  Stranger stranger_{network_.source(1)};
  std::array<Completion, 16> seen_;
  int notices_ = 0, lost_ = 0;
};

// UCX may assert where it is still connecting to a process that has gone, and does not bear that
// the connection is given up: then all peers would be lost.
TEST(UcxPeerThatDiesAfterItsHandshake, IsNotConnectedTo) {
  tcp::LocalNetwork network(3, tcp::LocalNetwork::Kind::unix_sockets);
  UcxTransport transport(0, 3, network.source(0));
  UcxTransport survivor(2, 3, network.source(2));
  network.source(1).request(0, 0);
  const ConnectedSocket socket = network.source(1).take(0, 0);
  Bytes handshake;
  {
    const ucx::Worker worker(3);
    handshake = ucx::encode(ucx::Handshake{1, 0x77770000, worker.address(), {}});
  }
  Bytes sealed;
  SecureChannel(socket.keys).seal(handshake, sealed);
  ASSERT_EQ(::send(socket.fd.get(), sealed.data(), sealed.size(), 0),
            static_cast<ssize_t>(sealed.size()));
  ::shutdown(socket.fd.get(), SHUT_WR);  // what is sent to it is not refused yet, as by a network

  std::array<Completion, 1> seen;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  transport.connect(1, {});
  while (transport.poll(seen) == 0 && std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_EQ(seen[0].kind, Completion::Kind::lost);
  EXPECT_EQ(transport.why_lost(1).text, "connection closed by the peer");
  transport.connect(2, {});
  survivor.connect(0, {});
  while (!(transport.connected(2) && survivor.connected(0)) &&
         std::chrono::steady_clock::now() < deadline) {
    transport.poll(seen);
    survivor.poll(seen);
  }
  EXPECT_TRUE(transport.connected(2) && survivor.connected(0));
}

TEST_F(UcxStranger, MessagesThatAreTooShortAreIgnored) {
  for (const unsigned id : {ucx::kPutMessage, ucx::kCompactPutMessage, ucx::kCreditMessage})
    for (const size_t bytes : {0, 1, 5}) send(id, {}, Bytes(bytes));
  send(ucx::kPutMessage, {}, Bytes(ucx::kPutHeaderBytes - 1));
  send(ucx::kCompactPutMessage, {}, Bytes(ucx::kCompactPutHeaderBytes - 1));
  send(ucx::kPutMessage, Bytes(3), Bytes(100));
  expect_ignored();
}

TEST_F(UcxStranger, MessagesOfOtherLinksAreIgnored) {
  for (const uint32_t link : {0u, 1u, stranger_.link() ^ 0x10000, stranger_.link() + 1, ~0u}) {
    if (link == stranger_.link()) continue;  // one in 2^16
    ucx::PutHeader forged = header();
    forged.link = link;
    send_put(forged);
    Bytes credit(ucx::kCreditBytes);
    ucx::encode(ucx::Credit{link, 99}, credit.data());
    send(ucx::kCreditMessage, {}, credit);
  }
  expect_ignored();
}

TEST_F(UcxStranger, APutBeyondTheWindowEndsTheLink) {
  send_put(header(ucx::Inbox::kWindow));
  expect_lost("it sent more than it may, or the same twice");
}

TEST_F(UcxStranger, APutSentTwiceEndsTheLink) {
  send_put(header(1));
  send_put(header(1));
  expect_lost("it sent more than it may, or the same twice");
}

TEST_F(UcxStranger, APutToNoRegionEndsTheLink) {
  ucx::PutHeader forged = header();
  forged.key += 1;
  send_put(forged);
  expect_lost("it put to memory that is not, or no longer, registered");
}

TEST_F(UcxStranger, APutBeyondItsRegionEndsTheLink) {
  ucx::PutHeader forged = header();
  forged.offset = target_.size() - 7;
  send_put(forged);
  expect_lost("it put to memory that is not, or no longer, registered");
}

TEST_F(UcxStranger, CreditsForWhatWasNeverSentEndTheLink) {
  ucx::PutHeader forged = header();
  forged.taken = 1;
  send_put(forged);
  expect_lost("it gave back more than it was sent");
}

TEST_F(UcxStranger, ACreditMessageForWhatWasNeverSentEndsTheLink) {
  Bytes credit(ucx::kCreditBytes);
  ucx::encode(ucx::Credit{stranger_.link(), 1}, credit.data());
  send(ucx::kCreditMessage, {}, credit);
  expect_lost("it gave back more than it was sent");
}

// The stranger goes after every number of its own turns and of ours.
TEST(UcxLinks, APeerThatGoesWhileTheyAreMadeIsLost) {
  constexpr int kTurnsMax = 8;
  for (int turn = 0; turn < kTurnsMax * kTurnsMax; ++turn) {
    SCOPED_TRACE(turn);
    tcp::LocalNetwork network(2, tcp::LocalNetwork::Kind::unix_sockets);
    UcxTransport transport(0, 2, network.source(0));
    std::array<Completion, 16> seen;
    auto stranger = std::make_unique<Stranger>(network.source(1));
    transport.connect(1, {});
    while (!stranger->meet()) transport.poll(seen);
    for (int i = 0; i < turn / kTurnsMax; ++i) stranger->progress();
    for (int i = 0; i < turn % kTurnsMax; ++i) transport.poll(seen);
    for (int i = 0; i < turn % 3; ++i) stranger->progress();
    stranger.reset();
    bool is_lost = false;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!is_lost && std::chrono::steady_clock::now() < deadline) {
      const size_t count = transport.poll(seen);
      for (size_t i = 0; i < count; ++i) is_lost |= seen[i].kind == Completion::Kind::lost;
    }
    EXPECT_TRUE(is_lost);
  }
}

}  // namespace
}  // namespace ropewalk
