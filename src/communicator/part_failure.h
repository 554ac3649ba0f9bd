// Why a part of a communicator could not be joined.
#pragma once

#include <vector>

#include "bootstrap/monitor.h"
#include "ropewalk/status.h"

namespace ropewalk {

/// `failure` of the part of `members`, with the numbers that ranks have in the whole. Where the whole
/// has failed that is the reason; another rank may know before this one, which then waits for it.
Error seen_from_whole(Failure failure, const std::vector<int>& members, const Monitor& whole);

}  // namespace ropewalk
