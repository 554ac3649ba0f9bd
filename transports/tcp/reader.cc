#include "transports/tcp/reader.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace ropewalk::tcp {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
// After a frame of this size the next is expected to be like it, and little of it is read into the
// buffer, so that nearly all goes straight to its place.
constexpr uint32_t kLargeBytes = 16 << 10;
constexpr size_t kShortReadBytes = 4 << 10;

constexpr const char* kChanged = "sent a hello that was changed on the way";
constexpr const char* kChangedData = "sent data that was changed on the way";
constexpr const char* kOutside = "sent a frame outside registered memory";

}  // namespace

Reader::Reader(const Regions& regions, Inbox& inbox, SecureChannel& channel, RecordOpener* opener,
               const Expected& expected)
    : regions_(regions),
      inbox_(inbox),
      channel_(channel),
      opener_(opener),
      expected_(expected),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)),
      read_bytes_(kBufferBytes) {
  assert(expected.stream < expected.streams && expected.sealed == (opener != nullptr));
}

int Reader::prepare(std::array<iovec, 2>& into) {
  direct_ = 0;
  if (stalled_ || violation_ != nullptr) return 0;
  if (opener_ != nullptr && has_hello_) {
    into[0] = opener_->place();
    return 1;
  }
  if (left_ == 0) {
    into[0] = {buffer_.get() + end_, std::max(read_bytes_, end_ + kShortReadBytes) - end_};
    return 1;
  }
  // The buffer is empty while payload is awaited.
  if (fences_due_ > 0) {
    direct_ = std::min(left_, static_cast<uint32_t>(kBufferBytes));
    into[0] = {buffer_.get(), direct_};
    return 1;
  }
  std::byte* target = regions_.find(frame_.key, frame_.offset + frame_.bytes - left_, left_);
  if (target == nullptr) {
    violation_ = kOutside;
    return 0;
  }
  direct_ = left_;
  into[0] = {target, left_};
  into[1] = {buffer_.get(), kShortReadBytes};
  return 2;
}

void Reader::consume(size_t bytes) {
  if (opener_ != nullptr && has_hello_) {
    opener_->received(bytes);
    return open_records();
  }
  const auto direct = static_cast<uint32_t>(std::min<size_t>(bytes, direct_));
  direct_ = 0;
  if (direct > 0) payload_arrived(direct);
  end_ += bytes - direct;
  parse();
}

void Reader::resume() {
  if (!stalled_) return;
  stalled_ = false;
  parse();
  if (opener_ != nullptr) open_records();
}

void Reader::restart() {
  ++fences_due_;
  stalled_ = false;
  last_sequence_ = 0;
  parse();
}

void Reader::open_records() {
  while (!stalled_ && violation_ == nullptr) {
    const auto bytes = opener_->next();
    if (!bytes) return;
    open_record(*bytes);
  }
}

// Of a payload it goes straight to its region; what the peer has not sealed there nobody sees, as
// the link is lost and the put never whole.
void Reader::open_record(size_t bytes) {
  const bool is_payload = bytes > 0 && bytes <= left_;
  if (bytes == 0 || (!is_payload && bytes > RecordCipher::kMixedBytesMax)) {
    violation_ = kChangedData;
    return;
  }
  assert(is_payload || bytes <= kBufferBytes - end_);
  std::byte* const target =
      is_payload ? regions_.find(frame_.key, frame_.offset + frame_.bytes - left_, bytes)
                 : buffer_.get() + end_;
  if (target == nullptr)
    violation_ = kOutside;
  else if (!opener_->open(target))
    violation_ = kChangedData;
  if (violation_ != nullptr) return;
  if (is_payload) return payload_arrived(static_cast<uint32_t>(bytes));
  end_ += bytes;
  parse();
}

