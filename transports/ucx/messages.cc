// What UCX calls while it progresses. Nothing here ends an endpoint: that waits until it returns.
#include <cstring>
#include <utility>

#include "transports/ucx/ucx_transport.h"

namespace ropewalk {

// The peer whose link it is; null for what no open link has sent.
UcxTransport::Peer* UcxTransport::find_link(uint32_t link) const {
  Peer* peer = peers_.find(static_cast<int>(link & 0xffff));
  return peer != nullptr && peer->link == link && peer->open() ? peer : nullptr;
}

void UcxTransport::set_handler(unsigned id, ucp_am_recv_callback_t handler) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                     UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  param.id = id;
  param.cb = handler;
  param.arg = this;
  param.flags = UCP_AM_FLAG_WHOLE_MSG;
  const ucs_status_t status = ucx::lib().ucp_worker_set_am_recv_handler(worker_.get(), &param);
  if (status != UCS_OK)
    throw Error(ErrorCode::unavailable, "ucx",
                "ucp_worker_set_am_recv_handler: " + ucx::text_of(status));
}

// ---- Arriving ----

ucs_status_t UcxTransport::on_put(void* self, const void* header, size_t header_bytes, void* data,
                                  size_t bytes, const ucp_am_recv_param_t* about) {
  auto& transport = *static_cast<UcxTransport*>(self);
  const bool is_rendezvous = (about->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  auto* payload = static_cast<std::byte*>(data);
  if (header_bytes == ucx::kPutHeaderBytes)
    transport.arrived(ucx::decode_put(static_cast<const std::byte*>(header)), data, bytes,
                      is_rendezvous);
  else if (header_bytes == 0 && !is_rendezvous && bytes >= ucx::kPutHeaderBytes)
    transport.arrived(ucx::decode_put(payload), payload + ucx::kPutHeaderBytes,
                      bytes - ucx::kPutHeaderBytes, false);
  return UCS_OK;
}

ucs_status_t UcxTransport::on_compact_put(void* self, const void*, size_t header_bytes, void* data,
                                          size_t bytes, const ucp_am_recv_param_t* about) {
  auto& transport = *static_cast<UcxTransport*>(self);
  auto* payload = static_cast<std::byte*>(data);
  if (header_bytes == 0 && bytes >= ucx::kCompactPutHeaderBytes &&
      (about->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0)
    transport.arrived(ucx::decode_compact_put(payload), payload + ucx::kCompactPutHeaderBytes,
                      bytes - ucx::kCompactPutHeaderBytes, false);
  return UCS_OK;
}

void UcxTransport::arrived(const ucx::PutHeader& header, void* data, size_t bytes,
                           bool is_rendezvous) {
  Peer* peer = find_link(header.link);
  if (peer == nullptr) return;
  if (!take_credits(*peer, header.taken))
    return peers_.lose_later(*peer, "it gave back more than it was sent");
  const uint32_t sequence = ucx::widen(header.sequence, peer->inbox.taken());
  const bool at_once = !is_rendezvous && may_give(*peer) && peer->inbox.pass(sequence);
  if (bytes > capabilities().op_bytes_max ||
      (!at_once && !peer->inbox.begin(sequence, header.notice)))
    return peers_.lose_later(*peer, "it sent more than it may, or the same twice");
  std::byte* target = nullptr;
  if (bytes > 0 && (target = regions_.find(header.key, header.offset, bytes)) == nullptr)
    return peers_.lose_later(*peer, "it put to memory that is not, or no longer, registered");
  if (is_rendezvous) return receive(*peer, sequence, target, data, bytes);
  if (bytes > 0) std::memcpy(target, data, bytes);
  if (at_once) return give(*peer, header.notice);
  peer->inbox.arrived(sequence);
  publish(*peer);
}

// Whether `poll` can give out what comes from the peer at once, as nearly always: nothing of it
// waits, and no credits are due, which are given where it does.
bool UcxTransport::may_give(const Peer& peer) const {
  return !to_fill_.empty() && !peer.in_ready && peer.state == Peer::State::linked &&
         peer.inbox.taken() + 1 - peer.told < kCreditsAtOnce;
}

void UcxTransport::give(Peer& peer, uint32_t notice) {
  to_fill_.front() = {Completion::Kind::notice, peer.rank, notice, 0};
  to_fill_ = to_fill_.subspan(1);
  if (peer.inbox.ready()) publish(peer);  // it came before
}

void UcxTransport::receive(Peer& peer, uint32_t sequence, std::byte* target, void* data,
                           size_t bytes) {
  Receive& receive = peer.receives[sequence % ucx::Inbox::kWindow];
  receive = {&peer, sequence};
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = on_received;
  param.user_data = &receive;
  ucs_status_ptr_t request =
      ucx::lib().ucp_am_recv_data_nbx(worker_.get(), data, target, bytes, &param);
  if (!has_begun(peer, request, ucx::kNotFetched) || request != nullptr) return;
  peer.inbox.arrived(sequence);
  publish(peer);
}

void UcxTransport::on_received(void* request, ucs_status_t status, size_t, void* receive) {
  const auto [peer, sequence] = *static_cast<Receive*>(receive);
  if (!has_ended(*peer, request, status, ucx::kNotFetched)) return;
  peer->inbox.arrived(sequence);
  peer->owner.publish(*peer);
}

ucs_status_t UcxTransport::on_credit(void* self, const void*, size_t header_bytes, void* data,
                                     size_t bytes, const ucp_am_recv_param_t* about) {
  auto& transport = *static_cast<UcxTransport*>(self);
  if (header_bytes != 0 || bytes != ucx::kCreditBytes ||
      (about->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
    return UCS_OK;
  const ucx::Credit credit = ucx::decode_credit(static_cast<const std::byte*>(data));
  Peer* peer = transport.find_link(credit.link);
  if (peer == nullptr) return UCS_OK;
  if (!transport.take_credits(*peer, credit.taken))
    transport.peers_.lose_later(*peer, "it gave back more than it was sent");
  if (!std::exchange(peer->met, true)) transport.note_progress();
  return UCS_OK;
}

// ---- Leaving ----

// False where UCX refused, and the peer will be lost. Else `request`, where it is not null, is
// under way.
bool UcxTransport::has_begun(Peer& peer, ucs_status_ptr_t request, const char* what) {
  if (UCS_PTR_IS_ERR(request)) {
    peers_.lose_later(peer, what + ucx::text_of(UCS_PTR_STATUS(request)));
    return false;
  }
  if (request != nullptr) ++peer.under_way;
  return true;
}

// False where it failed, and the peer will be lost.
bool UcxTransport::has_ended(Peer& peer, void* request, ucs_status_t status, const char* what) {
  ucx::lib().ucp_request_free(request);
  --peer.under_way;
  if (status != UCS_OK) peer.owner.peers_.lose_later(peer, what + ucx::text_of(status));
  return status == UCS_OK;
}

void UcxTransport::on_sent(void* request, ucs_status_t status, void* put) {
  auto& sent = *static_cast<Put*>(put);
  Peer& peer = *sent.peer;
  if (!has_ended(peer, request, status, ucx::kNotSent)) return;
  sent.sent = true;
  peer.owner.note_progress();
  peer.owner.publish(peer);
}

void UcxTransport::on_flushed(void* request, ucs_status_t status, void* about) {
  Peer& peer = *static_cast<Peer*>(about);
  peer.flushing = false;
  if (has_ended(peer, request, status, ucx::kNotReached)) peer.owner.note_progress();
}

void UcxTransport::on_credit_sent(void* request, ucs_status_t status, void* about) {
  Peer& peer = *static_cast<Peer*>(about);
  peer.telling = false;
  if (!peer.stood) peer.owner.note_progress();
  if (has_ended(peer, request, status, ucx::kNotSent) && peer.endpoint != nullptr)
    peer.owner.give_credits(peer);
}

void UcxTransport::on_failure(void* about, ucp_ep_h, ucs_status_t status) {
  Peer& peer = *static_cast<Peer*>(about);
  peer.owner.peers_.lose_later(peer, "the connection failed: " + ucx::text_of(status));
}

}  // namespace ropewalk
