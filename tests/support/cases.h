// Which cases the conformance tests run.
#pragma once

#include <vector>

#include "tests/support/reference.h"

namespace ropewalk::testing {

/// All but barrier, send and recv.
inline constexpr Collective kMovingCollectives[] = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
    Collective::broadcast,  Collective::reduce,         Collective::gather,
    Collective::scatter,    Collective::all_to_all};

/// Whether the parts of `c` may differ in length.
bool may_be_uneven(const Case& c);

/// Every collective x algorithm x size (0, 1, odd, large) x placement, with types, roots and uneven
/// counts taken in turn.
std::vector<Case> cases_of_every_size(int ranks);

/// Every collective x algorithm x type x op x placement, at one small odd size.
std::vector<Case> cases_of_every_kind(int ranks);

}  // namespace ropewalk::testing
