// What a rank tells the others of an RDMA port, when it joins, so that all choose and pair alike
// (docs/protocol.md, "Frames"). Plain data; needs no libibverbs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ropewalk::verbs {

enum class LinkLayer : uint8_t { infiniband = 1, ethernet = 2 };
std::string_view name_of(LinkLayer layer);  // "infiniband", "ethernet"

inline constexpr size_t kPortsMax = 8;    // that one rank uses, and tells of
inline constexpr size_t kSubnetsMax = 4;  // of one port
inline constexpr size_t kDeviceNameBytesMax = 63;

struct PortInfo {
  std::string device;  // "mlx5_0"
  uint8_t number = 1;
  LinkLayer link_layer = LinkLayer::infiniband;
  /// In which it can be met: "192.168.1.0/24", "fe80::/64"; of InfiniBand the GIDs' prefixes. The
  /// one that it prefers first; empty where unknown.
  std::vector<std::string> subnets;
  uint32_t rate_gbps = 0;

  bool operator==(const PortInfo&) const = default;
};

/// "mlx5_0:1|ethernet|192.168.1.0/24+fd00:7::/64|100,...": without semicolons, at most 2095 bytes
/// for kPortsMax.
std::string port_list_text(const std::vector<PortInfo>& ports);
/// The inverse; empty for an empty text. Throws Error(protocol) for what is no such text.
std::vector<PortInfo> parse_port_list(std::string_view text);

inline constexpr size_t kNoPortsBytesMax = 500;
/// What a rank without ports tells instead of the list: "!" and why, one line, cut to
/// kNoPortsBytesMax.
std::string no_ports_text(std::string why);
/// The inverse; nothing where `text` has no "!". Throws Error(protocol) for what is no such text.
std::optional<std::string> parse_no_ports(std::string_view text);

/// True for a device name that can travel: letters, digits, and what names have between them.
bool is_device_name(std::string_view name);

}  // namespace ropewalk::verbs
