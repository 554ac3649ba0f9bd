#include "tools/command/command_line.h"

#include <CLI/CLI.hpp>

#include "tools/command/command.h"
#include "tools/command/words.h"

namespace ropewalk::tools {

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::between(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::only(int value) {
  option_->check(CLI::IsMember({value}));
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& words) {
  option_->type_name(type_of(words))->check([words](const std::string& word) {
    return why_not_one_of(words, word);
  });
  return *this;
}

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::one_word_each() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Command Command::add_command(const std::string& name, const std::string& help,
                             const std::string& footer) {
  CLI::App* command = app_->add_subcommand(name, help);
  command->footer(footer);
  return Command(*command);
}

Command Command::add_hidden_command(const std::string& name, const std::string& help) {
  CLI::App* command = app_->add_subcommand(name, help);
  command->group("");
  return Command(*command);
}

Option Command::add_option(const std::string& flags, std::string& value, const std::string& help) {
  return Option(*app_->add_option(flags, value, help));
}

Option Command::add_option(const std::string& flags, std::optional<std::string>& value,
                           const std::string& help) {
  return Option(*app_->add_option(flags, value, help));
}

Option Command::add_option(const std::string& flags, std::vector<std::string>& value,
                           const std::string& help) {
  return Option(*app_->add_option(flags, value, help));
}

Option Command::add_option(const std::string& flags, int& value, const std::string& help) {
  return Option(*app_->add_option(flags, value, help));
}

Option Command::add_flag(const std::string& flags, bool& value, const std::string& help) {
  return Option(*app_->add_flag(flags, value, help));
}

void Command::exclude_options_of(const Command& other) {
  for (CLI::Option* option : other.app_->get_options())
    if (option != other.app_->get_help_ptr()) app_->excludes(option);
}

std::optional<Command> Command::below(const std::string& name) const {
  for (CLI::App* command : app_->get_subcommands([](const CLI::App*) { return true; }))
    if (command->get_name() == name) return Command(*command);
  return {};
}

std::string Command::help() const {
  std::string name = app_->get_name();
  for (const CLI::App* above = app_->get_parent(); above != nullptr; above = above->get_parent())
    name = above->get_name() + " " + name;
  // App::help would show that of the command under way.
  return app_->get_formatter()->make_help(app_, name, CLI::AppFormatMode::Normal);
}

void Command::take_program() {
  app_->prefix_command();
}

void Command::set_action(Request& request, std::function<int()> action) {
  app_->callback([app = app_, &request, action = std::move(action)] {
    if (app->get_subcommands().empty()) request.action = action;
  });
}

}  // namespace ropewalk::tools
