// NCCL's side of a network plugin: loads it as NCCL does, and calls any version's table alike.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "integrations/nccl/abi.h"

namespace ropewalk::testing {

using nccl::Result;
using Handle = std::array<std::byte, nccl::kHandleBytes>;

/// Of a device, what the tests look at.
struct NetProperties {
  std::string name;
  std::string pci_path;
  int pointer_support = 0, speed_mbps = 0, receives_max = 0, requests_in_one_max = 0;
  int in_device = 0, first_device = -1;
  int rail = nccl::kUndefined;
};

/// The plugin, with the table of one version, after its init. Throws std::runtime_error.
class Net {
 public:
  /// The file is NCCL_PLUGIN's. `traffic_class`: of the communicator's configuration.
  explicit Net(int version, int traffic_class = nccl::kUndefined);
  ~Net();
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;

  /// What init said; nothing else may be called where that is not success.
  Result init_result() const { return init_result_; }
  /// All lines that plugins of this process have logged as warnings.
  static std::string warnings();

  int devices() const;
  NetProperties properties(int device) const;
  Result listen(int device, void* handle, void** comm) const;
  Result connect(int device, void* handle, void** comm) const;
  const nccl::CommonCalls& calls() const { return *calls_; }

  // As NCCL calls them: again and again until there is something. They fail the test, and give
  // null, where the plugin says anything but success.
  void* connect_now(Handle handle) const;
  void* accept_now(void* listen_comm) const;
  void* isend_now(void* comm, const void* data, size_t bytes, int tag, void* memory) const;
  void* irecv_now(void* comm, void* data, size_t bytes, int tag, void* memory) const;
  /// Until the request is done. Returns the bytes of its messages; empty where it failed.
  std::vector<int> wait(void* request) const;
  void* register_now(void* comm, void* data, size_t bytes) const;

 private:
  template <class Table>
  void use(const Table& table);

  const int version_;
  const int traffic_class_;
  void* library_ = nullptr;
  void* context_ = nullptr;
  const nccl::Table10* table_10_ = nullptr;
  const nccl::Table11* table_11_ = nullptr;
  const nccl::Table12* table_12_ = nullptr;
  const nccl::CommonCalls* calls_ = nullptr;
  Result init_result_ = Result::internal_error;
};

}  // namespace ropewalk::testing
