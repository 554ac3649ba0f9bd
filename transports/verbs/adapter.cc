#include "transports/verbs/adapter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "memory/lock_limit.h"
#include "ropewalk/status.h"

namespace ropewalk::verbs {
namespace {

/// `node`: "uverbs0", the device's file.
std::string advice_for(int error, const char* node) {
  switch (error) {
    case EACCES:
    case EPERM:  // the package rdma-core does it at boot
      return fmt::format("sudo chmod a+rw /dev/infiniband/{}", node);
    case ENOENT:
    case ENXIO:
    case ENODEV:
      return "sudo modprobe ib_uverbs; a container must be started with --device=/dev/infiniband";
    case ENOMEM:
      return advice(lock_limit());
    default:
      return "dmesg | tail, for what the driver says";
  }
}

/// libibverbs tries several ways, and leaves the errno of the last.
int why_not_opened(const ibv_device& device, int error) {
  const std::string node = fmt::format("/dev/infiniband/{}", device.dev_name);
  return ::access(node.c_str(), R_OK | W_OK) != 0 ? errno : error;
}

[[noreturn]] void fail(const ibv_device& device, const char* what, int error) {
  throw Error(ErrorCode::unavailable, "verbs",
              fmt::format("{}: {}: {}", device.name, what, std::strerror(error)),
              advice_for(error, device.dev_name));
}

}  // namespace

Adapter::Adapter(ibv_device* device) : name_(ibv_get_device_name(device)) {
  errno = 0;
  context_ = ibv_open_device(device);
  if (context_ == nullptr) fail(*device, "cannot open the device", why_not_opened(*device, errno));
  const int error = ibv_query_device(context_, &limits_);
  if (error == 0) pd_ = ibv_alloc_pd(context_);
  if (pd_ != nullptr) return;
  const int reason = error != 0 ? error : errno;
  ibv_close_device(context_);
  fail(*device, error != 0 ? "cannot query the device" : "no protection domain", reason);
}

Adapter::~Adapter() {
  ibv_dealloc_pd(pd_);
  ibv_close_device(context_);
}

}  // namespace ropewalk::verbs
