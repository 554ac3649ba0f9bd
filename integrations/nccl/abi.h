// What NCCL and a network plugin call each other with, versions 10, 11 and 12: declared here as the
// C ABI has it, so that building needs neither NCCL nor CUDA. Names are ours; order, types and
// values are NCCL's (tests/nccl/abi_test.cc).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ropewalk::nccl {

enum class Result : int {
  success = 0,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
};

enum class DebugLevel : int { none = 0, version = 1, warn = 2, info = 3, abort = 4, trace = 5 };
inline constexpr unsigned long kDebugInit = 0x1, kDebugNet = 0x10, kDebugAll = ~0ul;
using DebugLogger = void (*)(DebugLevel level, unsigned long subsystems, const char* file, int line,
                             const char* format, ...);
/// The profiler's callback, which is not called.
using ProfilerCallback = Result (*)(void** event, int type, void* parent, int64_t plugin,
                                    void* data);

inline constexpr size_t kHandleBytes = 128;
inline constexpr int kPointerHost = 0x1;
inline constexpr int kRequestsMax = 32;  // of a communicator
inline constexpr int kUndefined = -1;
inline constexpr size_t kTransferBytesMax = size_t{1} << 40;  // that NCCL takes

/// What of a virtual device's properties differs between versions: how many may be in it.
template <int devices_max>
struct VirtualDevice {
  int count;
  int devices[devices_max];
};

struct CommConfig {
  int traffic_class;
};

/// What all versions begin with.
template <int devices_max>
struct PropertiesV10 {
  char* name;
  char* pci_path;  // of the adapter in /sys; null: none
  uint64_t guid;
  int pointer_support;
  int registrations_are_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int comms_max;
  int receives_max;  // in a grouped receive
  int device_type;   // 0: the host's
  int device_version;
  VirtualDevice<devices_max> in_device;
  size_t p2p_bytes_max;
  size_t collective_bytes_max;
};
using Properties10 = PropertiesV10<4>;

struct Properties11 : PropertiesV10<4> {
  int requests_in_one_max;
};

struct Properties12 : PropertiesV10<8> {
  int requests_in_one_max;
  int16_t rail;
  int16_t plane;
};

/// The part of all tables from `accept` to `makeVDevice`.
struct CommonCalls {
  Result (*accept)(void* listen_comm, void** receive_comm, void** device_comm);
  Result (*register_memory)(void* comm, void* data, size_t bytes, int type, void** handle);
  Result (*register_dma_buf)(void* comm, void* data, size_t bytes, int type, uint64_t offset,
                             int fd, void** handle);
  Result (*deregister_memory)(void* comm, void* handle);
  Result (*isend)(void* send_comm, void* data, size_t bytes, int tag, void* memory, void* profiled,
                  void** request);
  Result (*irecv)(void* receive_comm, int count, void** data, size_t* bytes, int* tags,
                  void** memories, void** profiled, void** request);
  Result (*iflush)(void* receive_comm, int count, void** data, int* bytes, void** memories,
                   void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_send)(void* send_comm);
  Result (*close_receive)(void* receive_comm);
  Result (*close_listen)(void* listen_comm);
  void* get_device_memory;    // null
  void* receive_consumed;     // null
  void* make_virtual_device;  // null
};

struct Table10 {
  const char* name;
  Result (*init)(DebugLogger logger, ProfilerCallback profiler);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, Properties10* into);
  Result (*listen)(int device, void* handle, void** listen_comm);
  Result (*connect)(int device, CommConfig* config, void* handle, void** send_comm,
                    void** device_comm);
  CommonCalls common;
};

template <class Properties>
struct Table11Of {
  const char* name;
  Result (*init)(void** context, uint64_t comm_id, CommConfig* config, DebugLogger logger,
                 ProfilerCallback profiler);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, Properties* into);
  Result (*listen)(void* context, int device, void* handle, void** listen_comm);
  Result (*connect)(void* context, int device, void* handle, void** send_comm, void** device_comm);
  CommonCalls common;
  Result (*finalize)(void* context);
  void* set_attributes;  // null
};
using Table11 = Table11Of<Properties11>;
using Table12 = Table11Of<Properties12>;

}  // namespace ropewalk::nccl
