#include "memory/memfd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/descriptors.h"
#include "ropewalk/status.h"

// Newer than the headers of some systems that the kernel may be newer than.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif

namespace ropewalk {
namespace {

rlim_t soft_limit(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

/// What to do where something has run out; nothing where that is not what `error` says.
std::optional<std::string> advice_for_exhaustion(int error) {
  switch (error) {
    case EMFILE:
    case ENFILE:
      return advice_for_descriptors(error);
    case EFBIG:
      return fmt::format("raise the limit of file sizes, now {} bytes (ulimit -f unlimited)",
                         soft_limit(RLIMIT_FSIZE));
    case ENOMEM:
      if (const rlim_t limit = soft_limit(RLIMIT_AS); limit != RLIM_INFINITY)
        return fmt::format("raise the limit of address space, now {} bytes (ulimit -v unlimited)",
                           limit);
      [[fallthrough]];
    case ENOSPC:
    case EFAULT:
      return "allocate less, or raise the memory limit of the container or job (memory.max of the "
             "cgroup, --mem of Slurm)";
    default:
      return {};
  }
}

int open_memfd(const char* name, unsigned flags) {
  // Kernels from 6.3 on want to hear that the file is not for executing; older ones refuse the
  // flag.
  const int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
  return fd >= 0 || errno != EINVAL ? fd : memfd_create(name, flags);
}

}  // namespace

SharedMapping::SharedMapping(const std::string& operation, int fd, size_t offset, size_t bytes) {
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (base == MAP_FAILED) throw_memory_error(operation, fmt::format("map {} bytes", bytes), errno);
  base_ = static_cast<std::byte*>(base);
  bytes_ = bytes;
}

SharedMapping::~SharedMapping() {
  if (base_) munmap(base_, bytes_);
}

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

UniqueFd create_memfd(const std::string& operation, const char* name, size_t bytes, bool huge) {
  assert(!huge || bytes % (2 << 20) == 0);
  const std::string action = fmt::format("create a memory file of {} bytes", bytes);
  // ftruncate beyond this limit would raise SIGXFSZ, which kills.
  if (bytes > soft_limit(RLIMIT_FSIZE)) throw_memory_error(operation, action, EFBIG);
  const unsigned huge_flags = huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0;
  UniqueFd fd(open_memfd(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | huge_flags));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    throw_memory_error(operation, action, errno);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw_memory_error(operation, "seal a memory file", errno);
  return fd;
}

int prefault(void* address, size_t bytes) {
  const size_t page = page_bytes();
  const PageRange range = PageRange::around(address, bytes, page);
  if (madvise(reinterpret_cast<void*>(range.begin), range.bytes(), MADV_POPULATE_WRITE) == 0)
    return 0;
  if (errno != EINVAL) return errno;
  // Before Linux 5.14. Adding zero writes without changing what a peer may just be storing there.
  for (uintptr_t at = range.begin; at < range.end; at += page)
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at))
        .fetch_add(0, std::memory_order_relaxed);
  return 0;
}

void throw_memory_error(const std::string& operation, const std::string& action, int error) {
  const auto advice = advice_for_exhaustion(error);
  throw Error(
      advice ? ErrorCode::exhausted : ErrorCode::system, operation,
      fmt::format("cannot {}: {}", action, std::strerror(error)),
      advice.value_or(
          "look for a security policy (seccomp) that forbids memfd_create and shared mappings"));
}

}  // namespace ropewalk
