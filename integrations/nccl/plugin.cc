// The three tables that NCCL looks for, and how its calls reach the rest.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "bootstrap/auth.h"
#include "integrations/nccl/abi.h"
#include "integrations/nccl/devices.h"
#include "integrations/nccl/logging.h"
#include "integrations/nccl/setup.h"

namespace ropewalk::nccl {
namespace {

constexpr const char* kName = "Ropewalk";

/// What of the environment all communicators of the process have in common, read at the first init.
/// Version 10 has no context, so that it is the process's.
struct Adapters {
  Config config;
  std::vector<Device> devices;
};
std::mutex adapters_mutex;
std::unique_ptr<const Adapters> the_adapters;  // guarded while it is made; then constant

/// Throws Error.
const Adapters& adapters() {
  const std::lock_guard lock(adapters_mutex);
  if (the_adapters) return *the_adapters;
  bootstrap::start_cryptography();
  auto found = std::make_unique<Adapters>();
  found->config = config_from_environment();
  set_log_level(found->config.log);
  found->devices = find_devices(found->config);
  the_adapters = std::move(found);
  return *the_adapters;
}

const Device& device_at(int number) {
  const auto& devices = adapters().devices;
  if (number < 0 || static_cast<size_t>(number) >= devices.size())
    throw Error(ErrorCode::invalid_argument, "device",
                fmt::format("there is no device {}", number));
  return devices[static_cast<size_t>(number)];
}

/// Of a communicator of NCCL. What is being connected is found again by the handle's random bytes.
struct Context {
  std::mutex mutex;
  std::map<std::array<std::byte, 32>, std::shared_ptr<Connector>> connectors;
};
Context the_context;  // version 10's

Result refuse_null(const char* call) {
  warn("{}: a null pointer where NCCL's plugin interface allows none", call);
  return Result::invalid_argument;
}

Result init_any(DebugLogger logger) {
  set_logger(logger);
  return guarded("init", [] {
    std::string names;
    for (const Device& device : adapters().devices)
      names += fmt::format("{}{} ({}, {} Mbit/s)", names.empty() ? "" : ", ", device.name,
                           device.provider->name, device.speed_mbps);
    info("{}; key: {}", names,
         adapters().config.job_key.empty() ? "in NCCL's handles (ROPEWALK_JOB_KEY is not set)"
                                           : "ROPEWALK_JOB_KEY");
    return Result::success;
  });
}

/// What NCCL wants of one communicator (ncclConfig_t::trafficClass) is the same for all here.
void note_config(const CommConfig* config) {
  static std::atomic<bool> is_told{false};
  if (config == nullptr || config->traffic_class == kUndefined) return;
  if (!is_told.exchange(true))
    warn("a communicator's trafficClass, {}, is not taken; ROPEWALK_IB_TC sets that of all",
         config->traffic_class);
}

Result devices(int* count) {
  if (count == nullptr) return refuse_null("devices");
  return guarded("devices", [&] {
    *count = static_cast<int>(adapters().devices.size());
    return Result::success;
  });
}

template <class Properties>
void describe(int number, Properties& into) {
  const Device& device = device_at(number);
  into = {};
  // NCCL reads these as long as the process lives.
  into.name = const_cast<char*>(device.name.c_str());
  into.pci_path = device.pci_path.empty() ? nullptr : const_cast<char*>(device.pci_path.c_str());
  into.guid = device.guid;
  into.pointer_support = kPointerHost;
  into.speed_mbps = device.speed_mbps;
  into.port = device.port;
  into.latency_us = static_cast<float>(device.provider->cost.latency_s * 1e6);
  into.comms_max = 1 << 16;
  into.receives_max = kReceivesMax;
  into.in_device.count = 1;
  into.in_device.devices[0] = number;
  into.p2p_bytes_max = into.collective_bytes_max = kTransferBytesMax;
  if constexpr (requires { into.requests_in_one_max; }) into.requests_in_one_max = 1;
  if constexpr (requires { into.rail; }) {
    into.rail = device.rail;
    into.plane = kUndefined;
  }
}

template <class Properties>
Result get_properties(int device, Properties* into) {
  if (into == nullptr) return refuse_null("getProperties");
  return guarded("getProperties", [&] {
    describe(device, *into);
    return Result::success;
  });
}

Result listen(void*, int device, void* handle, void** listen_comm) {
  if (handle == nullptr || listen_comm == nullptr) return refuse_null("listen");
  return guarded("listen", [&] {
    *listen_comm = nullptr;
    *listen_comm =
        new Listener(device_at(device), adapters().config.job_key, static_cast<std::byte*>(handle));
    return Result::success;
  });
}

std::shared_ptr<Connector> connector_of(Context& context, int device, const Handle& handle) {
  const std::lock_guard lock(context.mutex);
  const auto found = context.connectors.find(handle.random);
  if (found != context.connectors.end()) return found->second;
  const auto connector =
      std::make_shared<Connector>(device_at(device), adapters().config.job_key, handle);
  context.connectors.emplace(handle.random, connector);
  return connector;
}

Result connect(void* context_of_comm, int device, void* handle, void** send_comm, void**) {
  if (context_of_comm == nullptr || handle == nullptr || send_comm == nullptr)
    return refuse_null("connect");
  return guarded("connect", [&] {
    *send_comm = nullptr;
    auto& context = *static_cast<Context*>(context_of_comm);
    const Handle peer = Handle::decode(static_cast<const std::byte*>(handle));
    const auto forget = [&] {
      const std::lock_guard lock(context.mutex);
      context.connectors.erase(peer.random);
    };
    try {
      const auto link = connector_of(context, device, peer)->connect().release();
      if (link == nullptr) return Result::success;
      *send_comm = static_cast<Link*>(link);
    } catch (...) {
      forget();
      throw;
    }
    forget();
    return Result::success;
  });
}

Result accept(void* listen_comm, void** receive_comm, void**) {
  if (listen_comm == nullptr || receive_comm == nullptr) return refuse_null("accept");
  return guarded("accept", [&] {
    *receive_comm = static_cast<Link*>(static_cast<Listener*>(listen_comm)->accept().release());
    return Result::success;
  });
}

Result register_memory(void* comm, void* data, size_t bytes, int type, void** handle) {
  if (comm == nullptr || data == nullptr || handle == nullptr) return refuse_null("regMr");
  return guarded("regMr", [&] {
    *handle = nullptr;
    if (type != kPointerHost || bytes == 0)
      throw Error(ErrorCode::invalid_argument, "regMr",
                  fmt::format("{} bytes of memory of type {}", bytes, type),
                  "register the host's memory only, as ptrSupport says");
    *handle = static_cast<Link*>(comm)->register_memory(data, bytes);
    return Result::success;
  });
}

Result register_dma_buf(void* comm, void*, size_t, int, uint64_t, int, void** handle) {
  if (comm == nullptr || handle == nullptr) return refuse_null("regMrDmaBuf");
  *handle = nullptr;
  warn("regMrDmaBuf: the host's memory only can be registered, as ptrSupport says");
  return Result::invalid_usage;
}

Result deregister_memory(void* comm, void* handle) {
  if (comm == nullptr) return refuse_null("deregMr");
  return guarded("deregMr", [&] {
    return static_cast<Link*>(comm)->deregister_memory(static_cast<MemoryRegistration*>(handle));
  });
}

/// Of the wrong kind: NCCL has mixed communicators up.
Result refuse_comm(const char* call) {
  warn("{}: not on a communicator of this direction", call);
  return Result::invalid_argument;
}

Result isend(void* send_comm, void* data, size_t bytes, int tag, void* memory, void*,
             void** request) {
  if (send_comm == nullptr || request == nullptr) return refuse_null("isend");
  auto* const link = static_cast<Link*>(send_comm);
  if (!link->is_sender()) return refuse_comm("isend");
  return guarded("isend", [&] {
    Request* made = nullptr;
    const Result result = static_cast<SendLink*>(link)->isend(
        data, bytes, tag, static_cast<MemoryRegistration*>(memory), &made);
    *request = made;
    return result;
  });
}

/// `*request` may come with a hint that the end need not be told of; it is told.
Result irecv(void* receive_comm, int count, void** data, size_t* bytes, int* tags, void** memories,
             void**, void** request) {
  const bool is_whole = receive_comm != nullptr && data != nullptr && bytes != nullptr &&
                        tags != nullptr && request != nullptr;
  if (!is_whole) return refuse_null("irecv");
  auto* const link = static_cast<Link*>(receive_comm);
  if (link->is_sender()) return refuse_comm("irecv");
  return guarded("irecv", [&] {
    Request* made = nullptr;
    const Result result =
        static_cast<ReceiveLink*>(link)->irecv({count, data, bytes, tags, memories}, &made);
    *request = made;
    return result;
  });
}

/// What `test` says has arrived in the host's memory is there.
Result iflush(void* receive_comm, int, void**, int*, void**, void** request) {
  if (receive_comm == nullptr || request == nullptr) return refuse_null("iflush");
  *request = nullptr;
  return Result::success;
}

Result test(void* request, int* done, int* bytes) {
  if (request == nullptr || done == nullptr) return refuse_null("test");
  return guarded("test", [&] {
    auto& made = *static_cast<Request*>(request);
    *done = 0;
    return made.link->test(made, done, bytes);
  });
}

Result close_link(void* comm) {
  return guarded("close", [&] {
    delete static_cast<Link*>(comm);
    return Result::success;
  });
}

Result close_listen(void* listen_comm) {
  return guarded("closeListen", [&] {
    delete static_cast<Listener*>(listen_comm);
    return Result::success;
  });
}

constexpr CommonCalls kCommon = {
    accept, register_memory, register_dma_buf, deregister_memory, isend,   irecv,   iflush,
    test,   close_link,      close_link,       close_listen,      nullptr, nullptr, nullptr};

// ---- Version 10 ----

Result init_10(DebugLogger logger, ProfilerCallback) {
  return init_any(logger);
}

Result listen_10(int device, void* handle, void** listen_comm) {
  return listen(nullptr, device, handle, listen_comm);
}

Result connect_10(int device, CommConfig* config, void* handle, void** send_comm,
                  void** device_comm) {
  note_config(config);
  return connect(&the_context, device, handle, send_comm, device_comm);
}

// ---- Versions 11 and 12 ----

Result init_11(void** context, uint64_t, CommConfig* config, DebugLogger logger, ProfilerCallback) {
  set_logger(logger);
  note_config(config);
  if (context == nullptr) return refuse_null("init");
  *context = nullptr;
  if (const Result result = init_any(logger); result != Result::success) return result;
  return guarded("init", [&] {
    *context = new Context();
    return Result::success;
  });
}

Result finalize(void* context) {
  return guarded("finalize", [&] {
    delete static_cast<Context*>(context);
    return Result::success;
  });
}

}  // namespace
}  // namespace ropewalk::nccl

