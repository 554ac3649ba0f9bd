// The algorithm probe: times short all_reduces and reduce_scatters with each algorithm that may be
// the fastest, as a job starts. How long a short call takes depends on how threads wait and wake,
// how many ranks share a CPU and what a packet costs the kernel: no closed form of links tells. It
// takes 28 ms at most, or a little more where calls take longer than predicted.
#pragma once

#include <functional>
#include <vector>

#include "planner/planner.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

/// What the planner says of a call, equal on all ranks, where it knows these times.
using Planning = std::function<PlanDecision(const Call&, const std::vector<MeasuredTime>&)>;

/// Collective, and equal on all ranks. Empty where there is nothing to choose from, or where trying
/// would take too long. Throws what calls throw.
std::vector<MeasuredTime> time_short_calls(Communicator& communicator, const Planning& plan);

}  // namespace ropewalk
