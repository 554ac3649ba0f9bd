#include "tests/simulation/simulated_job.h"

#include <algorithm>
#include <numeric>

namespace ropewalk::testing {

class SimulatedMonitors::One final : public Monitor {
 public:
  One(SimulatedMonitors& all, int rank) : all_(all), rank_(rank) {}

  const Failure* failure() const noexcept override {
    return pending_ && all_.clock_.now_ns() >= visible_ns_ ? &*pending_ : nullptr;
  }
  void report(const Failure& failure) override {
    all_.spread(failure, rank_, all_.clock_.now_ns());
  }
  bool has_left(int) const noexcept override { return false; }
  int event_fd() const noexcept override { return -1; }

  void learn(const Failure& failure, int64_t at_ns) {
    if (pending_ && visible_ns_ <= at_ns) return;
    pending_ = failure;
    visible_ns_ = at_ns;
  }

 private:
  SimulatedMonitors& all_;
  const int rank_;
  std::optional<Failure> pending_;
  int64_t visible_ns_ = 0;
};

SimulatedMonitors::SimulatedMonitors(int ranks, const Clock& clock, uint64_t seed)
    : clock_(clock), random_(seed) {
  for (int rank = 0; rank < ranks; ++rank) monitors_.push_back(std::make_unique<One>(*this, rank));
}

SimulatedMonitors::~SimulatedMonitors() = default;

Monitor& SimulatedMonitors::of(int rank) {
  return *monitors_[static_cast<size_t>(rank)];
}

int64_t SimulatedMonitors::delay_ns() {
  return std::uniform_int_distribution<int64_t>(10'000, 200'000'000)(random_);
}

void SimulatedMonitors::spread(const Failure& failure, int from, int64_t at_ns) {
  for (size_t rank = 0; rank < monitors_.size(); ++rank)
    monitors_[rank]->learn(failure, static_cast<int>(rank) == from ? at_ns : at_ns + delay_ns());
}

void SimulatedMonitors::tell_of_death(int rank, int64_t at_ns) {
  spread(
      {ErrorCode::peer_lost, "simulation", "rank " + std::to_string(rank) + " died", "", -1, rank},
      -1, at_ns);
}

SimulatedJob::SimulatedJob(int ranks, uint64_t seed, const FakeOptions& options)
    : ranks_(ranks),
      random_(seed ^ 0x9e3779b97f4a7c15ull),
      fabric_(ranks, seed, options),
      monitors_(ranks, fabric_.clock(), seed) {
  for (const FakeOptions::Loss& loss : options.losses)
    monitors_.tell_of_death(loss.rank, loss.at_ns);
  for (int rank = 0; rank < ranks; ++rank) {
    registries_.push_back(std::make_unique<MemoryRegistry>());
    engines_.push_back(
        std::make_unique<Engine>(rank, ranks, std::vector<Transport*>{&fabric_.transport(rank)},
                                 std::vector<int>(static_cast<size_t>(ranks), 0),
                                 *registries_.back(), monitors_.of(rank), fabric_.clock()));
  }
}

SimulatedJob::~SimulatedJob() = default;

bool SimulatedJob::turn() {
  std::vector<int> order(static_cast<size_t>(ranks_));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  bool moved = false;
  for (int rank : order)
    if (alive(rank)) moved |= engine(rank).progress();
  return moved;
}

void SimulatedJob::poll_control() {
  for (int rank = 0; rank < ranks_; ++rank)
    if (alive(rank)) engine(rank).failures().check_stalled(clock().now_ns());
}

std::string SimulatedJob::run(const std::function<bool(int)>& done,
                              const std::function<void(int)>& step) {
  constexpr int64_t kLook_ns = 5'000'000;
  const int64_t began_ns = clock().now_ns();
  int64_t looked_ns = began_ns;
  while (true) {
    bool finished = true;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (!alive(rank) || engine(rank).failures().failure() != nullptr || done(rank)) continue;
      finished = false;
      step(rank);
    }
    if (finished) return {};
    if (turn()) continue;
    if (clock().now_ns() - looked_ns >= kLook_ns) {
      looked_ns = clock().now_ns();
      poll_control();
    }
    if (!fabric_.advance()) fabric_.advance_to(clock().now_ns() + kLook_ns);
    if (clock().now_ns() - began_ns > kTimeout_ns) {
      std::string blocked = "hang:";
      for (int rank = 0; rank < ranks_; ++rank)
        if (alive(rank) && engine(rank).failures().failure() == nullptr && !done(rank))
          blocked +=
              " rank " + std::to_string(rank) + " " + engine(rank).failures().what_blocks() + ";";
      return blocked;
    }
  }
}

}  // namespace ropewalk::testing
