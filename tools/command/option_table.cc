#include "tools/command/option_table.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "tools/command/words.h"

namespace ropewalk::tools {
namespace {

OptionRow row_of(const CLI::Option& option) {
  OptionRow row;
  for (const std::string& name : option.get_snames()) row.flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) row.flags.push_back("--" + name);
  if (row.flags.empty()) row.name = option.get_name();
  if (option.get_items_expected_max() > 0) row.value = option.get_type_name();
  row.help = option.get_description();
  row.default_text = option.get_default_str();
  row.words = words_of(option.get_type_name());
  return row;
}

void add_rows(const CLI::App& app, const std::vector<std::string>& path,
              std::vector<CommandRow>& rows) {
  const auto below = app.get_subcommands([](const CLI::App* command) {
    return !command->get_group().empty();  // what has no group is not for people
  });
  CommandRow row{path, app.get_description(), app.get_footer(), {}, {}, app.get_prefix_command()};
  for (const CLI::Option* option : app.get_options()) row.options.push_back(row_of(*option));
  for (const CLI::App* command : below) row.commands.push_back(command->get_name());
  rows.push_back(std::move(row));
  for (const CLI::App* command : below) {
    std::vector<std::string> longer = path;
    longer.push_back(command->get_name());
    add_rows(*command, longer, rows);
  }
}

}  // namespace

std::vector<std::string> CommandRow::words() const {
  std::vector<std::string> all = commands;
  for (const OptionRow& option : options)
    if (option.flags.empty())
      for (const std::string& word : option.words)
        if (std::find(all.begin(), all.end(), word) == all.end()) all.push_back(word);
  return all;
}

std::vector<CommandRow> command_rows(const CLI::App& app) {
  std::vector<CommandRow> rows;
  add_rows(app, {}, rows);
  return rows;
}

}  // namespace ropewalk::tools