void Reader::parse() {
  target_ = nullptr;
  if (!has_hello_ && !open_hello()) return;
  while (left_ > 0 ? copy_payload() : begin_frame()) {
  }
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (!stalled_ && violation_ == nullptr && begin_ > 0) {  // part of a header, or of a hello
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
}

// The first record of the stream is the hello, which SecureChannel seals. False where nothing of
// what follows it stands in the buffer.
bool Reader::open_hello() {
  const std::span<const std::byte> all(buffer_.get(), end_);
  const auto bytes = SecureChannel::record_bytes(all);
  if (!bytes) return false;
  constexpr size_t kBytesMax = kFrameHeaderBytes + kHelloBytesMax + SecureChannel::kOverheadBytes;
  if (*bytes == 0 || *bytes > kBytesMax) violation_ = kChanged;
  if (violation_ != nullptr || *bytes > end_) return false;
  std::vector<std::byte> sealed(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(*bytes));
  std::vector<std::byte> frame;
  violation_ = channel_.open(sealed, frame) ? wrong_in_hello(frame) : kChanged;
  if (violation_ != nullptr) return false;
  hello_.assign(frame.begin() + kFrameHeaderBytes, frame.end());
  has_hello_ = true;
  begin_ = *bytes;
  if (opener_ == nullptr) return true;
  // What stands behind it in the buffer is sealed.
  const auto rest = all.subspan(*bytes);
  std::ranges::copy(rest, static_cast<std::byte*>(opener_->place().iov_base));
  begin_ = end_ = 0;
  opener_->received(rest.size());
  open_records();
  return false;
}

const char* Reader::wrong_in_hello(std::span<const std::byte> frame) {
  FrameHeader header;
  if (frame.size() < kFrameHeaderBytes) return "sent bytes that are no hello";
  if (const char* wrong = decode(frame.data(), header)) return wrong;
  if (header.kind != FrameKind::hello) return "sent a put before its hello";
  if (header.notice != kProtocolVersion)
    return "speaks another version of the protocol; run the same Ropewalk on every rank";
  if (header.put_bytes != expected_.streams)
    return "uses another number of streams; set ROPEWALK_TCP_STREAMS alike on every rank";
  if ((header.sequence != 0) != expected_.sealed)
    return expected_.sealed ? "does not seal its data; set ROPEWALK_SECURE alike on every rank"
                            : "seals its data; set ROPEWALK_SECURE alike on every rank";
  if (header.key != static_cast<uint64_t>(expected_.peer) || header.offset != expected_.stream)
    return "sent the hello of another rank or stream";
  return frame.size() == kFrameHeaderBytes + header.bytes ? nullptr
                                                          : "sent bytes that are no hello";
}

// False where the buffer does not hold a whole header, or the frame may not begin.
bool Reader::begin_frame() {
  if (end_ - begin_ < kFrameHeaderBytes) return false;
  FrameHeader header;
  violation_ = decode(buffer_.get() + begin_, header);
  if (violation_ != nullptr) return false;
  if (header.kind == FrameKind::hello) {
    violation_ = "sent a second hello";
  } else if (fences_due_ > 0) {
    if (header.kind == FrameKind::fence) --fences_due_;
    begin_payload(header);
    return true;
  } else if (header.kind == FrameKind::fence) {
    violation_ = "sent a fence while its puts were awaited";
  } else if (header.bytes > 0 &&
             (target_ = regions_.find(header.key, header.offset, header.bytes)) == nullptr) {
    violation_ = kOutside;
  }
  if (violation_ != nullptr) return false;
  return header.kind == FrameKind::put ? begin_put(header) : begin_urgent(header);
}

bool Reader::begin_put(const FrameHeader& header) {
  if (header.sequence < last_sequence_) {
    violation_ = "sent its puts out of order";
  } else if (inbox_.beyond(header.sequence)) {
    stalled_ = true;
    return false;
  } else {
    violation_ = inbox_.begin(header);
  }
  if (violation_ != nullptr) return false;
  last_sequence_ = header.sequence;
  read_bytes_ = header.bytes > kLargeBytes ? kShortReadBytes : kBufferBytes;
  begin_payload(header);
  return true;
}

bool Reader::begin_urgent(const FrameHeader& header) {
  if (expected_.stream != 0) {
    violation_ = "sent an urgent put on another stream than the first";
  } else if (header.sequence != inbox_.urgent_count()) {
    violation_ = "sent its urgent puts out of order";
  } else if (inbox_.urgent_full()) {
    stalled_ = true;
  }
  if (stalled_ || violation_ != nullptr) return false;
  begin_payload(header);
  if (left_ == 0) inbox_.urgent_arrived(header.notice);
  return true;
}

void Reader::begin_payload(const FrameHeader& header) {
  begin_ += kFrameHeaderBytes;
  frame_ = header;
  left_ = header.bytes;
}

// False where the buffer is empty, or the region has gone.
bool Reader::copy_payload() {
  const auto bytes = static_cast<uint32_t>(std::min<size_t>(left_, end_ - begin_));
  if (bytes == 0) return false;
  if (fences_due_ > 0) {
    begin_ += bytes;
    payload_arrived(bytes);
    return true;
  }
  if (target_ == nullptr)
    target_ = regions_.find(frame_.key, frame_.offset + frame_.bytes - left_, bytes);
  if (target_ == nullptr) {
    violation_ = kOutside;
    return false;
  }
  std::memcpy(target_, buffer_.get() + begin_, bytes);
  begin_ += bytes;
  payload_arrived(bytes);
  return true;
}

void Reader::payload_arrived(uint32_t bytes) {
  left_ -= bytes;
  if (fences_due_ > 0) return;
  if (frame_.kind == FrameKind::put) return inbox_.arrived(frame_.sequence, bytes);
  if (left_ == 0) inbox_.urgent_arrived(frame_.notice);
}

}  // namespace ropewalk::tcp
