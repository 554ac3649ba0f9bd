#include "bootstrap/wire.h"

#include <algorithm>
#include <cassert>
#include <concepts>
#include <cstring>
#include <string_view>

namespace ropewalk::bootstrap {
namespace {

constexpr std::string_view kMagic = "ropewalk";

class Writer {
 public:
  explicit Writer(FrameType type) {
    u32(0);  // payload length, filled in by finish()
    u8(static_cast<uint8_t>(type));
  }
  Writer() = default;

  void u8(uint8_t v) { integer(v); }
  void u16(uint16_t v) { integer(v); }
  void u32(uint32_t v) { integer(v); }
  void i32(int32_t v) { integer(static_cast<uint32_t>(v)); }
  void i64(int64_t v) { integer(static_cast<uint64_t>(v)); }
  void raw(ByteSpan bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void raw(std::string_view text) { raw(std::as_bytes(std::span(text))); }
  void zeros(size_t count) { bytes_.resize(bytes_.size() + count); }
  void text(std::string_view text, size_t bytes_max) {
    text = text.substr(0, bytes_max);
    u16(static_cast<uint16_t>(text.size()));
    raw(text);
  }

  Bytes finish() {
    const auto payload = static_cast<uint32_t>(bytes_.size() - kFrameHeaderBytes);
    assert(payload <= kFramePayloadMax);
    for (int i = 0; i < 4; ++i) bytes_[i] = static_cast<std::byte>(payload >> (8 * i));
    return std::move(bytes_);
  }
  template <size_t N>
  std::array<std::byte, N> fixed() const {
    assert(bytes_.size() == N);
    std::array<std::byte, N> out;
    std::copy_n(bytes_.begin(), N, out.begin());
    return out;
  }

 private:
  template <std::unsigned_integral T>
  void integer(T v) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<std::byte>(v >> (8 * i)));
  }
  Bytes bytes_;
};

/// Every read checks; after the first that fails all further ones give zero and done() is false.
class Reader {
 public:
  explicit Reader(ByteSpan bytes) : rest_(bytes) {}

