// What a seed draws for agreements in virtual time.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "base/clock.h"
#include "bootstrap/agreement.h"

namespace ropewalk::bootstrap {

/// What a seed draws for a job.
struct Scenario {
  explicit Scenario(uint64_t seed) : random(seed) {}
  std::mt19937_64 random;
  uint64_t pick(uint64_t n) { return random() % n; }  // 0 to n - 1
  bool chance(uint64_t percent) { return pick(100) < percent; }
  int64_t time(int64_t most_ns) {
    return static_cast<int64_t>(pick(static_cast<uint64_t>(most_ns)));
  }

  int ranks = 0;
  uint32_t instances = 0;
  size_t learners = 0;                       // of the first instance
  std::vector<Quorum> quorums;               // by rank
  int64_t patience_ns = 0, deadline_ns = 0;  // after a member's begin
  int64_t faults_ns = 0;                     // faults begin in that time
  int64_t delay_max_ns = 0;
  uint64_t slow_percent = 0;    // messages that take up to a third of the patience
  uint64_t wrong_percent = 0;   // of those alive whom a member takes for dead as it begins
  bool has_duplicates = false;  // which may come later than what was sent after them
  bool calls_differ = false;
  uint64_t depart_percent = 0;  // members that depart
  bool ends_when_done = false;  // a process ends that has nothing more to agree upon
};

inline Scenario draw(uint64_t seed) {
  Scenario scenario(seed);
  scenario.ranks = 1 + static_cast<int>(scenario.pick(9));
  scenario.instances = 2 + static_cast<uint32_t>(scenario.pick(2));
  constexpr int64_t kPatience_ms[] = {100, 400, 2000};
  scenario.patience_ns = kPatience_ms[scenario.pick(3)] * kMillisecond_ns;
  const int64_t windows_ns[] = {20 * kMillisecond_ns, scenario.patience_ns,
                                3 * scenario.patience_ns};
  scenario.faults_ns = windows_ns[scenario.pick(3)];
  // As Communicator::shrink does; or so late that nobody gives up who need not.
  scenario.deadline_ns = scenario.chance(50) ? 2 * scenario.patience_ns
                                             : scenario.faults_ns + 14 * scenario.patience_ns;
  scenario.delay_max_ns = scenario.chance(50) ? kMillisecond_ns / 5 : 2 * kMillisecond_ns;
  constexpr uint64_t kSlow[] = {0, 0, 10, 40}, kWrong[] = {0, 5, 40};
  scenario.slow_percent = kSlow[scenario.pick(4)];
  scenario.wrong_percent = kWrong[scenario.pick(3)];
  scenario.has_duplicates = scenario.chance(30);
  scenario.calls_differ = scenario.chance(20);
  scenario.ends_when_done = scenario.chance(20);
  if (scenario.chance(40)) scenario.learners = scenario.pick(static_cast<uint64_t>(scenario.ranks));
  const bool breaks_ties = scenario.chance(40), rules_differ = scenario.chance(10);
  const int least = scenario.chance(20) ? 1 + static_cast<int>(scenario.pick(scenario.ranks)) : 1;
  for (int rank = 0; rank < scenario.ranks; ++rank)
    scenario.quorums.push_back({rules_differ ? scenario.chance(50) : breaks_ties, least});
  if (scenario.chance(30)) scenario.depart_percent = 1 + scenario.pick(60);
  return scenario;
}

/// One connection, as its two ends know it.
struct SimulatedLink {
  std::array<int, 2> ends = {};
  bool is_broken = false;  // what is on its way is lost
  std::array<bool, 2> is_open = {};
  std::array<int64_t, 2> last_arrival_ns = {};  // at each end
  int64_t& last_arrival_at(int rank) { return last_arrival_ns[ends[1] == rank]; }
  bool is_between(int a, int b) const {
    return (ends[0] == a && ends[1] == b) || (ends[0] == b && ends[1] == a);
  }
};

}  // namespace ropewalk::bootstrap
