#include "tools/command/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "tools/command/cli.h"

namespace ropewalk::tools {
namespace {

constexpr char kSeparator = '|';  // in the name of the option's type, which help shows

}  // namespace

std::string type_of(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, std::string(1, kSeparator)));
}

std::vector<std::string> words_of(const std::string& type) {
  if (type.find(kSeparator) == std::string::npos) return {};
  std::vector<std::string> words;
  std::istringstream text(type);
  for (std::string word; std::getline(text, word, kSeparator);) words.push_back(word);
  return words;
}

std::string why_not_one_of(const std::vector<std::string>& words, const std::string& word) {
  if (std::find(words.begin(), words.end(), word) != words.end()) return {};
  const std::string nearest = nearest_word(word, words);
  return fmt::format("unknown: \"{}\"{}; choose one of {}", word,
                     nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest),
                     fmt::join(words, ", "));
}

std::vector<std::string> reduction_words() {
  std::vector<std::string> words = names<ReduceKind>(kReduceKinds);
  std::erase(words, name_of(ReduceKind::user));
  return words;
}

}  // namespace ropewalk::tools
