// GIDs: the addresses of RDMA ports, and which one of a port is taken. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ropewalk::verbs {

using Gid = std::array<std::byte, 16>;
inline constexpr size_t kIpv4At = 12;  // in an IPv4-mapped address: ::ffff:a.b.c.d

enum class GidType : uint8_t { infiniband, roce_v1, roce_v2 };
std::string_view name_of(GidType type);  // "IB", "RoCE v1", "RoCE v2"

/// One row of a port's table that is not zero.
struct GidEntry {
  Gid gid{};
  uint32_t index = 0;
  GidType type = GidType::infiniband;
  std::string interface;  // of the network device, of Ethernet; empty: unknown
  std::string subnet;     // "192.168.1.0/24", "fe80::/64"; empty: unknown
};

/// "192.168.1.2" of an IPv4 address in a GID, else as an IPv6 address is written.
std::string text_of(const Gid& gid);
bool is_zero(const Gid& gid);
bool is_ipv4(const Gid& gid);

/// The first `bits` of the address: "192.168.1.0/24". `bits` count from the IPv4 address' begin
/// where it is one.
std::string network_text(const Gid& gid, int bits);

/// "0 fe80::1 (RoCE v1), 1 10.0.0.1 (RoCE v2)"; "none".
std::string list_of(std::span<const GidEntry> table);

struct GidChoice {
  std::optional<GidEntry> entry;
  std::string reason;  // why this one; or why none
};

/// Those in `subnet`, where it is given and any is; of these, on an Ethernet port, RoCE v2 before
/// v1; then addresses of wider reach before link-local and loopback ones, IPv4 before IPv6; then
/// the lowest index. Of an InfiniBand port: the lowest index. `wished`, an index, decides alone.
GidChoice choose_gid(std::span<const GidEntry> table, std::optional<int> wished,
                     std::string_view subnet = {});

/// Where else the port can be met: the subnets of all GIDs of `chosen`'s type and as wide a reach,
/// its own first, the others in the order of choose_gid; none twice, none unknown.
std::vector<std::string> subnets_beside(const GidEntry& chosen, std::span<const GidEntry> table);

}  // namespace ropewalk::verbs