#define ROPEWALK_NCCL_TABLE extern "C" __attribute__((visibility("default"))) const

ROPEWALK_NCCL_TABLE ropewalk::nccl::Table10 ncclNetPlugin_v10 = {
    ropewalk::nccl::kName,     ropewalk::nccl::init_10,
    ropewalk::nccl::devices,   ropewalk::nccl::get_properties<ropewalk::nccl::Properties10>,
    ropewalk::nccl::listen_10, ropewalk::nccl::connect_10,
    ropewalk::nccl::kCommon};

ROPEWALK_NCCL_TABLE ropewalk::nccl::Table11 ncclNetPlugin_v11 = {
    ropewalk::nccl::kName,
    ropewalk::nccl::init_11,
    ropewalk::nccl::devices,
    ropewalk::nccl::get_properties<ropewalk::nccl::Properties11>,
    ropewalk::nccl::listen,
    ropewalk::nccl::connect,
    ropewalk::nccl::kCommon,
    ropewalk::nccl::finalize,
    nullptr};

ROPEWALK_NCCL_TABLE ropewalk::nccl::Table12 ncclNetPlugin_v12 = {
    ropewalk::nccl::kName,
    ropewalk::nccl::init_11,
    ropewalk::nccl::devices,
    ropewalk::nccl::get_properties<ropewalk::nccl::Properties12>,
    ropewalk::nccl::listen,
    ropewalk::nccl::connect,
    ropewalk::nccl::kCommon,
    ropewalk::nccl::finalize,
    nullptr};
