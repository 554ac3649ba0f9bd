// UCX's own configuration: its UCX_* variables and its file.
#pragma once

#include <string>

#include "transports/ucx/library.h"

namespace ropewalk::ucx {

/// Threads: one. Throws Error(unavailable).
class Config {
 public:
  Config();
  ~Config() { lib().ucp_config_release(config_); }
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;

  const ucp_config_t* get() const { return config_; }
  /// Sets UCX_TRANSPORT_SETTING, as {"TCP", "RX_SEG_SIZE"}, unless the environment does; UCX's file
  /// (ucx.conf) cannot be asked. UCX complains where it then does not use the transport.
  void prefer(const std::string& transport, const std::string& setting, const std::string& value);
  /// UCX_TLS: "all", "tcp,self", "^posix".
  std::string wires() const { return value_of("UCX_TLS"); }
  /// UCX_NET_DEVICES: "all", "mlx5_0:1,eth0".
  std::string devices() const { return value_of("UCX_NET_DEVICES"); }

 private:
  std::string value_of(const std::string& variable) const;

  ucp_config_t* config_ = nullptr;
};

/// Throws Error(unavailable) that says what to look at, where `status` is an error.
void check(ucs_status_t status, const char* call);

std::string text_of(ucs_status_t status);

}  // namespace ropewalk::ucx
