// Feeds the decoder of the handles that NCCL carries with those of a hostile peer. What it accepts,
// it must tell again in the same way.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "integrations/nccl/handle.h"
#include "ropewalk/status.h"

using namespace ropewalk;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::array<std::byte, nccl::kHandleBytes> bytes{}, again{}, once_more{};
  std::copy_n(reinterpret_cast<const std::byte*>(data), std::min(size, bytes.size()),
              bytes.begin());
  try {
    nccl::Handle::decode(bytes.data()).encode(again.data());
  } catch (const Error&) {
    return 0;
  }
  nccl::Handle::decode(again.data()).encode(once_more.data());
  if (again != once_more) std::abort();
  return 0;
}
