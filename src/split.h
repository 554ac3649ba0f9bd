// Communicator::split.
#pragma once

#include <memory>

#include "ropewalk/communicator.h"

namespace ropewalk {

/// Collective over `whole`. `common` holds what the parts take over: all but who and where.
std::unique_ptr<Communicator> split_communicator(Communicator& whole, Options common, int color,
                                                 int key);

}  // namespace ropewalk
