#include "tests/simulation/simulated_job.h"

#include <algorithm>
#include <numeric>

namespace ropewalk::testing {

SimulatedMonitors::SimulatedMonitors(int ranks, const Clock& clock, uint64_t seed)
    : clock_(clock),
      random_(seed),
      spread_(static_cast<size_t>(ranks)),
      probes_(static_cast<size_t>(ranks)) {
  for (int rank = 0; rank < ranks; ++rank)
    monitors_.push_back(std::make_unique<JobMonitor>(rank, ranks, clock));
}

int64_t SimulatedMonitors::delay_ns() {
  return std::uniform_int_distribution<int64_t>(10'000, 200'000'000)(random_);
}

void SimulatedMonitors::send(int from, int to, std::function<void(JobMonitor&)> happen) {
  events_.push_back({clock_.now_ns() + delay_ns(), from, to, std::move(happen)});
}

void SimulatedMonitors::tell_of_death(int rank, int64_t at_ns) {
  const Failure failure{
      ErrorCode::peer_lost, "simulation", "rank " + std::to_string(rank) + " died", "", -1, rank};
  for (size_t to = 0; to < monitors_.size(); ++to)
    events_.push_back({at_ns + delay_ns(), rank, static_cast<int>(to),
                       [failure](JobMonitor& monitor) { monitor.keep(failure); }});
}

void SimulatedMonitors::advance(const std::function<bool(int)>& is_awake) {
  const int64_t now_ns = clock_.now_ns();
  for (int rank = 0; rank < static_cast<int>(monitors_.size()); ++rank)
    if (is_awake(rank)) control(rank);
  std::vector<Event> due;
  std::erase_if(events_, [&](Event& event) {
    const bool is_due = event.at_ns <= now_ns && is_awake(event.to) && passes(event);
    if (is_due) due.push_back(std::move(event));
    return is_due;
  });
  for (const Event& event : due) event.happen(of(event.to));
}

bool SimulatedMonitors::passes(const Event& event) const {
  const auto [from_ns, until_ns] = cut_ns_;
  const bool is_cut = clock_.now_ns() >= from_ns && clock_.now_ns() < until_ns;
  return !is_cut || part_.contains(event.from) == part_.contains(event.to);
}

void SimulatedMonitors::leave(int rank, const CallsMade& calls) {
  for (int to = 0; to < static_cast<int>(monitors_.size()); ++to)
    if (to != rank)
      send(rank, to, [rank, calls](JobMonitor& other) { other.mark_left(rank, calls); });
}

/// One turn of the control thread.
void SimulatedMonitors::control(int rank) {
  constexpr int64_t kProbe_ns = 500'000'000;  // a job's are 2 s; its limits are longer, too
  JobMonitor& monitor = of(rank);
  const auto r = static_cast<size_t>(rank);
  if (const auto silence = monitor.silence(); silence && !probes_[r]) {
    probes_[r] = true;
    events_.push_back({clock_.now_ns() + static_cast<int64_t>(random_() % kProbe_ns), rank, rank,
                       [silence](JobMonitor& own) { own.report(*silence); }});
  }
  const int ranks = static_cast<int>(monitors_.size());
  if (const Failure* failure = monitor.failure(); failure != nullptr && !spread_[r]) {
    spread_[r] = true;
    for (int to = 0; to < ranks; ++to)
      if (to != rank) send(rank, to, [failure](JobMonitor& other) { other.keep(*failure); });
  }
  if (!monitor.take_question()) return;
  answer(rank);
  for (int to = 0; to < ranks; ++to)
    if (to != rank) send(rank, to, [this, to](JobMonitor&) { answer(to); });
}

void SimulatedMonitors::answer(int rank) {
  for (int to = 0; to < static_cast<int>(monitors_.size()); ++to)
    if (to != rank)
      send(rank, to, [rank, answer = of(rank).answer()](JobMonitor& other) {
        other.note_answer(rank, answer);
      });
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
        std::make_unique<LoneEngine>(rank, ranks, std::vector<Transport*>{&fabric_.transport(rank)},
                                     std::vector<int>(static_cast<size_t>(ranks), 0),
                                     *registries_.back(), monitors_.of(rank), fabric_.clock()));
  }
  fabric_.advance_to(kMillisecond_ns);  // to engines 0 is no time
}

SimulatedJob::~SimulatedJob() = default;

void SimulatedJob::hold_back(int rank, int64_t until_ns) {
  for (int to = 0; to < ranks_; ++to)
    if (to != rank) fabric_.add_outage({rank, to, clock().now_ns(), until_ns});
}

void SimulatedJob::leave(int rank) {
  engine(rank).end_links();
  engine(rank).worker().connections().set_left();
  const FailureDetector& failures = engine(rank).failures();
  const CallHistory& calls = failures.calls();
  monitors_.leave(rank, {calls.count, calls.digest, failures.last_call()});
}

bool SimulatedJob::turn() {
  std::vector<int> order(static_cast<size_t>(ranks_));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  bool moved = false;
  for (int rank : order)
    if (is_awake(rank)) moved |= engine(rank).progress();
  return moved;
}

bool SimulatedJob::is_awake(int rank) const {
  const auto stop = stops_.find(rank);
  const int64_t now_ns = clock().now_ns();
  return alive(rank) &&
         (stop == stops_.end() || now_ns < stop->second.first || now_ns >= stop->second.second);
}

bool SimulatedJob::is_gone(int rank) const {
  const auto stop = stops_.find(rank);
  const bool for_good = stop != stops_.end() && stop->second.second == kForGood_ns;
  return !alive(rank) || (for_good && !is_awake(rank));
}

void SimulatedJob::poll_control() {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!is_awake(rank)) continue;
    FailureDetector& failures = engine(rank).failures();
    // As Driver::poll_control and Driver::progress do; who computes answers nobody.
    const bool answers = engine(rank).has_operations() || monitors_.of(rank).has_left(rank);
    if (answers && failures.failure() == nullptr) failures.answer_connects();
    failures.check_stalled(clock().now_ns());
  }
}

std::string SimulatedJob::run(const std::function<bool(int)>& done,
                              const std::function<void(int)>& step) {
  constexpr int64_t kLook_ns = 5'000'000;
  const int64_t began_ns = clock().now_ns();
  int64_t looked_ns = began_ns;
  while (true) {
    bool finished = true;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (is_gone(rank) || engine(rank).failures().failure() != nullptr || done(rank)) continue;
      finished = false;
      if (is_awake(rank)) step(rank);
    }
    if (finished) return {};
    monitors_.advance([this](int rank) { return is_awake(rank); });
    if (turn()) continue;
    if (clock().now_ns() - looked_ns >= kLook_ns) {
      looked_ns = clock().now_ns();
      poll_control();
    }
    fabric_.advance_at_most_to(clock().now_ns() + kLook_ns);
    if (clock().now_ns() - began_ns > kTimeout_ns) {
      std::string blocked = "hang:";
      for (int rank = 0; rank < ranks_; ++rank)
        if (!is_gone(rank) && engine(rank).failures().failure() == nullptr && !done(rank))
          blocked +=
              " rank " + std::to_string(rank) + " " + engine(rank).failures().what_blocks() + ";";
      return blocked;
    }
  }
}

}  // namespace ropewalk::testing
