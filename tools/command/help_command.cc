// ropewalk help, version, completion; ropewalk man-page, which the build asks.
#include <fmt/format.h>

#include <memory>

#include "ropewalk/status.h"
#include "tools/command/command.h"
#include "tools/command/completion.h"
#include "tools/command/man_page.h"
#include "tools/command/version.h"

namespace ropewalk::tools {
namespace {

constexpr const char* kCompletionExamples =
    "Examples:\n"
    "  source <(ropewalk completion bash)\n"
    "  ropewalk completion zsh > ~/.zfunc/_ropewalk      (in a folder of fpath)\n"
    "  ropewalk completion fish | source\n"
    "`meson install` puts all three where the shells look for them.";

int print_help(Command app, const std::vector<std::string>& path) {
  Command command = app;
  for (const std::string& word : path) {
    const std::optional<Command> below = command.below(word);
    if (!below)
      throw Error(ErrorCode::invalid_argument, "help",
                  fmt::format("there is no command \"{}\"", word), "ropewalk help lists them");
    command = *below;
  }
  fmt::print("{}", command.help());
  return 0;
}

int print_completion(Command app, const std::string& shell) {
  const auto rows = command_rows(app.app());
  fmt::print("{}", shell == "bash"  ? bash_completion(rows)
                   : shell == "zsh" ? zsh_completion(rows)
                                    : fish_completion(rows));
  return 0;
}

}  // namespace

void add_help_command(Command app, Request& request) {
  auto path = std::make_shared<std::vector<std::string>>();
  Command help = app.add_command("help", "the help of ropewalk, or of a command",
                                 "Examples:\n  ropewalk help\n  ropewalk help bench put");
  help.add_option("command", *path, "which one");
  help.set_action(request, [path, app] { return print_help(app, *path); });

  app.add_command("version", "the version of ropewalk", "Examples:\n  ropewalk version")
      .set_action(request, [] {
        fmt::print("ropewalk {}\n", kVersion);
        return 0;
      });

  auto shell = std::make_shared<std::string>();
  Command completion =
      app.add_command("completion", "completion of command lines for a shell", kCompletionExamples);
  completion.add_option("shell", *shell, "for which shell")
      .one_of({"bash", "zsh", "fish"})
      .required();
  completion.set_action(request, [shell, app] { return print_completion(app, *shell); });

  app.add_hidden_command("man-page", "the manual page, in roff").set_action(request, [app] {
    fmt::print("{}", man_page(command_rows(app.app()), kVersion));
    return 0;
  });
}

}  // namespace ropewalk::tools
