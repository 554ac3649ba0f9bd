#include "transports/verbs/gid.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>

namespace ropewalk::verbs {
namespace {

constexpr uint8_t kIpv4Prefix[kIpv4At] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

unsigned byte_of(const Gid& gid, size_t at) {
  return std::to_integer<unsigned>(gid[at]);
}

/// Reaches no further than the link, or this host.
bool is_narrow(const Gid& gid) {
  if (is_ipv4(gid))
    return byte_of(gid, kIpv4At) == 127 ||
           (byte_of(gid, kIpv4At) == 169 && byte_of(gid, kIpv4At + 1) == 254);
  return byte_of(gid, 0) == 0xfe && (byte_of(gid, 1) & 0xc0) == 0x80;
}

/// What GIDs must be alike in for peers that reach the one to reach the other. Smaller is better.
auto kind_of(const GidEntry& entry) {
  // An InfiniBand subnet whose prefix nobody has set has the link-local one.
  const bool is_roce = entry.type != GidType::infiniband;
  return std::tuple(entry.type != GidType::roce_v2, is_roce && is_narrow(entry.gid));
}

/// Smaller is better.
auto order_of(const GidEntry& entry, std::string_view subnet) {
  const bool is_ipv6 = entry.type != GidType::infiniband && !is_ipv4(entry.gid);
  return std::tuple(!subnet.empty() && entry.subnet != subnet, kind_of(entry), is_ipv6,
                    entry.index);
}

}  // namespace

std::string_view name_of(GidType type) {
  constexpr std::string_view kNames[] = {"IB", "RoCE v1", "RoCE v2"};
  return kNames[static_cast<size_t>(type)];
}

std::string text_of(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  if (is_ipv4(gid))
    inet_ntop(AF_INET, gid.data() + kIpv4At, text, sizeof text);
  else
    inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  return text;
}

bool is_zero(const Gid& gid) {
  return gid == Gid{};
}

bool is_ipv4(const Gid& gid) {
  return std::memcmp(gid.data(), kIpv4Prefix, sizeof kIpv4Prefix) == 0;
}

std::string network_text(const Gid& gid, int bits) {
  Gid network = gid;
  const int kept = bits + (is_ipv4(gid) ? static_cast<int>(8 * kIpv4At) : 0);
  for (int bit = kept; bit < static_cast<int>(8 * network.size()); ++bit)
    network[static_cast<size_t>(bit / 8)] &= ~(std::byte{0x80} >> (bit % 8));
  return fmt::format("{}/{}", text_of(network), bits);
}

std::string list_of(std::span<const GidEntry> table) {
  std::string list;
  for (const GidEntry& entry : table)
    list += fmt::format("{}{} {} ({})", list.empty() ? "" : ", ", entry.index, text_of(entry.gid),
                        name_of(entry.type));
  return list.empty() ? "none" : list;
}

GidChoice choose_gid(std::span<const GidEntry> table, std::optional<int> wished,
                     std::string_view subnet) {
  if (wished) {
    for (const GidEntry& entry : table)
      if (entry.index == static_cast<uint32_t>(*wished)) return {entry, "ROPEWALK_IB_GID_INDEX"};
    return {{},
            fmt::format("ROPEWALK_IB_GID_INDEX={}, but its GIDs are: {}", *wished, list_of(table))};
  }
  if (table.empty()) return {{}, "its table of GIDs is empty"};
  const auto best =
      std::min_element(table.begin(), table.end(), [&](const GidEntry& x, const GidEntry& y) {
        return order_of(x, subnet) < order_of(y, subnet);
      });
  if (best->type == GidType::infiniband) return {*best, "the port's own"};
  const char* reach = is_narrow(best->gid) ? "a link-local address, there is no other"
                      : is_ipv4(best->gid) ? "an IPv4 address"
                                           : "a global IPv6 address, there is no IPv4 one";
  return {*best, fmt::format("{}, {}", name_of(best->type), reach)};
}

std::vector<std::string> subnets_beside(const GidEntry& chosen, std::span<const GidEntry> table) {
  std::vector<GidEntry> alike;
  for (const GidEntry& entry : table)
    if (kind_of(entry) == kind_of(chosen) && !entry.subnet.empty()) alike.push_back(entry);
  std::sort(alike.begin(), alike.end(), [&](const GidEntry& x, const GidEntry& y) {
    return order_of(x, chosen.subnet) < order_of(y, chosen.subnet);
  });
  std::vector<std::string> subnets;
  for (const GidEntry& entry : alike)
    if (std::find(subnets.begin(), subnets.end(), entry.subnet) == subnets.end())
      subnets.push_back(entry.subnet);
  return subnets;
}

}  // namespace ropewalk::verbs
