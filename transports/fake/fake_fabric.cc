#include "transports/fake/fake_fabric.h"

#include <algorithm>
#include <utility>

#include "transports/fake/fake_transport.h"

namespace ropewalk {

FakeFabric::FakeFabric(int ranks, uint64_t seed, FakeOptions options)
    : options_(std::move(options)), random_(seed), alive_(static_cast<size_t>(ranks), true) {
  for (int rank = 0; rank < ranks; ++rank)
    transports_.push_back(std::make_unique<FakeTransport>(*this, rank, ranks));
  for (const auto& loss : options_.losses)
    schedule(loss.at_ns, [this, rank = loss.rank] { lose(rank); });
  for (const auto& c : options_.cuts)
    schedule(c.at_ns, [this, c] { cut(c.a, c.b, "the link was cut"); });
}

FakeFabric::~FakeFabric() = default;

Transport& FakeFabric::transport(int rank) {
  return *transports_.at(static_cast<size_t>(rank));
}

bool FakeFabric::advance() {
  if (events_.empty()) return false;
  const Event next = events_.top();
  events_.pop();
  clock_.now = std::max(clock_.now, next.at_ns);
  next.happen();
  return true;
}

void FakeFabric::advance_to(int64_t time_ns) {
  while (!events_.empty() && events_.top().at_ns <= time_ns) advance();
  clock_.now = std::max(clock_.now, time_ns);
}

void FakeFabric::schedule(int64_t at_ns, std::function<void()> happen) {
  events_.push({std::max(at_ns, clock_.now), events_scheduled_++, std::move(happen)});
}

// Not <random>'s distributions: their results differ between standard libraries.
bool FakeFabric::chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
}

int64_t FakeFabric::between(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
}

void FakeFabric::record(int kind, int from, int to, uint64_t what) {
  const uint64_t words[] = {static_cast<uint64_t>(clock_.now), static_cast<uint64_t>(kind),
                            static_cast<uint64_t>(from), static_cast<uint64_t>(to), what};
  for (const uint64_t word : words) digest_ = (digest_ ^ word) * 1099511628211u;
}

void FakeFabric::cut(int a, int b, const std::string& why) {
  record('c', a, b, 0);
  for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
    FakeTransport::Side& side = at(from).side(to);
    if (std::exchange(side.cut, true)) continue;
    at(from).tear(to, /*source_readable=*/!side.dropped && !side.lost);
    const int64_t told_ns =
        clock_.now + between(options_.detection_min_ns, options_.detection_max_ns);
    schedule(told_ns, [this, from = from, to = to, why] { at(from).tell_lost(to, why); });
  }
}

void FakeFabric::lose(int rank) {
  alive_[static_cast<size_t>(rank)] = false;
  for (int peer = 0; peer < static_cast<int>(transports_.size()); ++peer)
    if (peer != rank) cut(rank, peer, "the rank died");
}

}  // namespace ropewalk
