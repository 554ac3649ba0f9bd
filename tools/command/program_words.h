// "ropewalk run -n 4 ./train --epochs 3": which words are ours, and which the program's.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace ropewalk::tools {

struct ProgramWords {
  std::vector<std::string> own;      // options of the command, with their values apart: "-n", "4"
  std::vector<std::string> program;  // from the first word that is none, or follows "--"
};

/// Parts the words after the name of `command`. "-np" is "--np", as mpirun's users write it. Throws
/// CLI::ParseError that names an option which the command does not have, and the nearest that it
/// has.
ProgramWords part_words(const CLI::App& command, const std::vector<std::string>& words);

}  // namespace ropewalk::tools
