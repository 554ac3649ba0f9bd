// How the transport comes by its links: a handshake over an authenticated socket per peer, which
// stays open and tells when the peer has gone.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "transports/ucx/ucx_transport.h"

namespace ropewalk {

namespace {

// Tags of epoll events; a peer's is its rank.
constexpr uint64_t kWorkerTag = uint64_t{1} << 32, kPollTimerTag = kWorkerTag + 1;

// After so many refusals of UCX to sleep, one after the other, that brought nothing.
constexpr uint32_t kBusyArmsMax = 64;
constexpr int kRanksMax = 1 << 16;  // that links can name
// Of the timer, at first; after each kPollTimerRepeats it doubles, three times.
constexpr long kPollTimer_ns = 2'000'000;
constexpr uint32_t kPollTimerRepeats = 64, kPollTimerDoublings = 3;

int checked_size(int size) {
  if (size > kRanksMax)
    throw Error(ErrorCode::unavailable, "ucx",
                fmt::format("{} ranks; links over UCX can name {}", size, kRanksMax),
                "use ROPEWALK_TRANSPORT=verbs or tcp");
  return size;
}

// Keeps messages of former links apart; it is no secret from who can read the network.
uint32_t name_link(int peer) {
  return std::random_device{}() << 16 | static_cast<uint32_t>(peer);
}

}  // namespace

UcxTransport::UcxTransport(int rank, int size, SocketSource& sockets)
    : GreetedTransport("ucx", rank, checked_size(size), sockets),
      poll_timer_fd_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      worker_(size),
      address_(worker_.address()) {
  if (!poll_timer_fd_) fail_system("ucx", "timerfd_create");
  set_handler(ucx::kPutMessage, on_put);
  set_handler(ucx::kCompactPutMessage, on_compact_put);
  set_handler(ucx::kCreditMessage, on_credit);
  if (!watch_worker(true) || !watch(poll_timer_fd_.get(), kPollTimerTag))
    fail_system("ucx", "epoll_ctl");
}

UcxTransport::~UcxTransport() {
  // After a failure the sources and targets of what is under way may have gone already: UCX must
  // not move anything again, and it does not bear to be ended so (1.13 asserts).
  abandoned_ |= std::ranges::any_of(peers_.added(), [](const Peer& peer) {
    return peer.under_way > (peer.telling ? 1u : 0u) + (peer.flushing ? 1u : 0u);
  });
  if (!abandoned_) flush_on_close();
  abandoned_ |= std::ranges::any_of(peers_.added(), &Peer::wiring);
  if (abandoned_) {
    worker_.abandon();
    return;
  }
  for (Peer& peer : peers_.added())
    if (!peer.released()) close(peer);
  if (flush_ != nullptr) ucx::lib().ucp_request_free(flush_);
}

void UcxTransport::connect(int peer, std::span<const std::byte> hello) {
  if (!is_new(peer, hello)) return;
  auto added = std::make_unique<Peer>(*this, peer, name_link(peer));
  added->greeting.queue(ucx::encode(
      {static_cast<uint32_t>(rank_), added->link, address_, {hello.begin(), hello.end()}}));
  begin_link(std::move(added));
}

void UcxTransport::advance(Peer& peer) {
  const Greeting<ucx::HandshakeReader>& greeting = peer.greeting;
  const bool is_there = greet(
      peer, [] {}, [](std::byte) { return false; });
  if (stopped_ || !peer.open() || !greeting.reader.complete() || !greeting.all_sent()) return;
  if (peer.endpoint == nullptr && is_there) start(peer);
  if (peer.state == Peer::State::linking) finish_link(peer);
}

// The handshake is complete. UCX (1.13, and 1.22 too) asserts where a peer ends while messages of
// its own, by which endpoints find each other, wait for a connection by TCP. So none is sent before
// connections stand in both directions: first the lower rank makes its own, and says so by a
// message so short that it needs no more; then the higher; and only its answer makes UCX's
// endpoints meet.
void UcxTransport::start(Peer& peer) {
  peer.their_link = peer.greeting.reader.handshake().link;
  if (rank_ > peer.rank && !peer.met) return;
  const ucs_status_t status = open_endpoint(peer);
  if (status != UCS_OK)
    return peers_.lose(peer,
                       fmt::format("UCX finds no way to it: {}; set UCX_TLS alike on every rank",
                                   ucx::text_of(status)));
  const ucp_request_param_t param = ucx::calls(on_flushed, &peer);
  ucs_status_ptr_t request = ucx::lib().ucp_ep_flush_nbx(peer.endpoint, &param);
  if (has_begun(peer, request, ucx::kNotReached)) peer.flushing = request != nullptr;
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
  set_linked(peer);
  peer.stood = true;
  note_progress();
  publish(peer);  // it may have been the first to be ready, and have put something
}

// ---- Waiting ----

void UcxTransport::poll_control() {
  look_at_sockets([this](uint64_t tag) {
    uint64_t expirations = 0;
    if (tag == kPollTimerTag) [[maybe_unused]]
      const ssize_t got = ::read(poll_timer_fd_.get(), &expirations, sizeof expirations);
  });
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
  const uint32_t times = busy_arms_ - kBusyArmsMax;
  after.it_value.tv_nsec = kPollTimer_ns
                           << std::min(times / kPollTimerRepeats, kPollTimerDoublings);
  timerfd_settime(poll_timer_fd_.get(), 0, &after, nullptr);
}

}  // namespace ropewalk
