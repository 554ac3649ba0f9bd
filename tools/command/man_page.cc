#include "tools/command/man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ropewalk::tools {
namespace {

/// Text as roff takes it: no line begins with a control character, and hyphens are kept.
std::string escaped(std::string_view text) {
  std::string result;
  bool starts_line = true;
  for (const char c : text) {
    if (starts_line && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else
      result += c;
    starts_line = c == '\n';
  }
  return result;
}

std::string option_text(const OptionRow& option) {
  std::string text = ".TP\n";
  if (option.flags.empty())
    text += "\\fI" + escaped(option.name) + "\\fR";
  else
    text += "\\fB" + escaped(fmt::format("{}", fmt::join(option.flags, "\\fR, \\fB"))) + "\\fR";
  // A line can be broken after "|", or it may be too long for the page.
  std::string value = escaped(option.value);
  for (size_t at = 0; (at = value.find('|', at)) != std::string::npos; at += 3)
    value.insert(at + 1, "\\:");
  if (!value.empty()) text += " \\fI" + value + "\\fR";
  text += "\n" + escaped(option.help.empty() ? "See above." : option.help);
  if (!option.default_text.empty()) text += escaped(" (default: " + option.default_text + ")");
  return text + "\n";
}

std::string command_text(const CommandRow& row) {
  std::string text =
      fmt::format(".SS ropewalk {}\n{}\n", escaped(fmt::format("{}", fmt::join(row.path, " "))),
                  escaped(row.help));
  for (const OptionRow& option : row.options) text += option_text(option);
  if (!row.footer.empty()) text += ".PP\n.nf\n" + escaped(row.footer) + "\n.fi\n";
  return text;
}

}  // namespace

std::string man_page(const std::vector<CommandRow>& rows, const std::string& version) {
  const CommandRow& top = rows.front();
  std::string text = fmt::format(
      ".TH ROPEWALK 1 \"\" \"ropewalk {}\" \"User Commands\"\n"
      ".SH NAME\nropewalk \\- run, measure and look into jobs of the Ropewalk allreduce layer\n"
      ".SH SYNOPSIS\n.B ropewalk\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n"
      ".SH DESCRIPTION\n{}\n.PP\n.nf\n{}\n.fi\n.SH OPTIONS\n",
      escaped(version), escaped(top.help), escaped(top.footer));
  for (const OptionRow& option : top.options) text += option_text(option);
  text += ".SH COMMANDS\n";
  for (size_t i = 1; i < rows.size(); ++i) text += command_text(rows[i]);
  return text +
         ".SH ENVIRONMENT\n.B ropewalk env\nlists every variable, its default and its value here.\n"
         ".SH SEE ALSO\n.BR ssh (1)\n";
}

}  // namespace ropewalk::tools
