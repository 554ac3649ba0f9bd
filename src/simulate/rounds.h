// Rounds of a schedule that do the same as the ones before, as those of a ring do. Most of them
// need not be run: once all that is under way is as it was some rounds ago, except for the time, it
// will be so again (repetition.h). So a schedule is run with fewer rounds, and the others are added
// up.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/schedule.h"

namespace ropewalk {

/// By step of one rank: those that come before it, as in SimulatedSteps.
struct StepDeps {
  std::vector<uint32_t> first, grants_end, deps;
};

inline constexpr uint32_t kRoundSteps = 2;  // a send and a receive
/// Those left out are a multiple of this, so that whatever repeats in so many, or in a part of
/// them, repeats in those.
inline constexpr uint32_t kRoundsTogether = 64;

/// Steps `begin` to `end` are rounds that do the same; `left_out` more of them are not there.
struct RepeatedRounds {
  uint32_t begin = 0, end = 0;
  uint32_t left_out = 0;
};

struct ShortSchedule {
  Schedule schedule;
  StepDeps deps;
  /// By step: whose stream its end wakes, though it does not depend on it here: a step that was
  /// left out, or one so much later that it finds all ended.
  std::vector<std::vector<uint32_t>> wakes;
  std::vector<RepeatedRounds> repeated;
};

/// With about `rounds` rounds of each repetition. Nothing where there is none that long, and where
/// its steps wait for others that may not have ended when they are looked at.
std::optional<ShortSchedule> shorten(const Schedule& schedule, const StepDeps& deps,
                                     uint32_t rounds);

}  // namespace ropewalk
