// Completion of `ropewalk` for shells, made of the options that it has.
#pragma once

#include <string>
#include <vector>

#include "tools/command/option_table.h"

namespace ropewalk::tools {

std::string bash_completion(const std::vector<CommandRow>& rows);
std::string zsh_completion(const std::vector<CommandRow>& rows);
std::string fish_completion(const std::vector<CommandRow>& rows);

}  // namespace ropewalk::tools
