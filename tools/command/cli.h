// What all subcommands share: parsing, help, errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/command/command.h"

namespace ropewalk::tools {

/// Adds the given subcommands, parses the command line, runs what it asks for and returns the exit
/// status: 2 for wrong input, which an Error(invalid_argument) is too; kStatusOutputLost where
/// standard output could not be written; 1 for any other error.
int run_cli(int argc, char** argv, const std::vector<void (*)(Command, Request&)>& commands);

/// The word of `words` most like `word`, or empty where none is like it.
std::string nearest_word(std::string_view word, const std::vector<std::string>& words);

}  // namespace ropewalk::tools
