#include "transports/ucx/worker.h"

#include "transports/ucx/resources.h"

namespace ropewalk::ucx {

namespace {
// Of a long message over TCP. UCX's default (1.13: 64K) costs many more system calls and turns.
constexpr const char* kTcpPieceBytes = "256k";

void prefer_for_tcp(Config& config) {
  if (!uses_tcp(config)) return;
  config.prefer("TCP", "RX_SEG_SIZE", kTcpPieceBytes);
  // Where a peer ends between a connect that blocks and what is sent next, UCX asserts. Nor is a
  // host waited for that does not answer.
  config.prefer("TCP", "CONN_NB", "y");
}
}  // namespace

Worker::Worker(int ranks) {
  Config config;
  prefer_for_tcp(config);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                      UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = static_cast<size_t>(ranks);
  params.mt_workers_shared = 1;  // memory is given back on its users' threads
  params.name = "ropewalk";
  ucp_context_h context = nullptr;
  check(lib().ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config.get(), &context),
        "ucp_init");
  context_.reset(context);
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  check(lib().ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
  worker_.reset(worker);
  check(lib().ucp_worker_get_efd(worker, &event_fd_), "ucp_worker_get_efd");
}

std::vector<std::byte> Worker::address() const {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  check(lib().ucp_worker_get_address(get(), &address, &bytes), "ucp_worker_get_address");
  const auto* begin = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> copy(begin, begin + bytes);
  lib().ucp_worker_release_address(get(), address);
  return copy;
}

}  // namespace ropewalk::ucx
