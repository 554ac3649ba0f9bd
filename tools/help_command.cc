// ropewalk help, version, completion; ropewalk man-page, which the build asks.
#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "completion.h"
#include "man_page.h"
#include "ropewalk/status.h"
#include "version.h"
#include "words.h"

namespace ropewalk::tools {
namespace {

constexpr const char* kCompletionExamples =
    "Examples:\n"
    "  source <(ropewalk completion bash)\n"
    "  ropewalk completion zsh > ~/.zfunc/_ropewalk      (in a folder of fpath)\n"
    "  ropewalk completion fish | source\n"
    "`meson install` puts all three where the shells look for them.";

int print_help(const CLI::App& app, const std::vector<std::string>& path) {
  const CLI::App* command = &app;
  std::string name = app.get_name();
  for (const std::string& word : path) {
    const auto below =
        command->get_subcommands([&word](const CLI::App* one) { return one->get_name() == word; });
    if (below.empty())
      throw Error(ErrorCode::invalid_argument, "help",
                  fmt::format("there is no command \"{}\"", word), "ropewalk help lists them");
    command = below.front();
    name += " " + word;
  }
  // App::help would show that of the command under way: this one.
  fmt::print("{}", command->get_formatter()->make_help(command, name, CLI::AppFormatMode::Normal));
  return 0;
}

int print_completion(const CLI::App& app, const std::string& shell) {
  const auto rows = command_rows(app);
  fmt::print("{}", shell == "bash"  ? bash_completion(rows)
                   : shell == "zsh" ? zsh_completion(rows)
                                    : fish_completion(rows));
  return 0;
}

}  // namespace

void add_help_command(CLI::App& app, Request& request) {
  auto path = std::make_shared<std::vector<std::string>>();
  CLI::App* help = app.add_subcommand("help", "the help of ropewalk, or of a command");
  help->footer("Examples:\n  ropewalk help\n  ropewalk help bench put");
  help->add_option("command", *path, "which one");
  help->callback(
      [path, &app, &request] { request.action = [path, &app] { return print_help(app, *path); }; });

  CLI::App* version = app.add_subcommand("version", "the version of ropewalk");
  version->footer("Examples:\n  ropewalk version");
  version->callback([&request] {
    request.action = [] {
      fmt::print("ropewalk {}\n", kVersion);
      return 0;
    };
  });

  auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      app.add_subcommand("completion", "completion of command lines for a shell");
  completion->footer(kCompletionExamples);
  add_words_option(*completion, "shell", *shell, {"bash", "zsh", "fish"}, "for which shell")
      ->required();
  completion->callback([shell, &app, &request] {
    request.action = [shell, &app] { return print_completion(app, *shell); };
  });

  CLI::App* page = app.add_subcommand("man-page", "the manual page, in roff");
  page->group("");  // not for people
  page->callback([&app, &request] {
    request.action = [&app] {
      fmt::print("{}", man_page(command_rows(app), kVersion));
      return 0;
    };
  });
}

}  // namespace ropewalk::tools
