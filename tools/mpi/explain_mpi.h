// Which collectives of an MPI Ropewalk takes, and why not the others.
#pragma once

#include <string>

#include "tools/mpi/find_mpi.h"

namespace ropewalk::tools {

/// For people. `front`: the library that is preloaded. Throws Error.
std::string explain_mpi(const FoundMpi& mpi, const std::string& front);

}  // namespace ropewalk::tools
