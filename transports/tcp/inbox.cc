#include "transports/tcp/inbox.h"

#include <cassert>

namespace ropewalk::tcp {

const char* Inbox::begin(const FrameHeader& frame) {
  assert(!beyond(frame.sequence));
  if (frame.sequence < first_) return "sent a put a second time";
  Put& put = at(frame.sequence);
  if (!put.begun) {
    put = {frame.put_bytes, frame.notice, frame.put_bytes, frame.put_bytes, true};
  } else if (put.bytes != frame.put_bytes || put.notice != frame.notice) {
    return "sent pieces of a put that contradict each other";
  } else if (put.unclaimed == 0) {
    return "sent a put a second time";
  }
  if (frame.bytes > put.unclaimed) return "sent more bytes than its put has";
  put.unclaimed -= frame.bytes;
  return nullptr;
}

uint32_t Inbox::take() {
  assert(ready());
  if (urgent_first_ != urgent_end_) return urgent_[urgent_first_++ % kWindow];
  Put& put = at(first_);
  put.begun = false;
  ++first_;
  return put.notice;
}

}  // namespace ropewalk::tcp
