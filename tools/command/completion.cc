#include "tools/command/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/launcher/hosts.h"

namespace ropewalk::tools {
namespace {

// Names, flags and words are letters, digits, "-" and "_"; help is anything.
std::string flags_of(const CommandRow& row) {
  std::string text;
  for (const OptionRow& option : row.options)
    for (const std::string& flag : option.flags) text += (text.empty() ? "" : " ") + flag;
  return text;
}

/// "--transport) words='auto shm' ;;" for each option of the command that takes a value.
std::string value_cases(const CommandRow& row) {
  std::string text;
  for (const OptionRow& option : row.options) {
    if (option.flags.empty() || option.value.empty()) continue;
    text += fmt::format("        {}) takes_value=1 values='{}' ;;\n", fmt::join(option.flags, "|"),
                        fmt::join(option.words, " "));
  }
  return text;
}

/// Sets the shell variables `words`, `flags`, `runs_program` by the command in `path`, then
/// `values` and `takes_value` by the word before. Valid in bash and zsh.
std::string cases_of(const std::vector<CommandRow>& rows) {
  std::string text = "  case \"$path\" in\n";
  for (const CommandRow& row : rows) {
    text += fmt::format("    '{}')\n      words='{}' flags='{}' runs_program={}\n",
                        fmt::join(row.path, " "), fmt::join(row.words(), " "), flags_of(row),
                        row.runs_program ? 1 : 0);
    const std::string values = value_cases(row);
    if (!values.empty()) text += fmt::format("      case \"$previous\" in\n{}      esac\n", values);
    text += "      ;;\n";
  }
  return text + "  esac\n";
}

/// Lines that set `path` from the words before the one being completed.
std::string paths_of(const std::vector<CommandRow>& rows) {
  std::string text = "    case \"$path $word\" in\n";
  for (const CommandRow& row : rows)
    if (!row.path.empty())
      text += fmt::format("      '{}{}') path='{}' ;;\n", row.path.size() == 1 ? " " : "",
                          fmt::join(row.path, " "), fmt::join(row.path, " "));
  return text + "    esac\n";
}

}  // namespace

std::string bash_completion(const std::vector<CommandRow>& rows) {
  return "# Completion of ropewalk for bash. Made by: ropewalk completion bash\n"
         "_ropewalk() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local path='' words='' flags='' values='' takes_value=0 runs_program=0 word\n"
         "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n" +
         paths_of(rows) + "  done\n" + cases_of(rows) +
         "  COMPREPLY=()\n"
         "  if ((takes_value)); then\n"
         "    [[ -z $values ]] || COMPREPLY=($(compgen -W \"$values\" -- \"$current\"))\n"
         "  elif [[ $current == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$flags\" -- \"$current\"))\n"
         "  elif ((runs_program)); then\n"
         "    COMPREPLY=($(compgen -c -- \"$current\") $(compgen -f -- \"$current\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "  fi\n"
         "}\n"
         "complete -o default -F _ropewalk ropewalk\n";
}

std::string zsh_completion(const std::vector<CommandRow>& rows) {
  return "#compdef ropewalk\n"
         "# Completion of ropewalk for zsh. Made by: ropewalk completion zsh\n"
         "_ropewalk() {\n"
         "  local current=\"${words[CURRENT]}\" previous=\"${words[CURRENT-1]}\"\n"
         "  local -a before=(\"${(@)words[2,CURRENT-1]}\")\n"
         "  local path='' words='' flags='' values='' takes_value=0 runs_program=0 word\n"
         "  for word in $before; do\n" +
         paths_of(rows) + "  done\n" + cases_of(rows) +
         "  if ((takes_value)); then\n"
         "    if [[ -n $values ]]; then compadd -- ${(s: :)values}; else _files; fi\n"
         "  elif [[ $current == -* ]]; then\n"
         "    compadd -- ${(s: :)flags}\n"
         "  elif ((runs_program)); then\n"
         "    _command_names\n"
         "    _files\n"
         "  else\n"
         "    compadd -- ${(s: :)words}\n"
         "  fi\n"
         "}\n"
         "if [[ $funcstack[1] == _ropewalk ]]; then _ropewalk \"$@\"; else compdef _ropewalk "
         "ropewalk; fi\n";
}

std::string fish_completion(const std::vector<CommandRow>& rows) {
  std::string text = "# Completion of ropewalk for fish. Made by: ropewalk completion fish\n";
  for (const CommandRow& row : rows) {
    std::string condition = "__fish_use_subcommand";
    if (!row.path.empty()) {
      condition.clear();
      for (const std::string& word : row.path)
        condition += (condition.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + word);
    }
    if (!row.path.empty() && !row.commands.empty())
      condition +=
          fmt::format("; and not __fish_seen_subcommand_from {}", fmt::join(row.commands, " "));
    const std::string begin = fmt::format("complete -c ropewalk -n {}", shell_quote(condition));
    if (!row.runs_program) text += begin + " -f\n";
    if (const auto words = row.words(); !words.empty())
      text +=
          fmt::format("{} -a {}\n", begin, shell_quote(fmt::format("{}", fmt::join(words, " "))));
    for (const OptionRow& option : row.options) {
      if (option.flags.empty()) continue;
      text += begin;
      for (const std::string& flag : option.flags)
        text += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
      if (!option.value.empty()) text += option.words.empty() ? " -r" : " -x";
      if (!option.words.empty())
        text += " -a " + shell_quote(fmt::format("{}", fmt::join(option.words, " ")));
      text += fmt::format(" -d {}\n", shell_quote(option.help));
    }
  }
  return text;
}

}  // namespace ropewalk::tools
