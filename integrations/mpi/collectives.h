// The collectives that are taken.
#pragma once

#include "functions.h"

namespace ropewalk::mpi {

/// Puts them in place of the MPI's own.
void take_collectives(Table& table);

}  // namespace ropewalk::mpi
