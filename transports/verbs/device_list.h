// The RDMA devices of this host.
#pragma once

#include <infiniband/verbs.h>

#include <string>
#include <vector>

namespace ropewalk::verbs {

/// Owns what ibv_get_device_list gives. Neither copyable nor movable.
class DeviceList {
 public:
  /// Asks libibverbs only where the kernel knows of any device; and before it opens one, it sees to
  /// it that children may be forked while memory is registered.
  DeviceList();
  ~DeviceList();
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  /// In the order of their names.
  const std::vector<ibv_device*>& devices() const { return devices_; }
  struct Missing {
    std::string device, why, advice;
  };
  /// Those that the kernel knows and libibverbs does not give.
  const std::vector<Missing>& missing() const { return missing_; }
  bool empty() const { return devices_.empty() && missing_.empty(); }

 private:
  ibv_device** list_ = nullptr;
  std::vector<ibv_device*> devices_;
  std::vector<Missing> missing_;
};

/// False of adapters whose queue pairs are not those of InfiniBand and RoCE: iWARP, EFA, usNIC.
inline bool has_reliable_connections(const ibv_device& device) {
  return device.transport_type == IBV_TRANSPORT_IB;
}

}  // namespace ropewalk::verbs
