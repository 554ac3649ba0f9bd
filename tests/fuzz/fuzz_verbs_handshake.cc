// Feeds the reader of handshakes between verbs transports with bytes of a hostile peer. What it
// accepts, it must write again as it was read.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "transports/verbs/handshake.h"

using namespace ropewalk::verbs;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  HandshakeReader reader;
  size_t taken = 0;
  while (taken < size && !reader.complete())
    if (!reader.take(static_cast<std::byte>(data[taken++]))) break;
  if (reader.complete() == (reader.violation() != nullptr) && taken < size) std::abort();
  if (!reader.complete()) return 0;
  const auto again = encode(reader.handshake());
  if (again.size() != taken) std::abort();
  for (size_t i = 0, lanes = reader.handshake().lanes.size(); i < taken; ++i) {
    // Three bytes of each lane are unused and not kept.
    const size_t of_lane = (i - kHandshakeHeadBytes) % kLaneAddressBytes;
    const bool unused = i >= kHandshakeHeadBytes && of_lane >= 13 && of_lane < 16 &&
                        i < kHandshakeHeadBytes + lanes * kLaneAddressBytes;
    if (!unused && again[i] != static_cast<std::byte>(data[i])) std::abort();
  }
  return 0;
}
