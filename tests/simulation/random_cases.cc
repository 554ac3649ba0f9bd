#include "tests/simulation/random_cases.h"

#include <cstdlib>
#include <iterator>
#include <string>

#include "schedule/algorithm.h"

namespace ropewalk::testing {

Case random_case(std::mt19937_64& random, int ranks) {
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Case c;
  c.ranks = ranks;
  c.collective = static_cast<Collective>(pick(8));
  const auto& algorithms = algorithms_for(c.collective);
  c.algorithm = algorithms[pick(algorithms.size())];
  c.type = static_cast<DataType>(pick(kDataTypes));
  c.op = static_cast<ReduceKind>(pick(kReduceKinds));
  if (c.op == ReduceKind::scaled_sum && !is_floating(c.type)) c.op = ReduceKind::sum;
  constexpr size_t kCounts[] = {0, 1, 3, 17, 1000, 5000, 20011};
  c.count = kCounts[pick(std::size(kCounts))];
  c.root = static_cast<int>(pick(static_cast<size_t>(ranks)));
  c.uneven = pick(4) == 0;
  c.in_place = pick(2) == 0 && !(c.uneven && c.collective == Collective::all_to_all);
  c.uneven &= may_be_uneven(c);
  return c;
}

FakeOptions random_options(std::mt19937_64& random, int ranks, bool with_faults) {
  FakeOptions options;
  options.latency_max_ns = random() % 2 == 0 ? 20'000 : 2'000'000;
  options.full_probability = random() % 2 == 0 ? 0.1 : 0.6;
  options.load_store = random() % 2 == 0;
  options.registered_sources = random() % 2 == 0;
  options.needs_registration = options.load_store && !options.registered_sources;
  options.plain_is_current = random() % 2 == 0;
  options.puts_in_flight_max = random() % 2 == 0 ? 4 : 64;
  const auto at_ns = static_cast<int64_t>(random() % 20'000'000);
  const int victim = static_cast<int>(random() % static_cast<uint64_t>(ranks));
  if (with_faults && random() % 2 == 0)
    options.losses.push_back({victim, at_ns});
  else if (with_faults)
    options.cuts.push_back({victim, (victim + 1) % ranks, at_ns});
  return options;
}

std::pair<uint64_t, uint64_t> seeds(uint64_t last) {
  const char* text = std::getenv("ROPEWALK_SEEDS");
  if (text == nullptr) return {1, last};
  char* rest = nullptr;
  const uint64_t first = std::strtoull(text, &rest, 10);
  return {first, *rest == ':' ? std::strtoull(rest + 1, nullptr, 10) : first};
}

}  // namespace ropewalk::testing
