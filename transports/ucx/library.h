// UCX's functions and its configuration. The functions are loaded when first used, so that programs
// that never do run where UCX is not installed. The process keeps its signal handlers, which
// loading UCX replaces, unless UCX_HANDLE_ERRORS is set.
#pragma once

#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#include <memory>
#include <string>
#include <type_traits>

namespace ropewalk::ucx {

#define ROPEWALK_UCX_FUNCTIONS(F)   \
  F(ucp_am_recv_data_nbx)           \
  F(ucp_am_send_nbx)                \
  F(ucp_cleanup)                    \
  F(ucp_config_modify)              \
  F(ucp_config_print)               \
  F(ucp_config_read)                \
  F(ucp_config_release)             \
  F(ucp_ep_close_nbx)               \
  F(ucp_ep_create)                  \
  F(ucp_ep_flush_nbx)               \
  F(ucp_get_version)                \
  F(ucp_get_version_string)         \
  F(ucp_init_version)               \
  F(ucp_mem_map)                    \
  F(ucp_mem_unmap)                  \
  F(ucp_request_check_status)       \
  F(ucp_request_free)               \
  F(ucp_worker_arm)                 \
  F(ucp_worker_create)              \
  F(ucp_worker_destroy)             \
  F(ucp_worker_flush_nbx)           \
  F(ucp_worker_get_address)         \
  F(ucp_worker_get_efd)             \
  F(ucp_worker_progress)            \
  F(ucp_worker_release_address)     \
  F(ucp_worker_set_am_recv_handler) \
  F(ucs_status_string)              \
  F(uct_component_query)            \
  F(uct_config_release)             \
  F(uct_md_close)                   \
  F(uct_md_config_read)             \
  F(uct_md_mkey_pack)               \
  F(uct_md_open)                    \
  F(uct_md_query)                   \
  F(uct_md_query_tl_resources)      \
  F(uct_mem_alloc)                  \
  F(uct_mem_free)                   \
  F(uct_query_components)           \
  F(uct_release_component_list)     \
  F(uct_release_tl_resource_list)   \
  F(uct_rkey_ptr)                   \
  F(uct_rkey_release)               \
  F(uct_rkey_unpack)

struct Library {
#define ROPEWALK_MEMBER(name) decltype(&::name) name = nullptr;
  ROPEWALK_UCX_FUNCTIONS(ROPEWALK_MEMBER)
#undef ROPEWALK_MEMBER
};

Library load();

/// Stays loaded. Threads: any. Throws Error(unavailable) that names what could not be loaded.
inline const Library& lib() {
  static const Library loaded = load();
  return loaded;
}

std::string text_of(ucs_status_t status);
/// Throws Error(unavailable) that says what to look at, where `status` is an error.
void check(ucs_status_t status, const char* call);

template <auto destroy>
struct Destroy {
  template <class Object>
  void operator()(Object* object) const {
    (lib().*destroy)(object);
  }
};
/// Owns what UCX made. `destroy`: &Library::FUNCTION.
template <class Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

/// UCX's own configuration: its UCX_* variables and its file.
/// Threads: one. Throws Error(unavailable).
class Config {
 public:
  Config();

  const ucp_config_t* get() const { return config_.get(); }
  /// Sets UCX_TRANSPORT_SETTING, as {"TCP", "RX_SEG_SIZE"}, unless the environment does; UCX's file
  /// (ucx.conf) cannot be asked. UCX complains where it then does not use the transport.
  void prefer(const std::string& transport, const std::string& setting, const std::string& value);
  /// UCX_TLS: "all", "tcp,self", "^posix".
  std::string wires() const { return value_of("UCX_TLS"); }
  /// UCX_NET_DEVICES: "all", "mlx5_0:1,eth0".
  std::string devices() const { return value_of("UCX_NET_DEVICES"); }

 private:
  std::string value_of(const std::string& variable) const;

  Owned<ucp_config_t*, &Library::ucp_config_release> config_;
};

}  // namespace ropewalk::ucx
