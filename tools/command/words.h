// Words on the command line that name one of a list.
#pragma once

#include <string>
#include <vector>

#include "ropewalk/types.h"

namespace ropewalk::tools {

/// The type of an option whose value is one of `words`, by which help and completion list them.
std::string type_of(const std::vector<std::string>& words);
/// The words that an option of such a type takes; none for other types.
std::vector<std::string> words_of(const std::string& type);
/// Empty where `word` is one of `words`.
std::string why_not_one_of(const std::vector<std::string>& words, const std::string& word);

/// The names of the first `count` values of an enum of types.h.
template <class Enum>
std::vector<std::string> names(int count) {
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) words.emplace_back(name_of(static_cast<Enum>(i)));
  return words;
}
/// Reductions but functions of the caller, of which a command line has none.
std::vector<std::string> reduction_words();

}  // namespace ropewalk::tools
