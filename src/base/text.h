// Pieces of text, of which every parser here is made, and text that others are shown.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ropewalk {

/// All of `text` as a number, as std::from_chars reads it; nothing where it is none or too large.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return {};
  return number;
}

/// The pieces between separators, which may be empty: always one more than there are separators.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (size_t end; (end = text.find(separator)) != text.npos; text.remove_prefix(end + 1))
    pieces.push_back(text.substr(0, end));
  pieces.push_back(text);
  return pieces;
}

/// One line that a terminal, a log or Python may be given: what is no UTF-8, and control
/// characters, are replaced, by blanks or U+FFFD.
std::string printable(std::string_view text);

/// The longest beginning of `text`, UTF-8, that has at most `bytes_max` bytes and ends between two
/// code points.
std::string_view cut(std::string_view text, size_t bytes_max);

}  // namespace ropewalk
