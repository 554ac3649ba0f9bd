// The adapters that NCCL may choose from: RDMA ports, or where there are none, network interfaces.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/config.h"
#include "bootstrap/net.h"
#include "transport_choice/provider.h"

namespace ropewalk::nccl {

struct Device {
  std::string name;      // "mlx5_0:1", "eth0"
  std::string pci_path;  // in /sys; empty: none
  uint64_t guid = 0;     // of the adapter
  int port = 1;
  int speed_mbps = 0;
  int16_t rail = -1;  // which of the networks that this host is in, in their order; -1: in one only
  std::string subnet;  // "10.77.0.0/24"; empty: unknown
  const TransportProvider* provider = nullptr;
  Config config;                      // that lets the provider find this adapter alone
  std::string info;                   // what the provider has a rank tell of it
  std::array<MakeTransport, 2> make;  // by rank of a pair: its transport, as often as is called
  /// Where it listens, without a port; of an RDMA port, whatever address this host has.
  std::vector<bootstrap::SocketAddress> addresses;
};

/// All that `config` lets the plugin use. Throws Error where that is none, or cannot be.
std::vector<Device> find_devices(const Config& config);
/// Numbers the rails of devices by their subnets.
void number_rails(std::vector<Device>& devices);

}  // namespace ropewalk::nccl
