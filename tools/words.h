// Words on the command line that name one of a list.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli.h"
#include "ropewalk/status.h"

namespace ropewalk::tools {

/// `parse(word)`, or an error of `command` that lists what `flag` knows.
template <class Value>
Value named(const char* command, const char* flag, const std::string& word,
            std::optional<Value> (*parse)(std::string_view),
            const std::vector<std::string>& known) {
  if (const auto value = parse(word)) return *value;
  const std::string nearest = nearest_word(word, known);
  throw Error(ErrorCode::invalid_argument, command,
              fmt::format("{}: unknown: \"{}\"{}", flag, word,
                          nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)),
              fmt::format("choose one of {}", fmt::join(known, ", ")));
}

/// The names of the first `count` values of an enum of types.h.
template <class Enum>
std::vector<std::string> names(int count) {
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) words.emplace_back(name_of(static_cast<Enum>(i)));
  return words;
}

}  // namespace ropewalk::tools
