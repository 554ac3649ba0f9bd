#include "transports/verbs/devices.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/log.h"
#include "memory/lock_limit.h"
#include "ropewalk/status.h"
#include "transports/verbs/library.h"

namespace ropewalk::verbs {
namespace {

std::set<std::string> names_in(const char* folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    names.insert(entry.path().filename());
  return names;
}

// Before Linux 5.12 it is the parent of a forked child that gets a copy of a page when it writes
// there, while adapters go on with the old one. There libibverbs keeps registered pages from
// children, if it is asked before the first is registered; it would do so on newer kernels, too.
void make_forks_harmless() {
  if (ibv_is_fork_initialized() != IBV_FORK_DISABLED) return;
  if (const int error = ibv_fork_init(); error != 0)
    log(LogLevel::warn, -1,
        "forking would part registered memory from the adapters: {}; start this process with "
        "IBV_FORK_SAFE=1, or use Linux 5.12 or newer",
        std::generic_category().message(error));
}

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

DeviceList::DeviceList() {
  const std::set<std::string> known = names_in("/sys/class/infiniband");
  if (known.empty()) return;
  try {
    load_library();
  } catch (const Error& error) {
    for (const std::string& name : known)
      missing_.push_back({name, error.failure().reason, error.failure().advice});
    return;
  }
  make_forks_harmless();
  int count = 0;
  list_.reset(ibv_get_device_list(&count));
  if (list_) devices_.assign(list_.get(), list_.get() + count);
  const auto name_of = [](ibv_device* device) { return std::string(ibv_get_device_name(device)); };
  std::ranges::sort(devices_, {}, name_of);
  const bool has_uverbs = !names_in("/sys/class/infiniband_verbs").empty();
  for (const std::string& name : known) {
    if (std::ranges::find(devices_, name, name_of) != devices_.end()) continue;
    if (has_uverbs)
      missing_.push_back(
          {name, "libibverbs has no driver for it", "sudo apt-get install ibverbs-providers"});
    else
      missing_.push_back({name, "the kernel's ib_uverbs is not loaded", "sudo modprobe ib_uverbs"});
  }
}

Adapter::Adapter(ibv_device* device) : name_(ibv_get_device_name(device)) {
  errno = 0;
  context_.reset(ibv_open_device(device));
  if (!context_) fail(*device, "cannot open the device", why_not_opened(*device, errno));
  if (const int error = ibv_query_device(context(), &limits_); error != 0)
    fail(*device, "cannot query the device", error);
  pd_.reset(ibv_alloc_pd(context()));
  if (!pd_) fail(*device, "no protection domain", errno);
}

}  // namespace ropewalk::verbs
