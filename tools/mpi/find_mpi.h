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
  std::string library;  // its file; empty where the launcher told
};

/// Looks at each word that names a program: what it links, or what Python's mpi4py loads; at last
/// at the launcher itself.
std::optional<FoundMpi> find_mpi(const std::vector<std::string>& words);

/// A file's bytes; empty where it cannot be read.
std::string read_library(const std::string& path);
/// Whether an MPI's library of these bytes has this call, by the name of the profiling interface.
bool has_call(const std::string& bytes, const std::string& name);

}  // namespace ropewalk::tools