  uint8_t u8() { return integer<uint8_t>(); }
  uint16_t u16() { return integer<uint16_t>(); }
  uint32_t u32() { return integer<uint32_t>(); }
  int32_t i32() { return static_cast<int32_t>(u32()); }
  int64_t i64() { return static_cast<int64_t>(integer<uint64_t>()); }
  ByteSpan raw(size_t count) {
    if (!require(count <= rest_.size())) return {};
    const ByteSpan taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  template <size_t N>
  void fill(std::array<std::byte, N>& into) {
    const ByteSpan taken = raw(N);
    if (taken.size() == N) std::copy_n(taken.begin(), N, into.begin());
  }
  void zeros(size_t count) {
    const ByteSpan taken = raw(count);
    require(std::all_of(taken.begin(), taken.end(), [](std::byte b) { return b == std::byte{0}; }));
  }
  void magic() {
    const ByteSpan taken = raw(kMagic.size());
    require(taken.size() == kMagic.size() &&
            std::memcmp(taken.data(), kMagic.data(), kMagic.size()) == 0);
  }
  std::string text(size_t bytes_max) {
    const size_t length = u16();
    if (!require(length <= bytes_max)) return {};
    const ByteSpan taken = raw(length);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  bool require(bool condition) { return ok_ = ok_ && condition; }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  template <std::unsigned_integral T>
  T integer() {
    const ByteSpan taken = raw(sizeof(T));
    T v = 0;
    for (size_t i = 0; i < taken.size(); ++i)
      v = static_cast<T>(v | static_cast<T>(std::to_integer<T>(taken[i]) << (8 * i)));
    return v;
  }
  ByteSpan rest_;
  bool ok_ = true;
};

void put_record(Writer& out, const PeerRecord& record) {
  assert(within_limits(record));
  out.u32(static_cast<uint32_t>(record.rank));
  out.i64(record.pid);
  out.text(record.host_name, kNameBytesMax);
  out.text(record.host_id, kNameBytesMax);
  out.u16(static_cast<uint16_t>(record.addresses.size()));
  for (const std::string& address : record.addresses) out.text(address, kAddressBytesMax);
  out.text(record.transport, kNameBytesMax);
  out.text(record.cpus, kTransportBytesMax);
  out.u16(static_cast<uint16_t>(record.transport_infos.size()));
  for (const auto& [name, info] : record.transport_infos) {
    out.text(name, kNameBytesMax);
    out.text(info, kTransportBytesMax);
  }
}

PeerRecord get_record(Reader& in) {
  PeerRecord record;
  const uint32_t rank = in.u32();
  in.require(rank < kRanksMax);
  record.rank = static_cast<int>(rank);
  record.pid = in.i64();
  record.host_name = in.text(kNameBytesMax);
  record.host_id = in.text(kNameBytesMax);
  const size_t addresses = in.u16();
  in.require(addresses <= kAddressesMax);
  for (size_t i = 0; i < addresses && in.ok(); ++i)
    record.addresses.push_back(in.text(kAddressBytesMax));
  record.transport = in.text(kNameBytesMax);
  record.cpus = in.text(kTransportBytesMax);
  const size_t infos = in.u16();
  in.require(infos <= kTransportInfosMax);
  std::string last;
  for (size_t i = 0; i < infos && in.ok(); ++i) {
    const std::string name = in.text(kNameBytesMax);
    in.require(name > last);
    record.transport_infos.emplace(name, in.text(kTransportBytesMax));
    last = name;
  }
  in.require(transport_bytes(record) <= kTransportBytesMax);
  return record;
}

template <class T>
std::optional<T> finish(const Reader& in, T&& value) {
  if (!in.done()) return {};
  return std::forward<T>(value);
}

}  // namespace

bool within_limits(const PeerRecord& record) {
  return record.rank >= 0 && static_cast<uint32_t>(record.rank) < kRanksMax &&
         record.host_name.size() <= kNameBytesMax && record.host_id.size() <= kNameBytesMax &&
         record.addresses.size() <= kAddressesMax &&
         std::all_of(record.addresses.begin(), record.addresses.end(),
                     [](const std::string& a) { return a.size() <= kAddressBytesMax; }) &&
         record.transport.size() <= kNameBytesMax &&
         record.transport_infos.size() <= kTransportInfosMax &&
         transport_bytes(record) <= kTransportBytesMax;
}

size_t transport_bytes(const PeerRecord& record) {
  size_t bytes = record.cpus.size();
  for (const auto& [name, info] : record.transport_infos) bytes += name.size() + info.size();
  return bytes;
}

std::array<std::byte, kHelloBytes> encode(const Hello& hello) {
  Writer out;
  out.raw(kMagic);
  out.u16(hello.version);
  out.u8(static_cast<uint8_t>(hello.purpose));
  out.zeros(1);
  out.u32(hello.from);
  out.u32(hello.to);
  out.u32(hello.stream);
  out.zeros(8);
  out.raw(hello.nonce);
  return out.fixed<kHelloBytes>();
}

std::optional<Hello> decode_hello(ByteSpan bytes) {
  Reader in(bytes);
  Hello hello;
  in.magic();
  hello.version = in.u16();
  const uint8_t purpose = in.u8();
  in.require(purpose >= 1 && purpose <= 3);
  hello.purpose = static_cast<Purpose>(purpose);
  in.zeros(1);
  hello.from = in.u32();
  hello.to = in.u32();
  hello.stream = in.u32();
  in.require(hello.from < kRanksMax && hello.to < kRanksMax && hello.stream < kStreamsMax);
  in.zeros(8);
  in.fill(hello.nonce);
  return finish(in, std::move(hello));
}

std::array<std::byte, kChallengeBytes> encode(const Challenge& challenge) {
  Writer out;
  out.raw(kMagic);
  out.u16(challenge.version);
  out.zeros(6);
  out.raw(challenge.nonce);
  out.raw(challenge.mac);
  return out.fixed<kChallengeBytes>();
}

std::optional<Challenge> decode_challenge(ByteSpan bytes) {
  Reader in(bytes);
  Challenge challenge;
  in.magic();
  challenge.version = in.u16();
  in.zeros(6);
  in.fill(challenge.nonce);
  in.fill(challenge.mac);
  return finish(in, std::move(challenge));
}

std::array<std::byte, kVerdictBytes> encode(Verdict verdict) {
  Writer out;
  out.u8(static_cast<uint8_t>(verdict));
  out.zeros(kVerdictBytes - 1);
  return out.fixed<kVerdictBytes>();
}

std::optional<Verdict> decode_verdict(ByteSpan bytes) {
  Reader in(bytes);
  const uint8_t verdict = in.u8();
  in.require(verdict <= static_cast<uint8_t>(Verdict::already));
  in.zeros(kVerdictBytes - 1);
  return finish(in, static_cast<Verdict>(verdict));
}

std::optional<FrameHeader> decode_frame_header(ByteSpan bytes) {
  Reader in(bytes);
  FrameHeader header;
  header.payload_bytes = in.u32();
  const uint8_t type = in.u8();
  in.require(header.payload_bytes <= kFramePayloadMax);
  in.require(type >= static_cast<uint8_t>(FrameType::join) &&
             type <= static_cast<uint8_t>(FrameType::leave));
  header.type = static_cast<FrameType>(type);
  return finish(in, std::move(header));
}

std::optional<Join> decode_join(ByteSpan payload) {
  Reader in(payload);
  Join join;
  join.size = in.u32();
  in.require(join.size >= 1 && join.size <= kRanksMax);
  join.remaining_ms = in.u32();
  join.record = get_record(in);
  return finish(in, std::move(join));
}

std::optional<Place> decode_place(ByteSpan payload) {
  Reader in(payload);
  Place place;
  in.fill(place.world);
  place.parent = get_record(in);
  return finish(in, std::move(place));
}

std::optional<PeerRecord> decode_record(ByteSpan payload) {
  Reader in(payload);
  PeerRecord record = get_record(in);
  return finish(in, std::move(record));
}

std::optional<Failure> decode_failure(ByteSpan payload) {
  Reader in(payload);
  Failure failure;
  const uint8_t code = in.u8();
  in.require(code >= 1 && code <= static_cast<uint8_t>(ErrorCode::aborted));
  failure.code = static_cast<ErrorCode>(code);
  failure.rank = in.i32();
  failure.peer = in.i32();
  for (const int rank : {failure.rank, failure.peer})
    in.require(rank >= -1 && rank < static_cast<int>(kRanksMax));
  failure.operation = in.text(kOperationBytesMax);
  failure.reason = in.text(kReasonBytesMax);
  failure.advice = in.text(kReasonBytesMax);
  return finish(in, std::move(failure));
}

std::optional<Heartbeat> decode_heartbeat(ByteSpan payload) {
  Reader in(payload);
  return finish(in, Heartbeat{in.u32()});
}

std::optional<Leave> decode_leave(ByteSpan payload) {
  Reader in(payload);
  Leave leave;
  leave.rank = in.u32();
  in.require(leave.rank < kRanksMax);
  leave.calls.count = in.u32();
  leave.calls.digest = in.u32();
  leave.calls.last = in.text(kOperationBytesMax);
  return finish(in, std::move(leave));
}

Bytes frame(FrameType empty) {
  return Writer(empty).finish();
}

Bytes frame(const Join& join) {
  Writer out(FrameType::join);
  out.u32(join.size);
  out.u32(join.remaining_ms);
  put_record(out, join.record);
  return out.finish();
}

Bytes frame(const Place& place) {
  Writer out(FrameType::place);
  out.raw(place.world);
  put_record(out, place.parent);
  return out.finish();
}

Bytes frame(const PeerRecord& record) {
  Writer out(FrameType::record);
  put_record(out, record);
  return out.finish();
}

Bytes frame(const Failure& failure) {
  Writer out(FrameType::failure);
  out.u8(static_cast<uint8_t>(failure.code));
  out.i32(failure.rank);
  out.i32(failure.peer);
  out.text(failure.operation, kOperationBytesMax);
  out.text(failure.reason, kReasonBytesMax);
  out.text(failure.advice, kReasonBytesMax);
  return out.finish();
}

Bytes frame(const Heartbeat& heartbeat) {
  Writer out(FrameType::heartbeat);
  out.u32(heartbeat.interval_ms);
  return out.finish();
}

Bytes frame(const Leave& leave) {
  Writer out(FrameType::leave);
  out.u32(leave.rank);
  out.u32(leave.calls.count);
  out.u32(leave.calls.digest);
  out.text(leave.calls.last, kOperationBytesMax);
  return out.finish();
}

}  // namespace ropewalk::bootstrap
