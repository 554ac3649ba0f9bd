// Words on the command line that name one of a list.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "ropewalk/types.h"

namespace ropewalk::tools {

/// The type of an option whose value is one of `words`, by which help and completion list them.
std::string type_of(const std::vector<std::string>& words);
/// Such an option; other values are refused.
CLI::Option* add_words_option(CLI::App& app, const std::string& flags, std::string& value,
                              const std::vector<std::string>& words, const std::string& help);
/// The words that such an option takes; none for other options.
std::vector<std::string> words_of(const CLI::Option& option);

/// The names of the first `count` values of an enum of types.h.
template <class Enum>
std::vector<std::string> names(int count) {
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) words.emplace_back(name_of(static_cast<Enum>(i)));
  return words;
}
std::vector<std::string> transport_words();
/// Reductions but functions of the caller, of which a command line has none.
std::vector<std::string> reduction_words();

}  // namespace ropewalk::tools
