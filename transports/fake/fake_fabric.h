// A network that exists in one thread and in virtual time, to run the real engine under every
// delay, order and failure that a seed can think of. Same seed and same calls: same run.
//
// A put reads its source at a random time before its put_done, so that a source that is reused too
// early shows as wrong data (or, when freed, under AddressSanitizer). Puts of one rank to one peer
// arrive in order; puts between different pairs overtake each other.
#pragma once

#include <functional>
#include <queue>
#include <random>

#include "base/clock.h"
#include "ropewalk/transport.h"

namespace ropewalk {

struct FakeOptions {
  int64_t latency_min_ns = 1'000;
  int64_t latency_max_ns = 20'000;
  double ns_per_byte = 0.1;                // of each directed link
  double full_probability = 0.1;           // that a put is answered `full` though there is room
  double done_probability = 0.3;           // that a put is answered `done`, else `posted`
  int64_t put_done_delay_max_ns = 50'000;  // how long after the arrival put_done may come
  size_t puts_in_flight_max = 64;          // of each directed link; then `full`
  int64_t detection_min_ns = 10'000;       // from a cut until either side is told `lost`
  int64_t detection_max_ns = 1'000'000;
  bool load_store = false;
  bool needs_registration = false;  // as the capability says
  // As the capability says; then plain memory is registered in whole pages, as for an adapter.
  bool registered_sources = false;
  size_t inline_bytes_max = 64;
  int64_t silence_max_ns = 0;    // as the capability says
  bool plain_is_current = true;  // what MemoryRegistration::current says of plain memory

  /// From `at_ns` on `rank` is dead: all its links are cut.
  struct Loss {
    int rank;
    int64_t at_ns;
  };
  /// From `at_ns` on nothing passes between `a` and `b`. What is on its way then may have landed in
  /// part, without a notice, as on a real network. `one_way`: nothing passes from `a` to `b`; since
  /// acknowledgements do not either, both find their peer silent.
  struct Cut {
    int a, b;
    int64_t at_ns;
    bool one_way = false;
  };
  /// What `from` has sent to `to`, and would arrive from `begin_ns` on, arrives after `end_ns`.
  struct Outage {
    int from, to;
    int64_t begin_ns, end_ns;
  };
  std::vector<Loss> losses;
  std::vector<Cut> cuts;
  std::vector<Outage> outages;
};

class FakeTransport;

/// Owns the clock, the events and one transport per rank. One thread.
class FakeFabric {
 public:
  FakeFabric(int ranks, uint64_t seed, FakeOptions options = {});
  FakeFabric(const FakeFabric&) = delete;
  FakeFabric& operator=(const FakeFabric&) = delete;
  ~FakeFabric();

  Transport& transport(int rank);
  const Clock& clock() const { return clock_; }
  /// One more, of what is sent from now on.
  void add_outage(const FakeOptions::Outage& outage) { outages_.push_back(outage); }
  /// False once the rank is lost: do not run it any more.
  bool alive(int rank) const { return alive_[rank]; }

  /// Moves the clock to the next event and lets it happen; false when none is pending.
  bool advance();
  /// The same, where it comes until `time_ns`; else moves the clock to that.
  void advance_at_most_to(int64_t time_ns);
  /// Lets all events until `time_ns` happen, then sets the clock to it (for deadlines).
  void advance_to(int64_t time_ns);
  /// A hash over all that has happened: equal exactly when two runs are.
  uint64_t digest() const { return digest_; }

 private:
  friend class FakeTransport;

  class VirtualClock final : public Clock {
   public:
    int64_t now_ns() const override { return now; }
    int64_t now = 0;
  };
  struct Event {
    int64_t at_ns;
    uint64_t number;  // ties happen in the order of scheduling
    std::function<void()> happen;
    bool operator>(const Event& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : number > other.number;
    }
  };

  FakeTransport& at(int rank) { return *transports_[rank]; }
  void schedule(int64_t at_ns, std::function<void()> happen);
  bool chance(double probability);
  int64_t between(int64_t low, int64_t high);  // both included
  void record(int kind, int from, int to, uint64_t what);
  /// Cuts the link of two ranks now; each is told `why` later, unless it has dropped the other.
  void cut(int a, int b, const std::string& why);
  void cut_one_way(int a, int b);
  void lose(int rank);

  const FakeOptions options_;
  std::vector<FakeOptions::Outage> outages_;
  VirtualClock clock_;
  std::mt19937_64 random_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t events_scheduled_ = 0;
  uint64_t digest_ = 14695981039346656037u;  // FNV-1a's basis
  std::vector<bool> alive_;
  std::vector<std::unique_ptr<FakeTransport>> transports_;
};

}  // namespace ropewalk
