// How the transport comes by its links: a handshake over an authenticated socket per peer, which
// stays open and tells when the peer has gone.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <system_error>
#include <utility>

#include "transports/ucx/peer.h"

namespace ropewalk {

namespace {

// Tags of epoll events: a peer's is its rank.
constexpr uint64_t kSocketsTag = uint64_t{1} << 32, kWorkerTag = kSocketsTag + 1,
                   kNapTag = kSocketsTag + 2;

// After so many refusals of UCX to sleep, one after the other, that brought nothing.
constexpr uint32_t kBusyArmsMax = 64;
constexpr int kRanksMax = 1 << 16;  // that links can name
// The first naps; each kNapsAlike of them the next are twice as long, three times.
constexpr long kNapNs = 2'000'000;
constexpr uint32_t kNapsAlike = 64, kNapDoublings = 3;

[[noreturn]] void fail_system(const char* call) {
  throw Error(ErrorCode::system, "ucx",
              fmt::format("{}: {}", call, std::generic_category().message(errno)),
              "raise the limit on open files (ulimit -n)");
}

int checked_size(int rank, int size) {
  if (size > kRanksMax)
    throw Error(ErrorCode::unavailable, "ucx",
                fmt::format("{} ranks; links over UCX can name {}", size, kRanksMax),
                "use ROPEWALK_TRANSPORT=verbs or tcp");
  if (size < 1 || rank < 0 || rank >= size)
    throw Error(ErrorCode::invalid_argument, "ucx", fmt::format("rank {} of {}", rank, size));
  return size;
}

// Keeps messages of former links apart; it is no secret from who can read the network.
uint32_t name_link(int peer) {
  return std::random_device{}() << 16 | static_cast<uint32_t>(peer);
}

}  // namespace

UcxTransport::Peer::Peer(UcxTransport& owner_, int rank_, uint32_t link_,
                         std::span<const std::byte> hello)
    : NetworkPeer(rank_), owner(owner_), link(link_) {
  for (Put& put : puts) put.peer = this;
  greeting.to_send = ucx::encode(
      {static_cast<uint32_t>(owner.rank_), link, owner.address_, {hello.begin(), hello.end()}});
}

UcxTransport::UcxTransport(int rank, int size, SocketSource& sockets)
    : rank_(rank),
      size_(checked_size(rank, size)),
      sockets_(sockets),
      epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      nap_fd_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      socket_watch_(sockets),
      peers_(rank, size_),
      worker_(size_),
      address_(worker_.address()) {
  if (!epoll_fd_) fail_system("epoll_create1");
  if (!nap_fd_) fail_system("timerfd_create");
  const auto count = static_cast<size_t>(size_);
  linking_.reserve(count);
  set_handler(ucx::kPutMessage, on_put);
  set_handler(ucx::kCompactPutMessage, on_compact_put);
  set_handler(ucx::kCreditMessage, on_credit);
  if (!watch_worker(true) || !watch(nap_fd_.get(), kNapTag)) fail_system("epoll_ctl");
}

UcxTransport::~UcxTransport() {
  // After a failure the sources and targets of what is under way may have gone already: UCX must
  // not move anything again, and it does not bear to be ended so (1.13 asserts).
  const auto touches_memory = [](const auto& peer) {
    return peer && peer->under_way > (peer->telling ? 1u : 0u) + (peer->flushing ? 1u : 0u);
  };
  abandoned_ |= std::any_of(peers_.all().begin(), peers_.all().end(), touches_memory);
  if (!abandoned_) flush_on_close();
  abandoned_ |= std::any_of(peers_.all().begin(), peers_.all().end(),
                            [](const auto& peer) { return peer && peer->wiring(); });
  if (abandoned_) {
    worker_.abandon();
    return;
  }
  for (const auto& peer : peers_.all())
    if (peer && !peer->released()) close(*peer);
  if (flush_ != nullptr) ucx::lib().ucp_request_free(flush_);
}

bool UcxTransport::watch(int fd, uint64_t tag) {
  return watch_descriptor(epoll_fd_.get(), fd, tag);
}

void UcxTransport::watch_for_sockets(bool on) {
  socket_watch_.set(on, epoll_fd_.get(), kSocketsTag);
}

void UcxTransport::connect(int peer, std::span<const std::byte> hello) {
  check_connect(rank_, size_, peer, hello);
  if (peers_.find(peer) != nullptr) return;
  linking_.push_back(&peers_.add(std::make_unique<Peer>(*this, peer, name_link(peer), hello)));
  watch_for_sockets(true);
  sockets_.request(peer, 0);
  take_sockets();
}

std::optional<std::span<const std::byte>> UcxTransport::hello_of(int peer) const {
  return peers_.hello_of(peer);
}

bool UcxTransport::is_wanted(int peer) const {
  return peers_.is_wanted(peer, sockets_);
}

LossReason UcxTransport::why_lost(int peer) const {
  return peers_.why_lost(peer);
}

void UcxTransport::take_sockets() {
  const bool all = ropewalk::take_sockets(sockets_, linking_, [this](Peer& peer) {
    if (watch(peer.greeting.socket.get(), static_cast<uint64_t>(peer.rank))) return advance(peer);
    peers_.lose(peer, why_not_watched(errno));
  });
  if (all) watch_for_sockets(false);
}

// Goes as far with the link as the socket allows.
void UcxTransport::advance(Peer& peer) {
  if (!peer.open() || !peer.greeting.socket) return;
  Greeting<ucx::HandshakeReader>& greeting = peer.greeting;
  greeting.send();
  const std::string error = greeting.receive([&](std::byte byte) {
    if (greeting.reader.complete())
      peers_.lose(peer, fmt::format("rank {} sent bytes after its handshake", peer.rank));
    else if (!greeting.reader.take(byte))
      peers_.lose(peer, fmt::format("rank {} {}", peer.rank, greeting.reader.violation()));
    return peer.open();
  });
  if (!error.empty()) {
    // One that has gone makes the descriptor readable for ever.
    epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, greeting.socket.get(), nullptr);
    peers_.lose_later(peer, error);
  }
  if (stopped_ || !peer.open() || !greeting.reader.complete() || !greeting.all_sent()) return;
  if (peer.endpoint == nullptr && error.empty()) start(peer);
  if (peer.state == Peer::State::linking) finish_link(peer);
}

