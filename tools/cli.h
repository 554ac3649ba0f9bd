// What all subcommands share: parsing, help, errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "command.h"

namespace ropewalk::tools {

/// Parses the command line with the given subcommands, runs the one asked for and returns the exit
/// status: 2 for wrong input (Error(invalid_argument) too), 1 where it threw another
/// ropewalk::Error.
int run_cli(int argc, char** argv, const std::vector<void (*)(CLI::App&, Request&)>& commands);

/// The word of `words` most like `word`, or empty where none is like it.
std::string nearest_word(std::string_view word, const std::vector<std::string>& words);

}  // namespace ropewalk::tools
