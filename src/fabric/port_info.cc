#include "fabric/port_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "ropewalk/status.h"

namespace ropewalk::verbs {
namespace {

constexpr size_t kSubnetBytesMax = 43;  // 39 of an IPv6 address, "/128"
constexpr uint32_t kRateMaxGbps = 999'999;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < ' ';
}

bool is_subnet(std::string_view text) {
  const auto legal = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || c == '.' || c == ':' || c == '/';
  };
  return text.size() <= kSubnetBytesMax && std::all_of(text.begin(), text.end(), legal);
}

[[noreturn]] void refuse(std::string_view text) {
  throw Error(ErrorCode::protocol, "communicator",
              fmt::format("\"{}\" is not what a rank says of an RDMA port", text),
              "run the same version of Ropewalk on every rank");
}

/// "192.168.1.0/24+fd00:7::/64"; empty for none. False for what is no such list.
bool parse_subnets(std::string_view text, std::vector<std::string>& subnets) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('+'), text.size());
    const std::string_view subnet = text.substr(0, end);
    if (subnet.empty() || !is_subnet(subnet) || subnets.size() == kSubnetsMax) return false;
    if (end + 1 == text.size()) return false;
    subnets.emplace_back(subnet);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return true;
}

/// A whole number without sign or leading zeros, within the range; 0 is a number.
std::optional<uint32_t> number_in(std::string_view text, uint32_t low, uint32_t high) {
  uint32_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return {};
  if (number < low || number > high || (text.size() > 1 && text[0] == '0')) return {};
  return number;
}

std::optional<LinkLayer> layer_named(std::string_view name) {
  for (const LinkLayer layer : {LinkLayer::infiniband, LinkLayer::ethernet})
    if (name == name_of(layer)) return layer;
  return {};
}

PortInfo parse_port(std::string_view text) {
  constexpr size_t kFields = 4;
  std::array<std::string_view, kFields> fields;
  std::string_view rest = text;
  for (size_t i = 0; i < kFields; ++i) {
    const size_t bar = rest.find('|');
    if ((bar == std::string_view::npos) != (i + 1 == kFields)) refuse(text);
    fields[i] = rest.substr(0, bar);
    rest.remove_prefix(std::min(rest.size(), fields[i].size() + 1));
  }
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
  const auto legal = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kDeviceNameBytesMax &&
         std::all_of(name.begin(), name.end(), legal);
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
  for (;;) {
    const size_t comma = text.find(',');
    if (ports.size() == kPortsMax) refuse(text);
    ports.push_back(parse_port(text.substr(0, comma)));
    if (comma == std::string_view::npos) return ports;
    text.remove_prefix(comma + 1);
  }
}

std::string no_ports_text(std::string why) {
  if (why.size() > kNoPortsBytesMax) why = why.substr(0, kNoPortsBytesMax - 3) + "...";
  std::replace_if(why.begin(), why.end(), is_control, ' ');
  return "!" + why;
}

std::optional<std::string> parse_no_ports(std::string_view text) {
  if (!text.starts_with('!')) return {};
  const std::string_view why = text.substr(1);
  if (why.empty() || why.size() > kNoPortsBytesMax ||
      std::any_of(why.begin(), why.end(), is_control))
    refuse(text);
  return std::string(why);
}

}  // namespace ropewalk::verbs
