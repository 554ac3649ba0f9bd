// Is there an adapter that can be used? Runs in the machine of tools/rdma-vm, or beside a real
// adapter.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace {

using Context = std::unique_ptr<ibv_context, decltype(&ibv_close_device)>;
using Domain = std::unique_ptr<ibv_pd, decltype(&ibv_dealloc_pd)>;

Context open_first_device() {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  ibv_context* context = devices != nullptr && count > 0 ? ibv_open_device(devices[0]) : nullptr;
  if (devices != nullptr) ibv_free_device_list(devices);
  return {context, &ibv_close_device};
}

TEST(Device, HasAnActivePort) {
  const Context context = open_first_device();
  ASSERT_NE(context, nullptr) << "no device opens: " << strerror(errno);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
}

TEST(Device, RegistersMoreMemoryThanTheUsualLimitOfLockedMemory) {
  const Context context = open_first_device();
  ASSERT_NE(context, nullptr) << "no device opens: " << strerror(errno);
  const Domain domain{ibv_alloc_pd(context.get()), &ibv_dealloc_pd};
  ASSERT_NE(domain, nullptr);
  std::vector<std::byte> memory(size_t{64} << 20);
  ibv_mr* region = ibv_reg_mr(domain.get(), memory.data(), memory.size(),
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ASSERT_NE(region, nullptr) << strerror(errno);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
}

}  // namespace
