// What the command line takes, as plain data, for those who describe it: completion, manual page.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace ropewalk::tools {

struct OptionRow {
  std::vector<std::string> flags;  // "-n", "--ranks"; none for a positional
  std::string name;                // of a positional
  std::string value;               // "TEXT", "shm|tcp"; empty for a flag
  std::string help, default_text;
  std::vector<std::string> words;  // what the value may be; none: anything
};

struct CommandRow {
  std::vector<std::string> path;  // {"bench", "put"}; none for `ropewalk` itself
  std::string help, footer;
  std::vector<OptionRow> options;
  std::vector<std::string> commands;  // below this one
  bool runs_program = false;          // what follows is the command line of another program

  /// The words that may stand next: of commands, and of positionals.
  std::vector<std::string> words() const;
};

/// `ropewalk` first, then every command that help shows, each before those below it.
std::vector<CommandRow> command_rows(const CLI::App& app);

}  // namespace ropewalk::tools
