#include "integrations/nccl/setup.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <utility>

#include "bootstrap/net.h"

namespace ropewalk::nccl {
namespace {

using bootstrap::HandshakeResult;

/// Sockets of transports are numbered from 0; tcp has at most 16 of a peer.
constexpr uint32_t kStreamsMax = 16;

}  // namespace

Listener::Listener(const Device& device, const Secret& job_key, std::byte* handle)
    : device_(device), sockets_(std::make_unique<PairSockets>()) {
  if (device.addresses.empty())
    throw Error(ErrorCode::unavailable, "listen", "no network interface is up",
                "ip link set lo up, at least");
  // At one address, where there is one.
  std::vector<UniqueFd> own;
  own.push_back(device.addresses.size() == 1 ? bootstrap::listen_at(device.addresses[0])
                                             : bootstrap::listen_everywhere(0));
  handle_.addresses = device.addresses;
  const uint16_t port = bootstrap::local_address(own[0].get()).port();
  for (bootstrap::SocketAddress& address : handle_.addresses) address.set_port(port);
  handle_.has_job_key = !job_key.empty();
  randombytes_buf(handle_.random.data(), handle_.random.size());
  const Key key = handle_.key(job_key);
  acceptor_.emplace(std::move(own), std::vector<UniqueFd>(), -1, key);
  acceptor_->set_session_key(key);
  sockets_in_use_ = sockets_.get();
  handle_.encode(handle);
}

std::unique_ptr<ReceiveLink> Listener::accept() {
  const int64_t now_ns = clock_.now_ns();
  bootstrap::PollSet set;
  acceptor_->prepare(set, now_ns);
  set.wake_at(now_ns);
  set.wait(now_ns);
  for (bootstrap::AuthenticatedSocket& incoming : acceptor_->advance(set, now_ns))
    take(std::move(incoming));
  if (!link_ && agreement_ && agreement_->advance())
    link_ = std::make_unique<ReceiveLink>(agreement_->make_parts(std::move(sockets_)));
  if (!link_ || !link_->advance_link()) return nullptr;
  agreement_.reset();
  sockets_ = std::make_unique<PairSockets>();
  sockets_in_use_ = sockets_.get();
  return std::move(link_);
}

HandshakeResult Listener::judge(const bootstrap::Hello& hello) const {
  if (hello.purpose != bootstrap::Purpose::socket || hello.from != kSenderRank ||
      hello.to != kReceiverRank)
    return HandshakeResult::wrong_rank;
  if (hello.version != bootstrap::kProtocolVersion) return HandshakeResult::wrong_version;
  if (hello.stream == kControlStream)
    return agreement_ ? HandshakeResult::already : HandshakeResult::accepted;
  return agreement_ && hello.stream < kStreamsMax ? HandshakeResult::accepted
                                                  : HandshakeResult::wrong_rank;
}

void Listener::take(bootstrap::AuthenticatedSocket incoming) {
  const HandshakeResult result = judge(incoming.hello);
  if (!send_result(incoming, result) || result != HandshakeResult::accepted) return;
  bootstrap::tune_data_stream(incoming.fd.get());
  const auto stream = static_cast<int>(incoming.hello.stream);
  const std::string peer = bootstrap::peer_address(incoming.fd.get()).text();
  if (stream == kControlStream)
    agreement_ = std::make_unique<Agreement>(device_, kReceiverRank, incoming.connected(), peer);
  else
    sockets_in_use_->deliver(stream, incoming.connected());
}

Connector::Connector(const Device& device, const Secret& job_key, const Handle& handle)
    : device_(device),
      peer_(handle.addresses[0].text()),
      deadline_ns_(clock_.now_ns() + device.config.timeout.count()),
      sockets_(std::make_unique<PairSockets>(handle.addresses, handle.key(job_key))) {
  sockets_->request(kReceiverRank, kControlStream);
}

std::unique_ptr<SendLink> Connector::connect() {
  const int64_t now_ns = clock_.now_ns();
  if (!agreement_) {
    sockets_->advance(now_ns);
    ConnectedSocket control = sockets_->take(kReceiverRank, kControlStream);
    if (!control) {
      check_deadline(now_ns);
      return nullptr;
    }
    bootstrap::tune_data_stream(control.fd.get());
    agreement_ = std::make_unique<Agreement>(device_, kSenderRank, std::move(control), peer_);
  }
  if (!link_ && agreement_->advance())
    link_ = std::make_unique<SendLink>(agreement_->make_parts(std::move(sockets_)));
  if (!link_ || !link_->advance_link()) return nullptr;
  return std::move(link_);
}

/// A peer that listens answers as soon as NCCL there calls `accept`.
void Connector::check_deadline(int64_t now_ns) const {
  if (sockets_->is_gone())
    throw Error(ErrorCode::peer_lost, "connect", fmt::format("{}: nothing listens there", peer_),
                "look at that rank's output for why it has ended");
  if (now_ns < deadline_ns_) return;
  const std::string why = sockets_->why();
  throw Error(ErrorCode::timeout, "connect",
              fmt::format("{} did not answer in time{}{}", peer_, why.empty() ? "" : ": ", why),
              "give every rank the same ROPEWALK_JOB_KEY, and let the hosts reach each other; "
              "ROPEWALK_TIMEOUT waits longer, ROPEWALK_SOCKET_IFNAME names other interfaces");
}

}  // namespace ropewalk::nccl
