#include "tests/nccl/net.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>

namespace ropewalk::testing {
namespace {

using namespace nccl;

std::mutex log_mutex;
std::string logged_warnings;

void log(DebugLevel level, unsigned long, const char*, int, const char* format, ...) {
  std::array<char, 1024> line;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  const std::lock_guard lock(log_mutex);
  if (level == DebugLevel::warn) logged_warnings += std::string(line.data()) + "\n";
  if (std::getenv("NCCL_DEBUG") != nullptr) std::fprintf(stderr, "%s\n", line.data());
}

template <class Properties>
NetProperties read_properties(const Properties& from) {
  NetProperties into;
  into.name = from.name;
  if (from.pci_path != nullptr) into.pci_path = from.pci_path;
  into.pointer_support = from.pointer_support;
  into.speed_mbps = from.speed_mbps;
  into.receives_max = from.receives_max;
  into.in_device = from.in_device.count;
  into.first_device = from.in_device.devices[0];
  if constexpr (requires { from.requests_in_one_max; })
    into.requests_in_one_max = from.requests_in_one_max;
  if constexpr (requires { from.rail; }) into.rail = from.rail;
  return into;
}

template <class Properties, class Table>
NetProperties ask(const Table& table, int device) {
  Properties properties;
  EXPECT_EQ(table.get_properties(device, &properties), Result::success);
  return read_properties(properties);
}

}  // namespace

Net::Net(int version, int traffic_class) : version_(version), traffic_class_(traffic_class) {
  const char* const file = std::getenv("NCCL_PLUGIN");
  library_ = file == nullptr ? nullptr : ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr)
    throw std::runtime_error(file == nullptr ? "no NCCL_PLUGIN" : ::dlerror());
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(version);
  void* const table = ::dlsym(library_, symbol.c_str());
  if (table == nullptr) throw std::runtime_error("no " + symbol);
  if (version == 10) {
    table_10_ = static_cast<const Table10*>(table);
    calls_ = &table_10_->common;
    init_result_ = table_10_->init(log, nullptr);
  } else if (version == 11) {
    table_11_ = static_cast<const Table11*>(table);
    use(*table_11_);
  } else {
    table_12_ = static_cast<const Table12*>(table);
    use(*table_12_);
  }
}

template <class Table>
void Net::use(const Table& table) {
  calls_ = &table.common;
  CommConfig config{traffic_class_};
  init_result_ = table.init(&context_, 17, &config, log, nullptr);
}

Net::~Net() {
  if (table_11_ != nullptr) table_11_->finalize(context_);
  if (table_12_ != nullptr) table_12_->finalize(context_);
  ::dlclose(library_);
}

std::string Net::warnings() {
  const std::lock_guard lock(log_mutex);
  return logged_warnings;
}

int Net::devices() const {
  int count = 0;
  const auto ask_devices = version_ == 10   ? table_10_->devices
                           : version_ == 11 ? table_11_->devices
                                            : table_12_->devices;
  EXPECT_EQ(ask_devices(&count), Result::success);
  return count;
}

NetProperties Net::properties(int device) const {
  if (version_ == 10) return ask<Properties10>(*table_10_, device);
  if (version_ == 11) return ask<Properties11>(*table_11_, device);
  return ask<Properties12>(*table_12_, device);
}

Result Net::listen(int device, void* handle, void** comm) const {
  if (version_ == 10) return table_10_->listen(device, handle, comm);
  if (version_ == 11) return table_11_->listen(context_, device, handle, comm);
  return table_12_->listen(context_, device, handle, comm);
}

Result Net::connect(int device, void* handle, void** comm) const {
  CommConfig config{traffic_class_};
  if (version_ == 10) return table_10_->connect(device, &config, handle, comm, nullptr);
  if (version_ == 11) return table_11_->connect(context_, device, handle, comm, nullptr);
  return table_12_->connect(context_, device, handle, comm, nullptr);
}

namespace {

template <class Call>
void* until_there(Call call) {
  void* made = nullptr;
  while (true) {
    const Result result = call(&made);
    EXPECT_EQ(result, Result::success) << Net::warnings();
    if (made != nullptr || result != Result::success) return made;
    ::sched_yield();
  }
}

}  // namespace

void* Net::connect_now(Handle handle) const {
  return until_there([&](void** comm) { return connect(0, handle.data(), comm); });
}

void* Net::accept_now(void* listen_comm) const {
  return until_there([&](void** comm) { return calls_->accept(listen_comm, comm, nullptr); });
}

void* Net::isend_now(void* comm, const void* data, size_t bytes, int tag, void* memory) const {
  return until_there([&](void** request) {
    return calls_->isend(comm, const_cast<void*>(data), bytes, tag, memory, nullptr, request);
  });
}

void* Net::irecv_now(void* comm, void* data, size_t bytes, int tag, void* memory) const {
  return until_there([&](void** request) {
    return calls_->irecv(comm, 1, &data, &bytes, &tag, &memory, nullptr, request);
  });
}

std::vector<int> Net::wait(void* request) const {
  std::vector<int> bytes(8, -1);
  if (request == nullptr) return {};
  for (int done = 0; done == 0; ::sched_yield()) {
    const Result result = calls_->test(request, &done, bytes.data());
    EXPECT_EQ(result, Result::success) << warnings();
    if (result != Result::success) return {};
    if (done != 0) break;
  }
  return bytes;
}

void* Net::register_now(void* comm, void* data, size_t bytes) const {
  void* memory = nullptr;
  EXPECT_EQ(calls_->register_memory(comm, data, bytes, kPointerHost, &memory), Result::success)
      << warnings();
  return memory;
}

}  // namespace ropewalk::testing
