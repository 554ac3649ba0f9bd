#include "transports/tcp/outbox.h"

#include <algorithm>
#include <cassert>

namespace ropewalk::tcp {

uint64_t Outbox::post(const Put& put) {
  assert(!full());
  at(end_) = put;
  at(end_).claimed = 0;
  at(end_).unwritten = 0;
  at(end_).all_claimed = false;
  return end_++;
}

Outbox::Piece Outbox::claim(uint32_t bytes_max) {
  assert(pending());
  Put& put = at(next_);
  const uint32_t bytes = std::min(put.bytes - put.claimed, bytes_max);
  Piece piece;
  piece.header = {FrameKind::put, put.notice, put.key, put.offset + put.claimed,
                  bytes,          put.bytes,  next_};
  piece.payload = bytes == 0 ? nullptr : put.source + put.claimed;
  put.claimed += bytes;
  ++put.unwritten;
  if (put.claimed == put.bytes) {
    put.all_claimed = true;
    ++next_;
  }
  return piece;
}

}  // namespace ropewalk::tcp
