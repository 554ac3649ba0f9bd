#include "words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bootstrap/config.h"
#include "cli.h"

namespace ropewalk::tools {
namespace {

constexpr char kSeparator = '|';  // in the name of the option's type, which help shows

}  // namespace

std::string type_of(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, std::string(1, kSeparator)));
}

CLI::Option* add_words_option(CLI::App& app, const std::string& flags, std::string& value,
                              const std::vector<std::string>& words, const std::string& help) {
  const auto check = [words](const std::string& word) -> std::string {
    if (std::find(words.begin(), words.end(), word) != words.end()) return {};
    const std::string nearest = nearest_word(word, words);
    return fmt::format("unknown: \"{}\"{}; choose one of {}", word,
                       nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest),
                       fmt::join(words, ", "));
  };
  return app.add_option(flags, value, help)->type_name(type_of(words))->check(check);
}

std::vector<std::string> words_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type.find(kSeparator) == std::string::npos) return {};
  return CLI::detail::split(type, kSeparator);
}

std::vector<std::string> transport_words() {
  std::vector<std::string> words(kTransportNames.begin(), kTransportNames.end());
  words.emplace_back("rdma");
  return words;
}

std::vector<std::string> reduction_words() {
  std::vector<std::string> words = names<ReduceKind>(kReduceKinds);
  std::erase(words, name_of(ReduceKind::user));
  return words;
}

}  // namespace ropewalk::tools
