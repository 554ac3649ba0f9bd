#include "transports/verbs/queue_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <system_error>

#include "ropewalk/status.h"

namespace ropewalk::verbs {
namespace {

// Tried in turn: adapters differ, and some answer a wish that is too high with an error.
constexpr uint32_t kInlineWishes[] = {224, 64, 0};
constexpr uint8_t kReceiverNotReadyTimer = 12;  // 0.64 ms
// Receives are there before the peer may send (credits): a few tries, so that a bug is an error.
constexpr uint8_t kReceiverNotReadyRetries = 6;
constexpr uint8_t kHopLimit = 64;

std::string text_of(int error) {
  return std::generic_category().message(error);
}

ibv_qp* create(const Port& port, ibv_cq* cq, const QueueDepths& depths, uint32_t& inline_bytes) {
  for (const uint32_t wish : kInlineWishes) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {depths.sends, depths.receives, 1, 1, wish};
    if (ibv_qp* qp = ibv_create_qp(port.adapter->pd(), &attributes)) {
      inline_bytes = attributes.cap.max_inline_data;
      return qp;
    }
    if (errno != EINVAL && errno != ENOMEM) break;
  }
  const int error = errno;
  throw Error(ErrorCode::exhausted, "connect",
              fmt::format("{}: no queue pair of {} sends and {} receives: {}", port.adapter->name(),
                          depths.sends, depths.receives, text_of(error)),
              "raise the memlock limit (ulimit -l unlimited); `ropewalk doctor` shows what the "
              "device allows");
}

/// What went wrong with the step named, or nothing.
std::string modify(ibv_qp* qp, ibv_qp_attr& attributes, int mask, const char* step) {
  const int error = ibv_modify_qp(qp, &attributes, mask);
  return error == 0 ? std::string() : fmt::format("{}: {}", step, text_of(error));
}

}  // namespace

QueuePair::QueuePair(const Port& port, const Settings& settings, ibv_cq* cq,
                     const QueueDepths& depths)
    : port_(port), settings_(settings), packet_number_(std::random_device{}() & 0xffffff) {
  qp_.reset(create(port, cq, depths, inline_bytes_max_));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = settings.pkey_index;
  attributes.port_num = port.number;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const std::string error =
      modify(get(), attributes,
             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "to INIT");
  if (error.empty()) return;
  throw Error(ErrorCode::system, "connect", fmt::format("{}: queue pair {}", name_of(port), error),
              "check ROPEWALK_IB_PKEY, and the port with `ropewalk doctor`");
}

std::string QueuePair::start(const PortAddress& own, const LaneAddress& peer) {
  if (own.link_layer != peer.port.link_layer)
    return "its port is of another link layer (InfiniBand, Ethernet)";
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(own.mtu, peer.port.mtu));
  attributes.dest_qp_num = peer.queue_pair;
  attributes.rq_psn = peer.packet_number;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = kReceiverNotReadyTimer;
  ibv_ah_attr& route = attributes.ah_attr;
  route.port_num = port_.number;
  route.sl = settings_.service_level;
  route.dlid = peer.port.lid;
  // Within an InfiniBand subnet the LID is enough, unless the port says otherwise; the subnet is
  // the upper half of the GID.
  route.is_global = own.link_layer == LinkLayer::ethernet || own.needs_grh ||
                    !std::equal(own.gid.begin(), own.gid.begin() + 8, peer.port.gid.begin());
  if (route.is_global) {
    std::memcpy(route.grh.dgid.raw, peer.port.gid.data(), peer.port.gid.size());
    route.grh.sgid_index = own.gid_index;
    route.grh.hop_limit = kHopLimit;
    route.grh.traffic_class = settings_.traffic_class;
  }
  std::string error = modify(get(), attributes,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                             "no route to it (to RTR)");
  if (!error.empty()) return error;
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = settings_.timeout;
  attributes.retry_cnt = settings_.retries;
  attributes.rnr_retry = kReceiverNotReadyRetries;
  attributes.sq_psn = packet_number_;
  attributes.max_rd_atomic = 1;
  return modify(get(), attributes,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                "to RTS");
}

}  // namespace ropewalk::verbs
