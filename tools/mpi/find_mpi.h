// Which MPI a command line starts: by what its program loads.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ropewalk::tools {

struct MpiKind {
  std::string name;  // of libropewalk_NAME.so
  std::string text;  // for people
};
/// All that Ropewalk has a library for, where it was built for them.
const std::vector<MpiKind>& mpi_kinds();

struct FoundMpi {
  MpiKind kind;
  std::string because;  // the word of the command line that tells
};

/// Looks at each word that names a program: what it links, or what Python's mpi4py loads; at last
/// at the launcher itself.
std::optional<FoundMpi> find_mpi(const std::vector<std::string>& words);

/// Of what a program has loaded, as ldd or /proc/self/maps lists it.
std::optional<MpiKind> mpi_among(const std::string& libraries);

}  // namespace ropewalk::tools
