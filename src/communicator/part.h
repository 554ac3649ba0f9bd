// The parts of a communicator that split makes, whose ranks have numbers of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "bootstrap/monitor.h"
#include "ropewalk/status.h"

namespace ropewalk {

/// The ranks of `color` in their new order. `colors_and_keys`: two numbers a rank.
std::vector<int> members_of(const std::vector<int32_t>& colors_and_keys, int color);
/// `failure` of the part of `members`, with the numbers that ranks have in the whole. Where the
/// whole has failed that is the reason; another rank may know before this one, which then waits for
/// it.
Error seen_from_whole(Failure failure, const std::vector<int>& members, const Monitor& whole);
/// `failure` of the whole, with the numbers that ranks have in the part of `members`; without those
/// that are not in it.
Failure seen_from_part(Failure failure, const std::vector<int>& members);

}  // namespace ropewalk
