// Every decoder of the bootstrap on any bytes. What decodes must encode to the same bytes.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "bootstrap/wire.h"

using namespace ropewalk;
using namespace ropewalk::bootstrap;

namespace {

template <class Fixed>
void same_fixed(ByteSpan bytes, const Fixed& again) {
  if (again.size() != bytes.size() || std::memcmp(again.data(), bytes.data(), bytes.size()) != 0)
    std::abort();
}

void same_payload(ByteSpan payload, const Bytes& frame) {
  same_fixed(payload, ByteSpan(frame).subspan(kFrameHeaderBytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteSpan bytes = std::as_bytes(std::span(data, size));
  if (const auto hello = decode<Hello>(bytes)) same_fixed(bytes, encode(*hello));
  if (const auto reply = decode<Reply>(bytes)) same_fixed(bytes, encode(*reply));
  if (const auto answer = decode<Answer>(bytes)) same_fixed(bytes, encode(*answer));
  if (const auto header = decode<FrameHeader>(bytes))
    if (header->payload_bytes > kFramePayloadMax) std::abort();
  if (const auto join = decode<Join>(bytes)) same_payload(bytes, frame(*join));
  if (const auto place = decode<Place>(bytes)) same_payload(bytes, frame(*place));
  if (const auto redirect = decode<Redirect>(bytes)) same_payload(bytes, frame(*redirect));
  if (const auto records = decode<Records>(bytes)) same_payload(bytes, frame(*records));
  if (const auto failure = decode<Signed<JobFailure>>(bytes)) same_payload(bytes, frame(*failure));
  if (const auto heartbeat = decode<Heartbeat>(bytes)) same_payload(bytes, frame(*heartbeat));
  if (const auto leave = decode<Signed<Leave>>(bytes)) same_payload(bytes, frame(*leave));
  if (const auto waits = decode<Signed<Waits>>(bytes)) same_payload(bytes, frame(*waits));
  if (const auto said = decode<Signed<PartFailure>>(bytes)) same_payload(bytes, frame(*said));
  if (const auto leave = decode<Signed<PartLeave>>(bytes)) same_payload(bytes, frame(*leave));
  if (const auto waits = decode<Signed<PartWaits>>(bytes)) same_payload(bytes, frame(*waits));
  if (const auto message = decode<AgreementMessage>(bytes)) same_payload(bytes, frame(*message));
  if (const auto said = decode<Signed<Newcomers>>(bytes)) same_payload(bytes, frame(*said));
  if (const auto admission = decode<Admission>(bytes)) same_payload(bytes, frame(*admission));
  if (const auto question = decode<PartQuestion>(bytes)) same_payload(bytes, frame(*question));
  return 0;
}
