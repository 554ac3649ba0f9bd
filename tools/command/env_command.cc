// ropewalk env: every variable that Ropewalk reads, and which job this process would join.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "bootstrap/config.h"
#include "bootstrap/world.h"
#include "tools/command/cli.h"
#include "tools/command/command.h"

namespace ropewalk::tools {
namespace {

constexpr const char* kEnvExamples =
    "Examples:\n"
    "  ropewalk env\n"
    "  ropewalk run -n 2 -- ropewalk env      (what the ranks see)\n"
    "Exit status: 0; 2 where a variable's value is not allowed or the variables contradict.";

// Indented and broken at blanks.
std::string wrapped(std::string_view text, size_t indent, size_t width) {
  std::istringstream words{std::string(text)};
  std::string result, line(indent, ' ');
  for (std::string word; words >> word;) {
    if (line.size() > indent && line.size() + 1 + word.size() > width) {
      result += line + "\n";
      line.assign(indent, ' ');
    }
    if (line.size() > indent) line += ' ';
    line += word;
  }
  return result + line + "\n";
}

void print_variables() {
  for (const VariableInfo& info : variable_infos()) {
    const char* value = getenv(std::string(info.name).c_str());
    std::string shown = value == nullptr                  ? "(not set)"
                        : info.name == "ROPEWALK_JOB_KEY" ? "(set; a secret)"
                                                          : fmt::format("\"{}\"", value);
    fmt::print("{:<26} {:<20} default: {}\n{}", info.name, shown,
               info.default_text.empty() ? "none" : info.default_text, wrapped(info.help, 4, 96));
  }
}

void print_unknown() {
  constexpr std::string_view kPrefix = "ROPEWALK_";  // makes all names alike, so it is not compared
  std::vector<std::string> names;
  for (const VariableInfo& info : variable_infos())
    names.emplace_back(info.name.substr(kPrefix.size()));
  for (const std::string& unknown : unknown_variables(environ)) {
    const std::string nearest = nearest_word(unknown.substr(kPrefix.size()), names);
    fmt::print("warning: {} is set, but Ropewalk knows no such variable{}\n", unknown,
               nearest.empty() ? "" : fmt::format("; did you mean {}{}?", kPrefix, nearest));
  }
}

int run_env() {
  print_variables();
  print_unknown();
  const JobIdentity identity = find_identity(Options{}, config_from_environment(), getenv);
  fmt::print("launcher: {}\n", describe(identity));
  return 0;
}

}  // namespace

void add_env_command(Command app, Request& request) {
  app.add_command("env", "every variable that Ropewalk reads, and its value", kEnvExamples)
      .set_action(request, run_env);
}

}  // namespace ropewalk::tools
