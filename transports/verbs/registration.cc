#include "transports/verbs/registration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <system_error>
#include <utility>

#include "memory/lock_limit.h"
#include "memory/memfd.h"
#include "ropewalk/status.h"

namespace ropewalk::verbs {
namespace {

[[noreturn]] void fail(const Adapter& adapter, size_t bytes, int error) {
  const std::string reason = fmt::format("{}: cannot register {} bytes: {}", adapter.name(), bytes,
                                         std::generic_category().message(error));
  if (error == ENOMEM || error == EAGAIN || error == EPERM)
    throw Error(ErrorCode::exhausted, "register memory",
                fmt::format("{}; {}", reason, text_of(lock_limit())), advice(lock_limit()));
  throw Error(ErrorCode::unavailable, "register memory", reason,
              "use memory of allocate(), or ROPEWALK_TRANSPORT=tcp");
}

// Adapters map memory in entries as large as its address and the key's agree on, up to this and
// beyond.
constexpr uint64_t kEntryBytes = 2 << 20;

uint64_t begin_within_entry(const Region& pages) {
  if (pages.memfd >= 0) return pages.memfd_offset % kEntryBytes;
  return reinterpret_cast<uintptr_t>(pages.base) % kEntryBytes;
}

/// Null, with errno.
ibv_mr* register_relaxed(ibv_pd* pd, const Region& pages, size_t bytes, uint64_t first,
                         int access) {
  // Nothing here relies on the order of bytes within a put: the notice comes after all of them.
  // Some drivers refuse the wish, others ignore it.
  if (ibv_mr* region =
          ibv_reg_mr_iova2(pd, pages.base, bytes, first, access | IBV_ACCESS_RELAXED_ORDERING))
    return region;
  if (errno != EOPNOTSUPP && errno != EINVAL) return nullptr;
  return ibv_reg_mr_iova2(pd, pages.base, bytes, first, access);
}

}  // namespace

AdapterPages::AdapterPages(const Region& pages, std::span<const std::shared_ptr<Adapter>> adapters)
    : first_(begin_within_entry(pages)) {
  assert(reinterpret_cast<uintptr_t>(pages.base) % page_bytes() == 0);
  // What peers may write the adapter must be able to write; read-only pages it could not.
  const int access = pages.source_only ? 0 : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const size_t bytes = std::max<size_t>(pages.bytes, 1);
  for (size_t i = 0; i < adapters.size(); ++i) {
    regions_[i].reset(register_relaxed(adapters[i]->pd(), pages, bytes, first_, access));
    if (!regions_[i]) fail(*adapters[i], bytes, errno);
    id_ |= static_cast<uint64_t>(regions_[i]->rkey) << (32 * i);
  }
}

Registration::Registration(const Region& pages, std::unique_ptr<AdapterPages> own)
    : begin_(pages.base), bytes_(pages.bytes), own_(std::move(own)), pages_(own_.get()) {}

Registration::Registration(std::unique_ptr<RegistrationCache::Use> use)
    : begin_(use->pages().base),
      bytes_(use->pages().bytes),
      use_(std::move(use)),
      pages_(&static_cast<const AdapterPages&>(use_->pinned())) {}

}  // namespace ropewalk::verbs
