// An RDMA device that this process has opened.
#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace ropewalk::verbs {

/// Held by shared_ptr by all who use it; the last one closes the device. Neither copyable nor
/// movable. Threads: what libibverbs allows, which is any.
class Adapter {
 public:
  /// `device` from ibv_get_device_list, which must still be alive; not after. Throws
  /// Error(unavailable) that names the device and the way out: permissions, a limit, a dead device.
  explicit Adapter(ibv_device* device);
  ~Adapter();
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  const std::string& name() const { return name_; }
  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  const ibv_device_attr& limits() const { return limits_; }

 private:
  std::string name_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_device_attr limits_{};
};

}  // namespace ropewalk::verbs
