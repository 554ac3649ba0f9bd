#include "transports/verbs/device_list.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/log.h"

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

}  // namespace

DeviceList::DeviceList() {
  const std::set<std::string> known = names_in("/sys/class/infiniband");
  if (known.empty()) return;
  make_forks_harmless();
  int count = 0;
  list_ = ibv_get_device_list(&count);
  if (list_ != nullptr) devices_.assign(list_, list_ + count);
  std::sort(devices_.begin(), devices_.end(), [](ibv_device* x, ibv_device* y) {
    return std::string(ibv_get_device_name(x)) < ibv_get_device_name(y);
  });
  const bool has_uverbs = !names_in("/sys/class/infiniband_verbs").empty();
  for (const std::string& name : known) {
    const bool listed = std::any_of(devices_.begin(), devices_.end(), [&](ibv_device* device) {
      return name == ibv_get_device_name(device);
    });
    if (listed) continue;
    if (has_uverbs)
      missing_.push_back(
          {name, "libibverbs has no driver for it", "sudo apt-get install ibverbs-providers"});
    else
      missing_.push_back({name, "the kernel's ib_uverbs is not loaded", "sudo modprobe ib_uverbs"});
  }
}

DeviceList::~DeviceList() {
  if (list_ != nullptr) ibv_free_device_list(list_);
}

}  // namespace ropewalk::verbs
