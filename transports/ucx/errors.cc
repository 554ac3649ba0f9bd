// Lost peers, and the flush on close.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "transports/ucx/ucx_transport.h"

namespace ropewalk {

namespace {
using Clock = std::chrono::steady_clock;
// For the last messages of this rank, and for what UCX still does for a peer that is lost.
constexpr auto kFlushMax = std::chrono::seconds(1);
constexpr auto kEndingMax = std::chrono::milliseconds(50);
// For connections that are being made, which both ends work at.
constexpr auto kSettlingMax = std::chrono::milliseconds(300);
}  // namespace

// Not while UCX calls.
void UcxTransport::lose_failing() {
  drain();
  // What fails while others are released waits for the next call: it may have sent something.
  const size_t drained = peers_.failing().size();
  for (size_t i = 0; i < drained; ++i) {
    Peer& peer = *peers_.failing()[i];
    if (peer.state == Peer::State::linking) finish_link(peer);  // it may have put, and left
  }
  peers_.lose_failing([this](Peer& peer) { close(peer); }, drained);
  busy_arms_ = 0;
}

// UCX reads no source any more and writes no target after this.
void UcxTransport::close(Peer& peer) {
  begin_close(peer);
  finish_close(peer, Clock::now() + kEndingMax);
}

// Where a link is still being made UCX is only never called again: adapters of peers that were
// asked for bytes before may still write.
void UcxTransport::set_stopped([[maybe_unused]] bool on) {
  assert(on);  // see capabilities
  if (!settle()) stopped_ = abandoned_ = true;
  for (Peer& peer : peers_.added()) {
    if (peer.released()) continue;
    if (peer.open()) peer.why.text = "this rank has stopped";
    peer.state = Peer::State::lost;
    begin_close(peer);
  }
  const auto deadline = Clock::now() + kEndingMax;  // of all: they end at once
  for (Peer& peer : peers_.added()) finish_close(peer, deadline);
  stopped_ = true;
}

void UcxTransport::begin_close(Peer& peer) {
  end_greeting(peer);
  if (peer.endpoint == nullptr) return;
  const bool was_wiring = peer.wiring();
  const ucp_ep_h endpoint = std::exchange(peer.endpoint, nullptr);
  if (stopped_) return;
  // UCX may assert where a connection ends that it is still making.
  if (was_wiring) return stop_after(peer);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = ucx::lib().ucp_ep_close_nbx(endpoint, &param);
  if (UCS_PTR_IS_PTR(request)) peer.closing = request;
}

void UcxTransport::finish_close(Peer& peer, Clock::time_point deadline) {
  if (stopped_) return;
  const auto is_ending = [&peer] {
    return peer.under_way > 0 || (peer.closing != nullptr && ucx::lib().ucp_request_check_status(
                                                                 peer.closing) == UCS_INPROGRESS);
  };
  while (is_ending() && Clock::now() < deadline) worker_.progress();
  if (peer.closing != nullptr) ucx::lib().ucp_request_free(std::exchange(peer.closing, nullptr));
}

// Never lets UCX move anything again: a job that has lost a rank has failed anyway.
void UcxTransport::stop_after(const Peer& lost) {
  if (std::exchange(stopped_, true)) return;
  abandoned_ = true;
  for (Peer& peer : peers_.added())
    if (&peer != &lost)
      peers_.lose(peer,
                  fmt::format("UCX was stopped, because rank {} was lost while it was at work: {}",
                              lost.rank, lost.why.text));
}

// Until all connections that are being made stand. False: some do not.
bool UcxTransport::settle() {
  const auto deadline = Clock::now() + kSettlingMax;
  const auto is_wiring = [](const Peer& peer) { return !peer.released() && peer.wiring(); };
  const auto is_awaited = [&is_wiring](const Peer& peer) {
    return is_wiring(peer) || (peer.state == Peer::State::linking &&
                               peer.greeting.reader.complete() && peer.greeting.all_sent());
  };
  while (!stopped_ && Clock::now() < deadline && std::ranges::any_of(peers_.added(), is_awaited)) {
    if (!worker_.progress()) std::this_thread::yield();
    poll_control();
    if (!peers_.failing().empty()) lose_failing();
  }
  return std::ranges::none_of(peers_.added(), is_wiring);
}

void UcxTransport::drop(int peer) {
  Peer* p = peers_.find(peer);
  if (p == nullptr) return;
  if (p->wiring()) settle();
  const bool was_released = p->released();
  if (p->open()) p->why.text = "it was given up";
  peers_.drop(*p);
  if (!was_released) close(*p);
  p->greeting.socket = {};
}

// A put that was answered `done` may still be UCX's to send.
void UcxTransport::flush_on_close() {
  const auto deadline = Clock::now() + kFlushMax;
  await_sockets(false);
  settle();
  for (Peer& peer : peers_.added())
    if (peer.state == Peer::State::linking && !peer.wiring()) drop(peer.rank);
  std::array<Completion, 64> ignored;
  while (has_unsent() && Clock::now() < deadline) {
    poll(ignored);
    poll_control();  // peers that have gone first will acknowledge nothing
    std::this_thread::yield();
  }
}

}  // namespace ropewalk
