// How the transport notices that something is wrong, and what it says of it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "transports/verbs/verbs_transport.h"

namespace ropewalk {

using verbs::Lane;

namespace {

constexpr const char* kMendPort = "check the cable and the switch, or `ip link`";

/// What a failed completion means to whoever has to mend it.
struct Meaning {
  ibv_wc_status status;
  const char* text;
};
constexpr Meaning kMeanings[] = {
    {IBV_WC_RETRY_EXC_ERR,
     "the peer does not answer: its process or host has gone, the path is cut, or packets of the "
     "full MTU do not pass (ROPEWALK_IB_MTU lowers it)"},
    {IBV_WC_RNR_RETRY_EXC_ERR, "the peer takes no more messages"},
    {IBV_WC_REM_ACCESS_ERR,
     "the peer refused a write: the remote key is not, or no longer, valid there"},
    {IBV_WC_REM_OP_ERR, "the peer failed to carry out a write"},
    {IBV_WC_REM_INV_REQ_ERR, "the peer failed to carry out a write"},
    {IBV_WC_LOC_PROT_ERR, "the source of a put is not, or no longer, registered memory"},
    // What stopped it has no completion at this end: the peer's own has.
    {IBV_WC_WR_FLUSH_ERR, "the queue pair was stopped, as where the peer writes what it may not"},
    {IBV_WC_FATAL_ERR, "the adapter failed"},
};

const char* meaning_of(ibv_wc_status status) {
  const auto* found = std::ranges::find(kMeanings, status, &Meaning::status);
  return found == std::end(kMeanings) ? "the queue pair failed" : found->text;
}

}  // namespace

void VerbsTransport::failed(Peer& peer, const Lane& lane, const ibv_wc& completion) {
  if (completion.status == IBV_WC_RETRY_EXC_ERR) peer.why.silent = true;
  peers_.lose_later(
      peer, fmt::format("{}: {} ({})", own_name(lane.queue_pair().port()),
                        meaning_of(completion.status), ibv_wc_status_str(completion.status)));
}

// `error`: of posting to the lane. False where there is one, and the peer was lost.
bool VerbsTransport::posted(Peer& peer, const Lane& lane, int error) {
  if (error == 0) return true;
  peers_.lose(peer, fmt::format("{}: cannot post to the queue pair: {}",
                                own_name(lane.queue_pair().port()), errno_text(error)));
  return false;
}

void VerbsTransport::read_events(Device& device) {
  ibv_async_event event;
  while (ibv_get_async_event(device.adapter->context(), &event) == 0) {
    // First: ibv_destroy_qp waits until the events of its queue pair are acknowledged.
    ibv_ack_async_event(&event);
    on_event(device, event);
  }
}

void VerbsTransport::on_event(Device& device, const ibv_async_event& event) {
  const auto port = static_cast<uint8_t>(event.element.port_num);
  const std::string& name = device.adapter->name();
  switch (event.event_type) {
    case IBV_EVENT_DEVICE_FATAL:
      return lose_all_on(device, 0, fmt::format("rank {}'s {} failed or was removed", rank_, name),
                         "dmesg | tail, for what the driver says");
    case IBV_EVENT_PORT_ERR:
      log(LogLevel::warn, rank_, "{} port {} is down", name, port);
      // InfiniBand tells twice: of the cable, and of the subnet manager that is waited for.
      if (device.down_since_ns[port] == 0) device.down_since_ns[port] = MonotonicClock().now_ns();
      return;
    case IBV_EVENT_PORT_ACTIVE:
      log(LogLevel::info, rank_, "{} port {} is up", name, port);
      device.down_since_ns[port] = 0;
      return;
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_LID_CHANGE:
      // Links that stand may fail now, and then say so; those being established look the address
      // up.
      log(LogLevel::warn, rank_, "{} port {}: {}", name, port,
          ibv_event_type_str(event.event_type));
      ++address_changes_;
      return;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      for (Peer& peer : peers_.added()) {
        if (!peer.open()) continue;
        for (const auto& lane : peer.lanes) {
          if (lane->queue_pair().get() != event.element.qp) continue;
          peers_.lose_later(peer, {});
          // Says more than a completion does.
          peer.why.text =
              fmt::format("rank {}'s {}: {}", rank_, name, ibv_event_type_str(event.event_type));
          return;
        }
      }
      return;
    case IBV_EVENT_CQ_ERR:
      return lose_all_on(device, 0,
                         fmt::format("rank {}'s {}: the completion queue overran", rank_, name),
                         "report it with the name of the adapter");
    default:
      log(LogLevel::debug, rank_, "{}: {}", name, ibv_event_type_str(event.event_type));
  }
}

// A link may flap: only a port that stays down costs its peers.
void VerbsTransport::check_ports() {
  for (const auto& device : devices_) {
    for (size_t number = 0; number < device->down_since_ns.size(); ++number) {
      const int64_t since = device->down_since_ns[number];
      if (since == 0 || MonotonicClock().now_ns() - since < options_.port_down_max_ns) continue;
      device->down_since_ns[number] = 0;
      const verbs::Port port{device->adapter, static_cast<uint8_t>(number)};
      lose_all_on(*device, port.number, own_name(port) + " is down", kMendPort);
    }
  }
}

/// `port` 0: all ports of the device.
void VerbsTransport::lose_all_on(const Device& device, int port, const std::string& why,
                                 const std::string& advice) {
  for (Peer& peer : peers_.added()) {
    const bool uses = std::ranges::any_of(peer.lanes, [&](const auto& lane) {
      const verbs::Port& own = lane->queue_pair().port();
      return own.adapter == device.adapter && (port == 0 || own.number == port);
    });
    if (uses) peers_.lose(peer, why, advice);
  }
}

// Where the adapter has an event to tell of the queue pair, or a port is down, that is the cause,
// whatever the completion says.
void VerbsTransport::lose_failing() {
  const size_t drained = peers_.failing().size();  // who comes after them is lost the next time
  for (const auto& device : devices_) read_events(*device);
  for (size_t i = 0; i < drained; ++i) {
    Peer& peer = *peers_.failing()[i];
    const auto cut = std::ranges::find_if(peer.lanes, [&](const auto& lane) {
      return devices_[lane->adapter]->down_since_ns[lane->queue_pair().port().number] != 0;
    });
    if (!peer.open() || cut == peer.lanes.end()) continue;
    peer.why.text = own_name((*cut)->queue_pair().port()) + " is down";
    peer.why.advice = kMendPort;
  }
  peers_.lose_failing([this](Peer& peer) { close(peer); }, drained);
}

// Ends its queue pairs: the adapter reads no source any more and writes no target.
void VerbsTransport::close(Peer& peer) {
  end_greeting(peer);
  end_lanes(peer);
  peer.first_put = peer.end_put;
  std::erase(held_, &peer);
  peer.is_held = false;
}

void VerbsTransport::drop(int peer) {
  Peer* p = peers_.find(peer);
  if (p == nullptr) return;
  if (!p->released()) close(*p);
  p->greeting.socket = {};
  peers_.drop(*p);
}

// The sockets stay open, as in `close`.
void VerbsTransport::set_stopped([[maybe_unused]] bool on) {
  assert(on);  // see capabilities
  for (Peer& peer : peers_.added()) peers_.lose(peer, "this rank has stopped");
  peers_.lose_failing([this](Peer& peer) { close(peer); });
}

std::string VerbsTransport::own_name(const verbs::Port& port) const {
  return fmt::format("rank {}'s {}", rank_, name_of(port));
}

// A put that was answered `done` is still the adapter's to send, and would go with the queue pair.
void VerbsTransport::flush_on_close() {
  // The adapter gives up by itself. Nobody waits for what its timeouts set long would allow.
  constexpr int64_t kShortest_ns = 1'000'000'000, kLongest_ns = 10'000'000'000;
  const std::chrono::nanoseconds timeout(
      std::clamp(options_.settings.silence_max_ns(), kShortest_ns, kLongest_ns));
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  await_sockets(false);
  for (Peer& peer : peers_.added()) {
    if (peer.state == Peer::State::linking) drop(peer.rank);
    if (peer.state != Peer::State::linked) continue;
    for (const auto& lane : peer.lanes) {
      lane->flush();
      lane->ask_for_completion();
    }
  }
  const auto waits = [](const Peer& peer) {
    return peer.state == Peer::State::linked &&
           std::ranges::any_of(peer.lanes,
                               [](const auto& lane) { return !lane->is_done(lane->position()); });
  };
  while (std::ranges::any_of(peers_.added(), waits) &&
         std::chrono::steady_clock::now() < deadline) {
    std::array<Completion, 64> ignored;
    poll(ignored);
    poll_control();  // peers that have gone first will acknowledge nothing
    std::this_thread::yield();
  }
}

}  // namespace ropewalk
