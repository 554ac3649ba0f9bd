// The RDMA devices of this host, and those that this process has opened.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>
#include <vector>

namespace ropewalk::verbs {

template <auto destroy>
struct Destroy {
  template <class Object>
  void operator()(Object* object) const {
    destroy(object);
  }
};
/// Owns what libibverbs made.
template <class Object, auto destroy>
using Owned = std::unique_ptr<Object, Destroy<destroy>>;

class DeviceList {
 public:
  /// Asks libibverbs only where the kernel knows of any device; and before it opens one, it sees to
  /// it that children may be forked while memory is registered.
  DeviceList();

  /// In the order of their names.
  const std::vector<ibv_device*>& devices() const { return devices_; }
  struct Missing {
    std::string device, why, advice;
  };
  /// Those that the kernel knows and libibverbs does not give.
  const std::vector<Missing>& missing() const { return missing_; }
  bool empty() const { return devices_.empty() && missing_.empty(); }

 private:
  Owned<ibv_device*, ibv_free_device_list> list_;
  std::vector<ibv_device*> devices_;
  std::vector<Missing> missing_;
};

/// False of adapters whose queue pairs are not those of InfiniBand and RoCE: iWARP, EFA, usNIC.
inline bool has_reliable_connections(const ibv_device& device) {
  return device.transport_type == IBV_TRANSPORT_IB;
}

/// An open device. Held by shared_ptr by all who use it; the last one closes it. Threads: what
/// libibverbs allows, which is any.
class Adapter {
 public:
  /// `device` from ibv_get_device_list, which must still be alive; not after. Throws
  /// Error(unavailable) that names the device and the way out: permissions, a limit, a dead device.
  explicit Adapter(ibv_device* device);

  const std::string& name() const { return name_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  const ibv_device_attr& limits() const { return limits_; }

 private:
  std::string name_;
  Owned<ibv_context, ibv_close_device> context_;
  Owned<ibv_pd, ibv_dealloc_pd> pd_;
  ibv_device_attr limits_{};
};

}  // namespace ropewalk::verbs
