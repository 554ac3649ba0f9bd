#include "memory/registered_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <limits>

#include "ropewalk/status.h"
#include "topology/cgroup.h"

namespace ropewalk {
namespace {
constexpr const char* kOperation = "allocate";
constexpr const char* kFileName = "ropewalk-buffer";
/// Where less is asked for the kernel says it soon enough, and looking would cost more than
/// zeroing.
constexpr size_t kCheckBytesMin = size_t{64} << 20;

/// Before any page of them is touched: where they are not there the kernel kills some process.
void check_available(size_t bytes) {
  if (bytes < kCheckBytesMin) return;
  const auto available = available_memory_bytes();
  if (!available || bytes <= *available) return;
  throw Error(ErrorCode::exhausted, kOperation,
              fmt::format("{} bytes were asked for, and {} are available to this process", bytes,
                          *available),
              "allocate less, or raise the memory limit of the container or job (memory.max of the "
              "cgroup, --mem of Slurm)");
}
}  // namespace

RegisteredMemory::RegisteredMemory(size_t bytes, std::span<Transport* const> transports,
                                   BindMemory bind, Pages pages)
    : bytes_(bytes) {
  if (bytes > static_cast<size_t>(std::numeric_limits<off_t>::max()) - kHugePageBytes)
    throw Error(ErrorCode::exhausted, kOperation,
                fmt::format("{} bytes are more than any machine has", bytes),
                "look for an overflow in the size asked for");
  for (Transport* transport : transports)
    if (MappedMemory* mapped = transport->mapped_memory(); mapped != nullptr && !allocation_)
      allocation_ = mapped->allocate(std::max<size_t>(bytes, 1));
  if (allocation_)
    make_present(allocation_->region().base, allocation_->region().bytes, bind);
  else if (bytes < kHugePageBytes || pages == Pages::on_demand || !try_huge_pages(bind))
    use_ordinary_pages(bind, pages);
  base_ = allocation_ ? allocation_->region().base : mapping_.base();
}

bool RegisteredMemory::try_huge_pages(BindMemory bind) {
  const size_t mapped_bytes = round_up(bytes_, kHugePageBytes);
  try {
    UniqueFd fd = create_memfd(kOperation, kFileName, mapped_bytes, /*huge=*/true);
    // Fails here, not at first use, where the pool is too small: mapping reserves.
    SharedMapping mapping(kOperation, fd.get(), 0, mapped_bytes);
    make_present(mapping.base(), mapped_bytes, bind);
    fd_ = std::move(fd);
    mapping_ = std::move(mapping);
  } catch (const Error&) {
    return false;  // most machines reserve no huge pages; ordinary ones tell the true error
  }
  return true;
}

void RegisteredMemory::use_ordinary_pages(BindMemory bind, Pages pages) {
  const size_t mapped_bytes = round_up(std::max<size_t>(bytes_, 1), page_bytes());
  check_available(mapped_bytes);
  fd_ = create_memfd(kOperation, kFileName, mapped_bytes);
  mapping_ = SharedMapping(kOperation, fd_.get(), 0, mapped_bytes);
  if (pages == Pages::present) make_present(mapping_.base(), mapped_bytes, bind);
}

void RegisteredMemory::make_present(std::byte* base, size_t bytes, BindMemory bind) {
  // Both are hints: refused, the memory is only slower.
  if (bind) bind(base, bytes);
  if (bytes >= kHugePageBytes) madvise(base, bytes, MADV_HUGEPAGE);
  if (const int error = prefault(base, bytes))
    throw_memory_error(kOperation, fmt::format("get {} bytes of memory", bytes), error);
}

void RegisteredMemory::register_with(Transport& transport) {
  registrations_.push_back(transport.register_memory(region()));
}

}  // namespace ropewalk
