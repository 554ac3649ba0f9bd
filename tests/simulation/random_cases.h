// What seeds draw for a simulated job.
#pragma once

#include <cstdint>
#include <random>
#include <utility>

#include "tests/support/cases.h"
#include "transports/fake/fake_fabric.h"

namespace ropewalk::testing {

/// Small, so that long messages have many slices.
inline constexpr size_t kSliceBytes = 8192;

/// A case that the engine can run on the fake network.
Case random_case(std::mt19937_64& random, int ranks);
/// A network; `with_faults`: of which a rank or a link is lost.
FakeOptions random_options(std::mt19937_64& random, int ranks, bool with_faults);
/// The first and the last seed: ROPEWALK_SEEDS=first:last, or one; without 1 to `last`.
std::pair<uint64_t, uint64_t> seeds(uint64_t last = 1000);

}  // namespace ropewalk::testing
