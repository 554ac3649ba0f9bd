// The manual page ropewalk(1), made of the options that the command has.
#pragma once

#include <string>
#include <vector>

#include "tools/command/option_table.h"

namespace ropewalk::tools {

std::string man_page(const std::vector<CommandRow>& rows, const std::string& version);

}  // namespace ropewalk::tools
