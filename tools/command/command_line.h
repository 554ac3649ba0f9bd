// What the commands take on the command line. CLI11 does the work, but its headers take ten seconds
// to compile, so few files include them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ropewalk::tools {

struct Request;

/// An option, flag or positional of a command.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  Option& required();
  /// Lets help name the value that the variable has now.
  Option& show_default();
  Option& between(int least, int most);
  Option& only(int value);
  /// Refuses other words; help and completion list these.
  Option& one_of(const std::vector<std::string>& words);
  /// How help and completion name the value.
  Option& type_name(const std::string& name);
  /// Each time it is given it takes one word, not all that follow.
  Option& one_word_each();
  Option& excludes(const Option& other);

 private:
  CLI::Option* option_;
};

/// `ropewalk`, or a command of it.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  /// A command below this one; `footer` ends its help.
  Command add_command(const std::string& name, const std::string& help, const std::string& footer);
  /// One that help does not show.
  Command add_hidden_command(const std::string& name, const std::string& help);
  /// `flags`: "-n,--ranks", or the name of a positional. The variable's value is the default.
  Option add_option(const std::string& flags, std::string& value, const std::string& help);
  Option add_option(const std::string& flags, std::optional<std::string>& value,
                    const std::string& help);
  Option add_option(const std::string& flags, std::vector<std::string>& value,
                    const std::string& help);
  Option add_option(const std::string& flags, int& value, const std::string& help);
  Option add_flag(const std::string& flags, bool& value, const std::string& help);
  /// Refuses the options that `other` has so far.
  void exclude_options_of(const Command& other);
  /// The command of that name below this one.
  std::optional<Command> below(const std::string& name) const;
  std::string help() const;
  /// What follows its options is the command line of another program: request.program.
  void take_program();
  /// Where the command line names this command, and none below it, it asks for `action`.
  void set_action(Request& request, std::function<int()> action);

  const CLI::App& app() const { return *app_; }

 private:
  CLI::App* app_;
};

}  // namespace ropewalk::tools
