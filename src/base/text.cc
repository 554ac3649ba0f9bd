#include "base/text.h"

#include <algorithm>
#include <cstdint>

namespace ropewalk {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

constexpr bool continues(char byte) {
  return (byte & 0xc0) == 0x80;
}

/// The length of the UTF-8 sequence that `text` begins with, 0 where that is none; and its code
/// point (RFC 3629: shortest form, no surrogates).
size_t decode_utf8(std::string_view text, uint32_t& code_point) {
  const auto first = static_cast<uint8_t>(text.front());
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                                       : 4;
  if (length == 0 || first > 0xf4 || text.size() < length) return 0;
  code_point = length == 1 ? first : first & (0x7fu >> length);
  for (const char byte : text.substr(1, length - 1)) {
    if (!continues(byte)) return 0;
    code_point = code_point << 6 | (static_cast<uint8_t>(byte) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xd800 && code_point < 0xe000;
  return code_point < kLeast[length] || code_point > 0x10ffff || surrogate ? 0 : length;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    uint32_t code_point = 0;
    const size_t length = decode_utf8(text, code_point);
    const bool is_space = code_point == '\n' || code_point == '\t' || code_point == '\r' ||
                          code_point == 0x2028 || code_point == 0x2029;
    const bool turns = (code_point >= 0x202a && code_point <= 0x202e) ||  // the direction of text
                       (code_point >= 0x2066 && code_point <= 0x2069);
    const bool is_control = code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0) || turns;
    if (length > 0 && is_space)
      line += ' ';
    else if (length == 0 || is_control)
      line += kReplacement;
    else
      line += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return line;
}

std::string_view cut(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t bytes = bytes_max;
  while (bytes > 0 && bytes_max - bytes < 3 && continues(text[bytes])) --bytes;
  return text.substr(0, continues(text[bytes]) ? bytes_max : bytes);
}

}  // namespace ropewalk
