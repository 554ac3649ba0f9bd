#include "transports/verbs/device_list.h"

#include <algorithm>
#include <filesystem>
#include <set>

namespace ropewalk::verbs {
namespace {

std::set<std::string> names_in(const char* folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    names.insert(entry.path().filename());
  return names;
}

}  // namespace

DeviceList::DeviceList() {
  const std::set<std::string> known = names_in("/sys/class/infiniband");
  if (known.empty()) return;
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
