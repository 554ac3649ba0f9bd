// One reliable connection's end: an RC queue pair.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "transports/verbs/devices.h"
#include "transports/verbs/handshake.h"

namespace ropewalk::verbs {

/// How connections behave; from the config. Alike on every rank, except what fabrics make
/// different.
struct Settings {
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;  // of RoCE: DSCP in the upper six bits
  uint16_t pkey_index = 0;
  uint8_t timeout = 15;            // an answer is awaited for about 4.096 us * 2^timeout
  uint8_t retries = 4;             // so often a packet is sent again before the peer is lost
  uint8_t mtu_max = IBV_MTU_4096;  // an ibv_mtu; peers are told of no more

  /// For how long a peer may not answer; adapters may take up to four times as long.
  constexpr int64_t silence_max_ns() const { return (int64_t{4096} << timeout) * (retries + 1); }
};

/// The longest `Settings::timeout` with which a peer that answers nothing is lost within `limit`.
constexpr uint8_t timeout_within(std::chrono::nanoseconds limit, uint8_t retries) {
  constexpr uint8_t kTimeoutMax = 22;
  Settings settings{.timeout = 1, .retries = retries};
  while (settings.timeout < kTimeoutMax && 2 * settings.silence_max_ns() <= limit.count())
    ++settings.timeout;
  return settings.timeout;
}
// Ten seconds without a network are survived, by TCP's default too.
static_assert(timeout_within(std::chrono::seconds(22), 6) == 19);
static_assert(Settings{.timeout = 19, .retries = 6}.silence_max_ns() > 10'000'000'000);
static_assert(timeout_within(std::chrono::milliseconds(10), 6) == 8);

struct QueueDepths {
  uint32_t sends = 0, receives = 0;
};

class QueuePair {
 public:
  /// `cq` takes the completions of both directions. Receives can be posted at once, and before
  /// `start`. Throws Error(exhausted, system) that names the device.
  QueuePair(const Port& port, const Settings& settings, ibv_cq* cq, const QueueDepths& depths);

  ibv_qp* get() const { return qp_.get(); }
  uint32_t number() const { return qp_->qp_num; }
  /// What peers are told: random, so that packets of an earlier connection are no packets of this.
  uint32_t packet_number() const { return packet_number_; }
  uint32_t inline_bytes_max() const { return inline_bytes_max_; }
  const Port& port() const { return port_; }

  /// Joins it with the peer's end: it can receive, and send. Empty, or what went wrong.
  std::string start(const PortAddress& own, const LaneAddress& peer);

 private:
  const Port port_;
  const Settings settings_;
  uint32_t packet_number_ = 0;
  uint32_t inline_bytes_max_ = 0;
  Owned<ibv_qp, ibv_destroy_qp> qp_;
};

}  // namespace ropewalk::verbs
