#include "tools/command/program_words.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "tools/command/cli.h"

namespace ropewalk::tools {
namespace {

std::string without_dashes(const std::string& name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

[[noreturn]] void refuse(const CLI::App& command, const std::string& name) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& long_name : option->get_lnames()) known.push_back(long_name);
  }
  const std::string word = without_dashes(name);
  const std::string nearest = word.size() > 1 ? nearest_word(word, known) : "";
  throw CLI::ParseError(
      fmt::format("ropewalk {}: unknown option {}{}", command.get_name(), name,
                  nearest.empty() ? "" : fmt::format("; did you mean --{}?", nearest)),
      CLI::ExitCodes::ExtrasError);
}

}  // namespace

ProgramWords part_words(const CLI::App& command, const std::vector<std::string>& words) {
  ProgramWords parted;
  size_t i = 0;
  for (; i < words.size() && words[i].size() > 1 && words[i].front() == '-'; ++i) {
    if (words[i] == "--") {
      ++i;
      break;
    }
    const std::string word =
        words[i] == "-np" || words[i].starts_with("-np=") ? "-" + words[i] : words[i];
    const bool is_long = word.starts_with("--");
    // "--name", "--name=value", "-n", "-nvalue" or "-n=value"
    const size_t name_end = is_long ? std::min(word.find('='), word.size()) : 2;
    const std::string name = word.substr(0, name_end);
    const CLI::Option* option = command.get_option_no_throw(name);
    if (option == nullptr) refuse(command, is_long ? name : word);
    parted.own.push_back(name);
    const bool takes_value = option->get_items_expected_max() > 0;
    if (name_end < word.size()) {
      if (!takes_value) refuse(command, word);
      parted.own.push_back(word.substr(name_end + (word[name_end] == '=' ? 1 : 0)));
    } else if (takes_value && i + 1 < words.size()) {
      parted.own.push_back(words[++i]);
    }
  }
  parted.program.assign(words.begin() + static_cast<ptrdiff_t>(i), words.end());
  return parted;
}

}  // namespace ropewalk::tools
