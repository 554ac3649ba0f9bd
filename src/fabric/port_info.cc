#include "fabric/port_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"
#include "ropewalk/status.h"

namespace ropewalk::verbs {
namespace {

constexpr size_t kSubnetBytesMax = 43;  // 39 of an IPv6 address, "/128"
constexpr uint32_t kRateMaxGbps = 999'999;

bool is_control(char c) {
  return static_cast<unsigned char>(c) < ' ';
}

bool is_subnet(std::string_view text) {
  return text.size() <= kSubnetBytesMax &&
         text.find_first_not_of("0123456789abcdef.:/") == text.npos;
}

[[noreturn]] void refuse(std::string_view text) {
  throw Error(ErrorCode::protocol, "communicator",
              fmt::format("\"{}\" is not what a rank says of an RDMA port", text),
              "run the same version of Ropewalk on every rank");
}

/// "192.168.1.0/24+fd00:7::/64"; empty for none. False for what is no such list.
bool parse_subnets(std::string_view text, std::vector<std::string>& subnets) {
  if (text.empty()) return true;
  for (const std::string_view subnet : split(text, '+')) {
    if (subnet.empty() || !is_subnet(subnet) || subnets.size() == kSubnetsMax) return false;
    subnets.emplace_back(subnet);
  }
  return true;
}

/// A whole number without sign or leading zeros, within the range; 0 is a number.
std::optional<uint32_t> number_in(std::string_view text, uint32_t low, uint32_t high) {
  const auto number = parse_number<uint32_t>(text);
  if (!number || *number < low || *number > high || (text.size() > 1 && text[0] == '0')) return {};
  return number;
}

std::optional<LinkLayer> layer_named(std::string_view name) {
  for (const LinkLayer layer : {LinkLayer::infiniband, LinkLayer::ethernet})
    if (name == name_of(layer)) return layer;
  return {};
}

PortInfo parse_port(std::string_view text) {
  const auto fields = split(text, '|');
  if (fields.size() != 4) refuse(text);
  const size_t colon = fields[0].rfind(':');
  if (colon == std::string_view::npos || !is_device_name(fields[0].substr(0, colon))) refuse(text);
  const auto number = number_in(fields[0].substr(colon + 1), 1, 255);
  const auto layer = layer_named(fields[1]);
  const auto rate = number_in(fields[3], 0, kRateMaxGbps);
  std::vector<std::string> subnets;
  if (!number || !layer || !parse_subnets(fields[2], subnets) || !rate) refuse(text);
  return {std::string(fields[0].substr(0, colon)), static_cast<uint8_t>(*number), *layer,
          std::move(subnets), *rate};
}

}  // namespace

std::string_view name_of(LinkLayer layer) {
  return layer == LinkLayer::infiniband ? "infiniband" : "ethernet";
}

bool is_device_name(std::string_view name) {
  constexpr std::string_view kLegal =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-.";
  return !name.empty() && name.size() <= kDeviceNameBytesMax &&
         name.find_first_not_of(kLegal) == name.npos;
}

std::string port_list_text(const std::vector<PortInfo>& ports) {
  std::string text;
  for (const PortInfo& port : ports)
    text += fmt::format("{}{}:{}|{}|{}|{}", text.empty() ? "" : ",", port.device, port.number,
                        name_of(port.link_layer), fmt::join(port.subnets, "+"), port.rate_gbps);
  return text;
}

std::vector<PortInfo> parse_port_list(std::string_view text) {
  std::vector<PortInfo> ports;
  if (text.empty()) return ports;
  for (const std::string_view port : split(text, ',')) {
    if (ports.size() == kPortsMax) refuse(text);
    ports.push_back(parse_port(port));
  }
  return ports;
}

std::string no_ports_text(std::string why) {
  if (why.size() > kNoPortsBytesMax) why = why.substr(0, kNoPortsBytesMax - 3) + "...";
  std::replace_if(why.begin(), why.end(), is_control, ' ');
  return "!" + why;
}

std::optional<std::string> parse_no_ports(std::string_view text) {
  if (!text.starts_with('!')) return {};
  const std::string_view why = text.substr(1);
  if (why.empty() || why.size() > kNoPortsBytesMax || std::ranges::any_of(why, is_control))
    refuse(text);
  return std::string(why);
}

}  // namespace ropewalk::verbs
