// Feeds the reader of handshakes between UCX transports with bytes of a hostile peer. What it
// accepts, it must write again as it was read, except for the bytes that are unused.
#include <cstdint>
#include <cstdlib>

#include "transports/ucx/handshake.h"

using namespace ropewalk::ucx;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  HandshakeReader reader;
  size_t taken = 0;
  while (taken < size && !reader.complete())
    if (!reader.take(static_cast<std::byte>(data[taken++]))) break;
  if (reader.complete() && reader.violation() != nullptr) std::abort();
  if (!reader.complete()) return 0;
  const auto again = encode(reader.handshake());
  if (again.size() != taken) std::abort();
  for (size_t i = 0; i < taken; ++i) {
    const bool unused = i == 6 || i == 7;
    if (!unused && again[i] != static_cast<std::byte>(data[i])) std::abort();
  }
  return 0;
}
