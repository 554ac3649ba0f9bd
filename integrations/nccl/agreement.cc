#include "integrations/nccl/agreement.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <utility>

#include "bootstrap/codec.h"
#include "integrations/nccl/logging.h"

namespace ropewalk::nccl {
namespace {

constexpr uint16_t kOfferVersion = 1;

[[noreturn]] void fail_control(const std::string& peer, const std::string& why) {
  throw Error(ErrorCode::peer_lost, "connect", fmt::format("lost {}: {}", peer, why),
              "look at that rank's output for why it has ended");
}

PeerRecord record_of(int rank, const std::string& host, const std::string& transport,
                     const std::string& info) {
  PeerRecord record;
  record.rank = rank;
  record.host_name = host;
  record.transport_infos.emplace(transport, info);
  return record;
}

}  // namespace

Agreement::Agreement(const Device& device, int rank, ConnectedSocket control, std::string peer)
    : device_(device),
      rank_(rank),
      control_(std::move(control.fd)),
      channel_(control.keys),
      peer_(std::move(peer)) {
  bootstrap::Writer offer;
  offer.integer(kOfferVersion);
  offer.text(device.provider->name, bootstrap::kNameBytesMax);
  offer.text(device.info, bootstrap::kTransportBytesMax);
  std::vector<std::byte> sealed;
  channel_.seal(offer.take(), sealed);
  // A fresh socket's buffer takes it whole.
  const ssize_t n = ::send(control_.get(), sealed.data(), sealed.size(), MSG_NOSIGNAL);
  if (n != static_cast<ssize_t>(sealed.size()))
    fail_control(peer_, n < 0 ? bootstrap::errno_text(errno) : "short write");
}

bool Agreement::advance() {
  std::array<std::byte, 4096> chunk;
  ssize_t n;
  while ((n = ::recv(control_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT)) > 0)
    received_.insert(received_.end(), chunk.begin(), chunk.begin() + n);
  const int error = errno;
  const bool is_open = channel_.open(received_, plain_);
  if (plain_.empty()) {
    if (!is_open) throw Error(ErrorCode::protocol, "connect", peer_ + " sent what does not open");
    if (n == 0) fail_control(peer_, "it closed the connection");
    if (n < 0 && error != EAGAIN && error != EINTR)
      fail_control(peer_, bootstrap::errno_text(error));
    return false;
  }
  bootstrap::Reader offer(plain_);
  uint16_t version = 0;
  offer.integer(version, kOfferVersion, kOfferVersion);
  offer.text(peers_transport_, bootstrap::kNameBytesMax);
  offer.text(peers_info_, bootstrap::kTransportBytesMax);
  if (!offer.done())
    throw Error(ErrorCode::protocol, "connect", peer_ + " made no offer that this version knows",
                "run the same version of Ropewalk on every rank");
  return true;
}

const TransportProvider* Agreement::choose() const {
  const TransportProvider* const own = device_.provider;
  if (peers_transport_ != own->name) {
    info("{} talks to {}, which has {}, over TCP", device_.name, peer_, peers_transport_);
    return &tcp_provider();
  }
  if (own->find_obstacle == nullptr) return own;
  const Obstacle obstacle =
      own->find_obstacle(PeerTable({record_of(rank_, "here", peers_transport_, device_.info),
                                    record_of(1 - rank_, peer_, peers_transport_, peers_info_)}),
                         false);
  if (obstacle.reason.empty()) return own;
  warn("{} talks to {} over TCP: {}; run `ropewalk doctor` on both hosts", device_.name, peer_,
       obstacle.reason);
  return &tcp_provider();
}

LinkParts Agreement::make_parts(std::unique_ptr<PairSockets> sockets) {
  const TransportProvider* const provider = choose();
  // What was told of another transport is nothing to this one.
  std::vector<std::string> infos(2);
  if (peers_transport_ == provider->name) infos[static_cast<size_t>(1 - rank_)] = peers_info_;
  MakeTransport make;
  if (provider == device_.provider) {
    infos[static_cast<size_t>(rank_)] = device_.info;
    make = device_.make[static_cast<size_t>(rank_)];  // a copy, of which each call makes one
  } else {
    make = provider->find(device_.config, rank_, 2).make;
  }
  assert(make);
  LinkParts parts;
  parts.transport = make(infos, *sockets);
  parts.sockets = std::move(sockets);
  parts.control = std::move(control_);
  parts.peer = peer_;
  info("{}: {} {} over {}", device_.name, rank_ == kSenderRank ? "to" : "from", peer_,
       provider->name);
  return parts;
}

}  // namespace ropewalk::nccl