// The handshake is complete. UCX (1.13, and 1.22 too) asserts where a peer ends while messages of
// its own, by which endpoints find each other, wait for a connection by TCP. So none is sent before
// connections stand in both directions: first the lower rank makes its own, and says so by a
// message so short that it needs no more; then the higher; and only its answer makes UCX's
// endpoints meet.
void UcxTransport::start(Peer& peer) {
  const ucx::Handshake& theirs = peer.greeting.reader.handshake();
  if (theirs.rank != static_cast<uint32_t>(peer.rank))
    return peers_.lose(peer, fmt::format("rank {} calls itself rank {}", peer.rank, theirs.rank));
  peer.their_link = theirs.link;
  if (rank_ > peer.rank && !peer.met) return;
  const ucs_status_t status = open_endpoint(peer);
  if (status != UCS_OK)
    return peers_.lose(peer,
                       fmt::format("UCX finds no way to it: {}; set UCX_TLS alike on every rank",
                                   ucx::text_of(status)));
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_flushed;
  param.user_data = &peer;
  ucs_status_ptr_t request = ucx::lib().ucp_ep_flush_nbx(peer.endpoint, &param);
  if (UCS_PTR_IS_ERR(request))
    return peers_.lose_later(peer,
                             "it could not be reached: " + ucx::text_of(UCS_PTR_STATUS(request)));
  peer.flushing = request != nullptr;
  if (peer.flushing) ++peer.under_way;
}

ucs_status_t UcxTransport::open_endpoint(Peer& peer) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address =
      reinterpret_cast<const ucp_address_t*>(peer.greeting.reader.handshake().address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_failure, &peer};
  const ucs_status_t status = ucx::lib().ucp_ep_create(worker_.get(), &params, &peer.endpoint);
  if (status != UCS_OK) peer.endpoint = nullptr;
  return status;
}

void UcxTransport::finish_link(Peer& peer) {
  if (peer.endpoint == nullptr || peer.flushing) return;
  if (!std::exchange(peer.greeted, true))
    tell(peer, rank_ > peer.rank ? UCP_AM_SEND_FLAG_REPLY : 0);
  if (!peer.met || peer.telling) return;
  peer.state = Peer::State::linked;
  peer.stood = true;
  std::erase(linking_, &peer);
  can_do_more();
  publish(peer);  // it may have been the first to be ready, and have put something
}

// ---- Waiting ----

// Sockets, which no progress of UCX moves.
void UcxTransport::poll_control() {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_fd_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
    uint64_t expirations = 0;
    if (tag < kSocketsTag) advance(peers_[tag]);
    if (tag == kNapTag) [[maybe_unused]]
      const ssize_t got = ::read(nap_fd_.get(), &expirations, sizeof expirations);
  }
  if (socket_watch_.on()) take_sockets();
  // From the last: one whose link stands then, the one at hand, leaves the list.
  for (size_t i = linking_.size(); i-- > 0;) advance(*linking_[i]);
}

bool UcxTransport::arm() {
  poll_control();
  drain();
  if (!peers_.failing().empty()) lose_failing();
  if (stopped_) return !peers_.any_ready();
  if (peers_.any_ready()) return false;
  const bool is_armed = worker_.arm();
  if (std::exchange(progress_made_, false)) return false;
  if (is_armed) busy_arms_ = 0;
  if (!is_armed && ++busy_arms_ < kBusyArmsMax) return false;
  if (!watch_worker(is_armed)) return false;
  if (!is_armed) nap();
  return true;
}

// While it is not armed its descriptor may be readable for ever.
bool UcxTransport::watch_worker(bool on) {
  if (on == watching_worker_) return true;
  if (on && !watch(worker_.event_fd(), kWorkerTag)) return false;
  if (!on) epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, worker_.event_fd(), nullptr);
  watching_worker_ = on;
  return true;
}

// Some of UCX's transports refuse to sleep while a message waits for room, and nothing tells when
// there is some. A peer that is long away must not cost a processor.
void UcxTransport::nap() {
  itimerspec after{};
  const uint32_t naps = busy_arms_ - kBusyArmsMax;
  after.it_value.tv_nsec = kNapNs << std::min(naps / kNapsAlike, kNapDoublings);
  timerfd_settime(nap_fd_.get(), 0, &after, nullptr);
}

}  // namespace ropewalk
