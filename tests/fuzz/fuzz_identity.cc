// The parsers of what launchers and users write: host lists, endpoints, sizes, durations.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "bootstrap/config.h"
#include "bootstrap/net.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto host = ropewalk::bootstrap::first_host(text))
    if (host->empty() || host->size() > 255) std::abort();
  if (const auto endpoint = ropewalk::bootstrap::parse_endpoint(text)) {
    const auto again = ropewalk::bootstrap::parse_endpoint(to_text(*endpoint));
    if (!again || again->host != endpoint->host || again->port != endpoint->port) std::abort();
  }
  if (const auto duration = ropewalk::parse_duration(text))
    if (duration->count() < 0) std::abort();
  if (const auto bytes = ropewalk::parse_size(text))
    if (text.find_first_of("0123456789.") != 0) std::abort();
  return 0;
}
