#include "transports/verbs/registration.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <system_error>

#include "memory/memfd.h"
#include "ropewalk/status.h"

namespace ropewalk::verbs {
namespace {

std::string memlock_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? std::string("unlimited")
                                         : fmt::format("{} KiB", limit.rlim_cur >> 10);
}

[[noreturn]] void fail(const Adapter& adapter, size_t bytes, int error) {
  const std::string reason = fmt::format("{}: cannot register {} bytes: {}", adapter.name(), bytes,
                                         std::generic_category().message(error));
  if (error == ENOMEM || error == EAGAIN || error == EPERM)
    throw Error(ErrorCode::exhausted, "register memory",
                fmt::format("{} (the limit on locked memory is {})", reason, memlock_limit()),
                "raise it: `ulimit -l unlimited`; for a service LimitMEMLOCK=infinity; in a "
                "container --ulimit memlock=-1; for logins \"* - memlock unlimited\" in "
                "/etc/security/limits.conf");
  throw Error(ErrorCode::unavailable, "register memory", reason,
              "use memory of allocate(), or ROPEWALK_TRANSPORT=tcp");
}

/// Address 0 of the key is `base`. Null, with errno.
ibv_mr* register_pages(ibv_pd* pd, void* base, size_t bytes, int access) {
  // Nothing here relies on the order of bytes within a put: the notice comes after all of them.
  // Some drivers refuse the wish, others ignore it.
  if (ibv_mr* region = ibv_reg_mr_iova2(pd, base, bytes, 0, access | IBV_ACCESS_RELAXED_ORDERING))
    return region;
  if (errno != EOPNOTSUPP && errno != EINVAL) return nullptr;
  return ibv_reg_mr_iova2(pd, base, bytes, 0, access);
}

}  // namespace

Registration::Registration(const Region& region,
                           std::span<const std::shared_ptr<Adapter>> adapters) {
  const uintptr_t skip =
      region.dmabuf >= 0 ? 0 : reinterpret_cast<uintptr_t>(region.base) % page_bytes();
  base_ = region.base - skip;
  const size_t bytes = std::max<size_t>(region.bytes + skip, 1);
  key_.bytes = region.bytes + skip;
  // What peers may write the adapter must be able to write; read-only pages it could not.
  const int access = region.source_only ? 0 : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  for (size_t i = 0; i < adapters.size(); ++i) {
    ibv_pd* pd = adapters[i]->pd();
    regions_[i] = region.dmabuf >= 0
                      ? ibv_reg_dmabuf_mr(pd, region.dmabuf_offset, bytes, 0, region.dmabuf, access)
                      : register_pages(pd, base_, bytes, access);
    if (regions_[i] == nullptr) {
      const int error = errno;
      end();
      fail(*adapters[i], bytes, error);
    }
    key_.id |= static_cast<uint64_t>(regions_[i]->rkey) << (32 * i);
  }
}

Registration::~Registration() {
  end();
}

void Registration::end() {
  for (ibv_mr* region : regions_)
    if (region != nullptr) ibv_dereg_mr(region);
}

}  // namespace ropewalk::verbs
