#include "bootstrap/node_list.h"

#include <algorithm>
#include <cctype>

#include "bootstrap/net.h"

namespace ropewalk::bootstrap {
namespace {

bool is_host_char(unsigned char c) {
  return std::isalnum(c) || c == '-' || c == '_' || c == '.';
}

/// The first number inside brackets whose text starts behind '['; moves `at` behind ']'.
std::optional<std::string_view> first_of_brackets(std::string_view text, size_t& at) {
  const size_t close = text.find(']', at);
  if (close == std::string_view::npos) return {};
  const std::string_view inside = text.substr(at, close - at);
  const bool clean = std::all_of(inside.begin(), inside.end(), [](unsigned char c) {
    return std::isdigit(c) || c == '-' || c == ',';
  });
  const std::string_view number = inside.substr(0, inside.find_first_of("-,"));
  if (!clean || number.empty()) return {};
  at = close + 1;
  return number;
}

}  // namespace

std::optional<std::string> first_host(std::string_view text) {
  if (text.size() > kNodeListBytesMax) return {};
  std::string host;
  for (size_t at = 0; at < text.size() && text[at] != ',';) {
    const char c = text[at++];
    if (c == '[') {
      const auto number = first_of_brackets(text, at);
      if (!number) return {};
      host += *number;
    } else if (is_host_char(static_cast<unsigned char>(c))) {
      host += c;
    } else {
      return {};
    }
    if (host.size() > kHostBytesMax) return {};
  }
  if (host.empty()) return {};
  return host;
}

}  // namespace ropewalk::bootstrap
