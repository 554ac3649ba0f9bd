#include "transports/ucx/ucx_transport.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "transports/region_memory.h"

namespace ropewalk {

namespace {

/// What UCX's devices know, for as long as this lives.
class MappedPages {
 public:
  MappedPages(ucp_context_h context, const Region& region) : context_(context) {
    // Other memory may be unmapped by its owner at any time: UCX's own cache notices that.
    if (!region.is_own()) return;
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = region.base;
    params.length = region.bytes;
    if (const ucs_status_t status = ucx::lib().ucp_mem_map(context_, &params, &handle_);
        status != UCS_OK)
      throw Error(status == UCS_ERR_NO_MEMORY || status == UCS_ERR_IO_ERROR
                      ? ErrorCode::exhausted
                      : ErrorCode::unavailable,
                  "register memory", "ucp_mem_map: " + ucx::text_of(status),
                  "raise the memlock limit (ulimit -l unlimited), or use ROPEWALK_TRANSPORT=tcp");
  }
  ~MappedPages() {
    if (handle_ != nullptr) ucx::lib().ucp_mem_unmap(context_, handle_);
  }
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;

 private:
  const ucp_context_h context_;
  ucp_mem_h handle_ = nullptr;
};

/// A region that peers may name. Ropewalk's own memory is registered with UCX's devices once, here;
/// UCX finds it in its cache.
struct UcxMemory final : private MappedPages, public RegionMemory {
  UcxMemory(Regions& regions, ucp_context_h context, const Region& region)
      : MappedPages(context, region), RegionMemory(regions, region) {}
};

}  // namespace

std::unique_ptr<MemoryRegistration> UcxTransport::register_memory(const Region& region) {
  return std::make_unique<UcxMemory>(regions_, worker_.context(), region);
}

// ---- Putting ----

// UCX's request, or its error, or null where UCX needs neither `put` nor the source any more.
inline ucs_status_ptr_t UcxTransport::send(const Peer& peer, Put& put, const ucx::PutHeader& header,
                                           const std::byte* source, size_t bytes) {
  ucp_request_param_t param = ucx::calls(on_sent, &put);
  std::byte* const message = put.message.data();
  if (bytes > Put::kCopiedMax) {
    encode(header, message);
    return ucx::lib().ucp_am_send_nbx(peer.endpoint, ucx::kPutMessage, message,
                                      ucx::kPutHeaderBytes, source, bytes, &param);
  }
  // Of messages without a header the receiver needs the bytes at once, whatever UCX_RNDV_THRESH
  // says.
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  unsigned id = ucx::kCompactPutMessage;
  size_t header_bytes = ucx::kCompactPutHeaderBytes;
  if (is_compact(header)) {
    encode_compact(header, message);
  } else {
    encode(header, message);
    id = ucx::kPutMessage;
    header_bytes = ucx::kPutHeaderBytes;
  }
  if (bytes > 0) std::memcpy(message + header_bytes, source, bytes);
  return ucx::lib().ucp_am_send_nbx(peer.endpoint, id, nullptr, 0, message, header_bytes + bytes,
                                    &param);
}

Posted UcxTransport::put(const PutRequest& request) {
  assert(request.bytes <= capabilities().op_bytes_max);
  Posted answer;
  Peer* const p = target_of(request, answer);
  if (p == nullptr) return answer;
  if (!p->can_put()) return Posted::full;

  Put& put = p->puts[p->end_put % Peer::kPutsMax];
  put.cookie = request.cookie;
  ucx::PutHeader header;
  header.link = p->their_link;
  header.notice = request.notice;
  header.sequence = static_cast<uint16_t>(p->sent);
  header.taken = static_cast<uint16_t>(p->inbox.taken());
  if (request.bytes > 0) {
    header.key = request.key.id;
    header.offset = request.offset;
  }
  ucs_status_ptr_t sending = send(*p, put, header, request.source, request.bytes);
  if (UCS_PTR_IS_ERR(sending)) {
    peers_.lose(*p, ucx::kNotSent + ucx::text_of(UCS_PTR_STATUS(sending)));
    return Posted::lost;
  }
  ++p->sent;
  p->told = p->inbox.taken();
  unflushed_ = true;
  put.sent = sending == nullptr;
  if (put.sent && p->first_put == p->end_put) return Posted::done;
  ++p->end_put;
  if (!put.sent) ++p->under_way;
  publish(*p);
  return Posted::posted;
}

// ---- Polling ----

size_t UcxTransport::poll(std::span<Completion> into) {
  size_t count = 0;
  if (!peers_.any_ready()) {
    // First, since it may throw, and what is given out is given.
    if (is_time_to_look()) poll_control();
    to_fill_ = into;
    if (!stopped_) worker_.progress();
    count = into.size() - to_fill_.size();
    to_fill_ = {};
    if (count > 0) busy_arms_ = 0;
    if (!peers_.failing().empty()) lose_failing();
    if (!peers_.any_ready()) return count;
  }
  return count + peers_.collect(into.subspan(count), [this](Peer& peer) { give_credits(peer); });
}

// Moves all there is, but not for ever: UCX counts what it has only tried.
void UcxTransport::drain() {
  constexpr int kTurnsMax = 256;
  for (int turn = 0; turn < kTurnsMax && !stopped_ && worker_.progress(); ++turn) {
  }
}

// UCX may hold back bytes of messages that it has answered: a flush is done when it no longer does,
// which is mostly at once.
bool UcxTransport::has_unsent() {
  if (stopped_) return false;
  if (flush_ != nullptr && ucx::lib().ucp_request_check_status(flush_) != UCS_INPROGRESS)
    ucx::lib().ucp_request_free(std::exchange(flush_, nullptr));
  if (flush_ == nullptr && std::exchange(unflushed_, false)) {
    const ucp_request_param_t param{};
    ucs_status_ptr_t request = ucx::lib().ucp_worker_flush_nbx(worker_.get(), &param);
    if (!UCS_PTR_IS_ERR(request)) flush_ = request;
  }
  return flush_ != nullptr;
}

bool UcxTransport::take_credits(Peer& peer, uint16_t low) {
  // Messages may overtake each other: an older count is no news.
  const auto ahead = static_cast<int16_t>(low - static_cast<uint16_t>(peer.credited));
  if (ahead <= 0) return true;
  const uint32_t taken = peer.credited + static_cast<uint32_t>(ahead);
  if (taken - peer.credited > peer.sent - peer.credited) return false;
  note_progress();
  peer.credited = taken;
  return true;
}

void UcxTransport::give_credits(Peer& peer) {
  if (!peer.telling && peer.inbox.taken() - peer.told >= kCreditsAtOnce) tell(peer, 0);
}

void UcxTransport::tell(Peer& peer, uint32_t flags) {
  const uint32_t taken = peer.inbox.taken();
  encode(ucx::Credit{peer.their_link, static_cast<uint16_t>(taken)}, peer.credit.data());
  const ucp_request_param_t param =
      ucx::calls(on_credit_sent, &peer, UCP_AM_SEND_FLAG_EAGER | flags);
  ucs_status_ptr_t request =
      ucx::lib().ucp_am_send_nbx(peer.endpoint, ucx::kCreditMessage, nullptr, 0, peer.credit.data(),
                                 ucx::kCreditBytes, &param);
  if (!has_begun(peer, request, ucx::kNotSent)) return;
  peer.told = taken;
  unflushed_ = true;
  peer.telling = request != nullptr;
}

// ---- Giving out ----

// Queues the peer for `collect` where it has something.
void UcxTransport::publish(Peer& peer) {
  if (peers_.publish(peer)) busy_arms_ = 0;
}

}  // namespace ropewalk
