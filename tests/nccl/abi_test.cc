// The layout that NCCL 2.27, 2.28 and 2.30 compile with, from their headers (plugin/net/net_v10.h,
// net_v11.h, net_v12.h) on a machine of 64 bits: numbers, as the plugin and these tests share their
// declarations.
#include "integrations/nccl/abi.h"

#include <gtest/gtest.h>

namespace ropewalk::nccl {
namespace {

template <class Struct, class Member>
ptrdiff_t offset_of(const Struct& whole, const Member& member) {
  return reinterpret_cast<const char*>(&member) - reinterpret_cast<const char*>(&whole);
}
#define EXPECT_AT(member, offset) EXPECT_EQ(offset_of(whole, whole.member), offset)

/// What comes before the devices that a virtual one is made of.
template <class Properties>
void expect_common_properties(const Properties& whole) {
  EXPECT_AT(name, 0);
  EXPECT_AT(pci_path, 8);                   // pciPath
  EXPECT_AT(guid, 16);                      // guid
  EXPECT_AT(pointer_support, 24);           // ptrSupport
  EXPECT_AT(registrations_are_global, 28);  // regIsGlobal
  EXPECT_AT(force_flush, 32);               // forceFlush
  EXPECT_AT(speed_mbps, 36);                // speed
  EXPECT_AT(port, 40);                      // port
  EXPECT_AT(latency_us, 44);                // latency
  EXPECT_AT(comms_max, 48);                 // maxComms
  EXPECT_AT(receives_max, 52);              // maxRecvs
  EXPECT_AT(device_type, 56);               // netDeviceType
  EXPECT_AT(device_version, 60);            // netDeviceVersion
  EXPECT_AT(in_device, 64);                 // vProps
  EXPECT_AT(in_device.devices, 68);         // vProps.devs
}

TEST(Abi, Properties10) {
  const Properties10 whole{};
  expect_common_properties(whole);
  EXPECT_EQ(sizeof(whole.in_device), 20U);
  EXPECT_AT(p2p_bytes_max, 88);         // maxP2pBytes
  EXPECT_AT(collective_bytes_max, 96);  // maxCollBytes
  EXPECT_EQ(sizeof(whole), 104U);
}

TEST(Abi, Properties11) {
  const Properties11 whole{};
  expect_common_properties(whole);
  EXPECT_EQ(sizeof(whole.in_device), 20U);
  EXPECT_AT(p2p_bytes_max, 88);
  EXPECT_AT(collective_bytes_max, 96);
  EXPECT_AT(requests_in_one_max, 104);  // maxMultiRequestSize
  EXPECT_EQ(sizeof(whole), 112U);
}

TEST(Abi, Properties12) {
  const Properties12 whole{};
  expect_common_properties(whole);
  EXPECT_EQ(sizeof(whole.in_device), 36U);
  EXPECT_AT(p2p_bytes_max, 104);
  EXPECT_AT(collective_bytes_max, 112);
  EXPECT_AT(requests_in_one_max, 120);
  EXPECT_AT(rail, 124);   // railId
  EXPECT_AT(plane, 126);  // planeId
  EXPECT_EQ(sizeof(whole), 128U);
}

/// All that each version has from its name to makeVDevice.
template <class Table>
void expect_common_calls(const Table& whole) {
  EXPECT_AT(name, 0);
  EXPECT_AT(init, 8);
  EXPECT_AT(devices, 16);
  EXPECT_AT(get_properties, 24);
  EXPECT_AT(listen, 32);
  EXPECT_AT(connect, 40);
  EXPECT_AT(common.accept, 48);
  EXPECT_AT(common.register_memory, 56);       // regMr
  EXPECT_AT(common.register_dma_buf, 64);      // regMrDmaBuf
  EXPECT_AT(common.deregister_memory, 72);     // deregMr
  EXPECT_AT(common.isend, 80);                 // isend
  EXPECT_AT(common.irecv, 88);                 // irecv
  EXPECT_AT(common.iflush, 96);                // iflush
  EXPECT_AT(common.test, 104);                 // test
  EXPECT_AT(common.close_send, 112);           // closeSend
  EXPECT_AT(common.close_receive, 120);        // closeRecv
  EXPECT_AT(common.close_listen, 128);         // closeListen
  EXPECT_AT(common.get_device_memory, 136);    // getDeviceMr
  EXPECT_AT(common.receive_consumed, 144);     // irecvConsumed
  EXPECT_AT(common.make_virtual_device, 152);  // makeVDevice
}

TEST(Abi, Tables) {
  expect_common_calls(Table10{});
  EXPECT_EQ(sizeof(Table10), 160U);
  const auto expect_later_calls = [](const auto& whole) {
    expect_common_calls(whole);
    EXPECT_AT(finalize, 160);
    EXPECT_AT(set_attributes, 168);  // setNetAttr
    EXPECT_EQ(sizeof(whole), 176U);
  };
  expect_later_calls(Table11{});
  expect_later_calls(Table12{});
}

TEST(Abi, Numbers) {
  EXPECT_EQ(kHandleBytes, 128U);  // NCCL_NET_HANDLE_MAXSIZE
  EXPECT_EQ(kRequestsMax, 32);    // NCCL_NET_MAX_REQUESTS
  EXPECT_EQ(kPointerHost, 1);     // NCCL_PTR_HOST
  EXPECT_EQ(kUndefined, -1);      // NCCL_NET_TRAFFIC_CLASS_UNDEF, NCCL_NET_ID_UNDEF
  EXPECT_EQ(sizeof(CommConfig), 4U);
  EXPECT_EQ(static_cast<int>(Result::system_error), 2);      // ncclSystemError
  EXPECT_EQ(static_cast<int>(Result::internal_error), 3);    // ncclInternalError
  EXPECT_EQ(static_cast<int>(Result::invalid_argument), 4);  // ncclInvalidArgument
  EXPECT_EQ(static_cast<int>(Result::invalid_usage), 5);     // ncclInvalidUsage
  EXPECT_EQ(static_cast<int>(Result::remote_error), 6);      // ncclRemoteError
  EXPECT_EQ(static_cast<int>(DebugLevel::warn), 2);          // NCCL_LOG_WARN
  EXPECT_EQ(static_cast<int>(DebugLevel::info), 3);          // NCCL_LOG_INFO
}

}  // namespace
}  // namespace ropewalk::nccl
