#include "transports/ucx/worker.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "ropewalk/status.h"
#include "transports/ucx/wires.h"

namespace ropewalk::ucx {
namespace {

void check(ucs_status_t status, const char* call) {
  if (status == UCS_OK) return;
  throw Error(ErrorCode::unavailable, "ucx", fmt::format("{}: {}", call, text_of(status)),
              "look at UCX_TLS and UCX_NET_DEVICES; `ropewalk doctor` lists what UCX has here, and "
              "UCX_LOG_LEVEL=info says more");
}

struct Config {
  Config() { check(lib().ucp_config_read(nullptr, nullptr, &config), "ucp_config_read"); }
  ~Config() { lib().ucp_config_release(config); }
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;
  /// UCX_TLS, from the environment or UCX's configuration file: "all", "tcp,self", "^posix".
  std::string wires() const {
    char* text = nullptr;
    size_t bytes = 0;
    FILE* stream = open_memstream(&text, &bytes);
    if (stream == nullptr) return {};
    lib().ucp_config_print(config, stream, nullptr, UCS_CONFIG_PRINT_CONFIG);
    std::fclose(stream);
    const std::string all = std::string("\n") + text;
    std::free(text);
    constexpr std::string_view kName = "\nUCX_TLS=";
    const size_t begin = all.find(kName);
    if (begin == std::string::npos) return {};
    const size_t end = all.find('\n', begin + kName.size());
    return all.substr(begin + kName.size(), end - begin - kName.size());
  }

  ucp_config_t* config = nullptr;
};

}  // namespace

std::string text_of(ucs_status_t status) {
  return lib().ucs_status_string(status);
}

Worker::Worker(int ranks) {
  const Config config;
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                      UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = static_cast<size_t>(ranks);
  params.mt_workers_shared = 1;  // memory is given back on its users' threads
  params.name = "ropewalk";
  check(lib().ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config.config, &context_),
        "ucp_init");
  shares_memory_ = allows_shared_memory(config.wires());
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  try {
    check(lib().ucp_worker_create(context_, &worker_params, &worker_), "ucp_worker_create");
    check(lib().ucp_worker_get_efd(worker_, &event_fd_), "ucp_worker_get_efd");
  } catch (const Error&) {
    if (worker_ != nullptr) lib().ucp_worker_destroy(worker_);
    lib().ucp_cleanup(context_);
    throw;
  }
}

Worker::~Worker() {
  if (worker_ == nullptr) return;
  lib().ucp_worker_destroy(worker_);
  lib().ucp_cleanup(context_);
}

std::vector<std::byte> Worker::address() const {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  check(lib().ucp_worker_get_address(worker_, &address, &bytes), "ucp_worker_get_address");
  const auto* begin = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> copy(begin, begin + bytes);
  lib().ucp_worker_release_address(worker_, address);
  return copy;
}

bool Worker::arm() {
  return lib().ucp_worker_arm(worker_) == UCS_OK;
}

}  // namespace ropewalk::ucx
