#include "memory/registered_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <limits>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {
constexpr const char* kOperation = "allocate";
constexpr const char* kFileName = "ropewalk-buffer";
}  // namespace

RegisteredMemory::RegisteredMemory(size_t bytes, BindMemory bind) : bytes_(bytes) {
  if (bytes > static_cast<size_t>(std::numeric_limits<off_t>::max()) - kHugePageBytes)
    throw Error(ErrorCode::exhausted, kOperation,
                fmt::format("{} bytes are more than any machine has", bytes),
                "look for an overflow in the size asked for");
  if (bytes < kHugePageBytes || !try_huge_pages(bind)) use_ordinary_pages(bind);
}

bool RegisteredMemory::try_huge_pages(BindMemory bind) {
  const size_t mapped_bytes = round_up(bytes_, kHugePageBytes);
  try {
    UniqueFd fd = create_memfd(kOperation, kFileName, mapped_bytes, /*huge=*/true);
    // Fails here, not at first use, where the pool is too small: mapping reserves.
    SharedMapping mapping(kOperation, fd.get(), 0, mapped_bytes);
    if (bind) bind(mapping.base(), mapped_bytes);
    if (prefault(mapping.base(), mapped_bytes) != 0) return false;
    fd_ = std::move(fd);
    mapping_ = std::move(mapping);
  } catch (const Error&) {
    return false;  // most machines reserve no huge pages; ordinary ones tell the true error
  }
  huge_ = true;
  return true;
}

void RegisteredMemory::use_ordinary_pages(BindMemory bind) {
  const size_t mapped_bytes = round_up(std::max<size_t>(bytes_, 1), page_bytes());
  fd_ = create_memfd(kOperation, kFileName, mapped_bytes);
  mapping_ = SharedMapping(kOperation, fd_.get(), 0, mapped_bytes);
  // Both are hints: refused, the memory is only slower.
  if (bind) bind(mapping_.base(), mapped_bytes);
  if (mapped_bytes >= kHugePageBytes) madvise(mapping_.base(), mapped_bytes, MADV_HUGEPAGE);
  if (const int error = prefault(mapping_.base(), mapped_bytes))
    throw_memory_error(kOperation, fmt::format("get {} bytes of memory", mapped_bytes), error);
}

void RegisteredMemory::register_with(Transport& transport) {
  registrations_.push_back(transport.register_memory(region()));
}

}  // namespace ropewalk
