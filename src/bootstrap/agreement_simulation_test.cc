// Agreements in virtual time, with deaths, stops, cut networks, late members and wrong suspicions
// drawn from a seed. ROPEWALK_SEEDS=first:last chooses the seeds; a failing one is printed and
// replays.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <set>

#include "base/clock.h"
#include "bootstrap/agreement_scenario_testing.h"
#include "bootstrap/agreement_testing.h"
#include "tests/support/sanitized.h"

namespace ropewalk::bootstrap {
namespace {

/// A process, and what the checks want to know of it.
struct SimulatedProcess {
  bool is_alive = true, is_stopped = false;
  bool answers_when_dead = false;  // its host does, so that who dials learns that it has ended
  std::vector<std::function<void()>> waiting;  // while it is stopped
  int sends_left = -1;                         // it dies with the last; -1: it does not
  uint64_t wakes = 0;                          // the last that was scheduled
  std::set<int> dialing;
  TestedAgreements agreements;

  // What the checks want to know, by instance.
  std::map<uint32_t, Contribution> brought;
  std::map<uint32_t, int64_t> begun_ns, decided_ns, given_up_ns;
};

class AgreementSimulation {
 public:
  explicit AgreementSimulation(uint64_t seed)
      : draw_(draw(seed)),
        members_(static_cast<size_t>(draw_.ranks)),
        parts_(members_.size(), 0),
        all_(members_.size()) {
    std::iota(all_.begin(), all_.end(), 0);
    draw_starts();
    if (draw_.chance(85)) draw_faults();
  }

  /// Returns what is wrong.
  std::string run() {
    constexpr int kEventsMax = 100'000;
    for (int events = 0; !events_.empty() && wrong_.empty(); ++events) {
      if (events == kEventsMax) return "it does not end";
      const auto event = events_.top().run;
      now_ns_ = events_.top().at_ns;
      events_.pop();
      event();
    }
    if (wrong_.empty()) check_all_ended();
    for (uint32_t instance = 1; instance <= draw_.instances && wrong_.empty(); ++instance)
      check_termination(instance);
    return wrong_;
  }

 private:
  struct Event {
    int64_t at_ns;
    uint64_t number;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return std::pair(at_ns, number) > std::pair(other.at_ns, other.number);
    }
  };

  SimulatedProcess& member(int rank) { return members_[static_cast<size_t>(rank)]; }
  int any_rank() { return static_cast<int>(draw_.pick(members_.size())); }
  void after(int64_t delay_ns, std::function<void()> run) {
    events_.push({now_ns_ + delay_ns, events_made_++, std::move(run)});
  }
  /// Faults are over only then.
  void note_fault(int64_t at_ns) { quiet_ns_ = std::max(quiet_ns_, at_ns); }
  void expect(bool condition, const std::string& what) {
    if (!condition && wrong_.empty()) wrong_ = fmt::format("at {} us: {}", now_ns_ / 1000, what);
  }

  // ---- Faults ----

  void draw_starts() {
    for (int rank = 0; rank < draw_.ranks; ++rank) {
      if (draw_.chance(3)) continue;  // never
      const bool is_late = draw_.chance(8);
      after(draw_.time(is_late ? 3 * draw_.patience_ns : 20 * kMillisecond_ns),
            [this, rank] { post(rank, [this, rank] { begin(rank, all_); }); });
    }
  }

  void draw_faults() {
    const uint64_t deaths = draw_.chance(60) ? draw_.pick(members_.size()) : 0;
    for (uint64_t i = 0; i < deaths; ++i) {
      const int victim = any_rank();
      after(draw_.time(draw_.faults_ns), [this, victim] { begin_to_die(victim); });
    }
    const uint64_t stops = draw_.chance(40) ? draw_.pick(4) : 0;
    for (uint64_t i = 0; i < stops; ++i) {
      const int victim = any_rank();
      after(draw_.time(draw_.faults_ns), [this, victim] { stop(victim); });
    }
    const uint64_t cuts = draw_.chance(40) ? 1 + draw_.pick(2) : 0;
    for (uint64_t i = 0; i < cuts; ++i) after(draw_.time(draw_.faults_ns), [this] { cut(); });
    const uint64_t breaks = draw_.chance(40) ? draw_.pick(10) : 0;
    for (uint64_t i = 0; i < breaks; ++i)
      after(draw_.time(draw_.faults_ns), [this] {
        if (!links_.empty()) break_link(links_[draw_.pick(links_.size())]);
      });
  }

  /// Now, or after a few more messages.
  void begin_to_die(int rank) {
    if (draw_.chance(30)) return die(rank);
    member(rank).sends_left = 1 + static_cast<int>(draw_.pick(members_.size()));
    const int64_t most_ns = 1 + draw_.time(draw_.patience_ns);
    note_fault(now_ns_ + most_ns);
    after(most_ns, [this, rank] { die(rank); });
  }

  void die(int rank) {
    SimulatedProcess& dead = member(rank);
    if (!std::exchange(dead.is_alive, false)) return;
    dead.answers_when_dead = draw_.chance(70);
    note_fault(now_ns_);
    for (SimulatedLink& link : links_)
      if (link.ends[0] == rank || link.ends[1] == rank) end_link_of_dead(link, rank);
    // Otherwise nobody is ever sure.
    if (!dead.answers_when_dead && draw_.chance(50)) return;
    for (int other = 0; other < draw_.ranks; ++other)
      if (other != rank) confirm_later(other, rank, now_ns_ + draw_.time(100 * kMillisecond_ns));
  }

  /// The kernel closes its connections, behind what was sent; a host that dies says nothing.
  void end_link_of_dead(SimulatedLink& link, int dead) {
    const int other = link.ends[link.ends[0] == dead];
    if (!member(dead).answers_when_dead) return break_link(link);
    confirm_later(other, dead, std::max(now_ns_, link.last_arrival_at(other)) + 1);
  }

  void confirm_later(int rank, int dead, int64_t at_ns) {
    note_fault(at_ns);
    after(at_ns - now_ns_, [=, this] { post(rank, [=, this] { note_ended(rank, dead); }); });
  }

  void stop(int rank) {
    member(rank).is_stopped = true;
    const int64_t most_ns = draw_.chance(50) ? 20 * kMillisecond_ns : 2 * draw_.patience_ns;
    const int64_t length_ns = 1 + draw_.time(most_ns);
    note_fault(now_ns_ + length_ns);
    after(length_ns, [this, rank] {
      member(rank).is_stopped = false;
      for (const auto& run : std::exchange(member(rank).waiting, {}))
        if (member(rank).is_alive) run();
      pump(rank);
    });
  }

  void cut() {
    const uint64_t parts = 2 + draw_.pick(2);
    for (int& part : parts_) part = static_cast<int>(draw_.pick(parts));
    note_fault(now_ns_);
    for (SimulatedLink& link : links_)
      if (!can_reach(link.ends[0], link.ends[1])) break_link(link);
    if (draw_.chance(30)) return;
    const int64_t length_ns = 1 + draw_.time(2 * draw_.patience_ns);
    note_fault(now_ns_ + length_ns);
    after(length_ns, [this] { std::ranges::fill(parts_, 0); });
  }

  bool can_reach(int a, int b) const {
    return parts_[static_cast<size_t>(a)] == parts_[static_cast<size_t>(b)];
  }

  /// Each end learns of it at another time.
  void break_link(SimulatedLink& link) {
    if (std::exchange(link.is_broken, true)) return;
    for (const size_t end : {0u, 1u}) {
      const int64_t delay_ns = 1 + draw_.time(200 * kMillisecond_ns);
      note_fault(now_ns_ + delay_ns);
      const int rank = link.ends[end], peer = link.ends[1 - end];
      after(delay_ns, [=, this, &link] {
        post(rank, [=, this, &link] {
          link.is_open[end] = false;
          if (open_link(rank, peer) == nullptr) member(rank).agreements.note_unlinked(peer);
        });
      });
    }
  }

  // ---- Links ----

  SimulatedLink* open_link(int rank, int peer) {
    for (SimulatedLink& link : links_)
      if (link.is_between(rank, peer) && link.is_open[link.ends[1] == rank]) return &link;
    return nullptr;
  }

  void dial_wanted(int rank) {
    SimulatedProcess& self = member(rank);
    for (const int peer : self.agreements.links_wanted())
      if (open_link(rank, peer) == nullptr && self.dialing.insert(peer).second)
        after(1 + draw_.time(5 * kMillisecond_ns), [=, this] { dial(rank, peer); });
  }

  void dial(int rank, int peer) {
    SimulatedProcess& self = member(rank);
    if (!self.is_alive) return;
    if (!can_reach(rank, peer) || member(peer).is_stopped || self.is_stopped) {
      if (!is_busy(rank)) return;
      return after(draw_.patience_ns / 16, [=, this] { dial(rank, peer); });
    }
    self.dialing.erase(peer);
    if (!member(peer).is_alive) {
      if (member(peer).answers_when_dead) post(rank, [=, this] { note_ended(rank, peer); });
      return;
    }
    SimulatedLink& link = links_.emplace_back();
    link.ends = {rank, peer};
    open(link, 1);
    after(draw_.time(draw_.delay_max_ns), [this, &link] { open(link, 0); });
  }

  /// Ends what else would go on for ever.
  bool is_busy(int rank) {
    if (member(rank).agreements.is_over()) member(rank).dialing.clear();
    return !member(rank).agreements.is_over();
  }

  void open(SimulatedLink& link, size_t end) {
    if (link.is_broken) return;
    const int rank = link.ends[end], peer = link.ends[1 - end];
    post(rank, [=, this, &link] {
      if (link.is_broken || member(rank).agreements.ended().contains(peer)) return;
      link.is_open[end] = true;
      member(rank).agreements.note_linked(peer);
    });
  }

  void send(int from, int to, const AgreementMessage& message) {
    SimulatedProcess& sender = member(from);
    SimulatedLink* link = open_link(from, to);
    if (link == nullptr || !sender.is_alive) return;
    if (sender.sends_left > 0 && --sender.sends_left == 0) die(from);
    if (link->is_broken) return;
    const int64_t spike_ns = draw_.chance(draw_.slow_percent) ? draw_.patience_ns / 3 : 0;
    const int64_t delay_ns = 1 + draw_.time(draw_.delay_max_ns) + draw_.time(spike_ns + 1);
    int64_t& arrival_ns = link->last_arrival_at(to);
    arrival_ns = std::max(arrival_ns, now_ns_ + delay_ns);
    after(arrival_ns - now_ns_, [=, this] {
      if (!link->is_broken)
        post(to, [=, this] { member(to).agreements.take(from, message, now_ns_); });
    });
    if (draw_.has_duplicates && draw_.chance(10))
      after(delay_ns + draw_.time(draw_.patience_ns), [=, this] {
        post(to, [=, this] { member(to).agreements.take(from, message, now_ns_); });
      });
  }

  // ---- Processes ----

  void post(int rank, std::function<void()> run) {
    SimulatedProcess& self = member(rank);
    if (!self.is_alive) return;
    if (self.is_stopped) return self.waiting.push_back(std::move(run));
    run();
    pump(rank);
  }

  void begin(int rank, std::vector<int> members) {
    SimulatedProcess& self = member(rank);
    const uint32_t instance = self.agreements.begun() + 1;
    Contribution& brought = self.brought[instance];
    brought = {draw_.random(), 1, fmt::format("rank {} in {}", rank, instance)};
    if (draw_.calls_differ) brought.call += static_cast<uint8_t>(draw_.chance(10));
    if (draw_.chance(draw_.depart_percent)) brought.call = kDepartCall;
    Agreement::Setup setup{.rank = rank,
                           .members = std::move(members),
                           .learners = learners_in(instance),
                           .quorum = draw_.quorums[static_cast<size_t>(rank)],
                           .contribution = brought,
                           .suspects = {},
                           .begun_ns = now_ns_,
                           .patient_until_ns = now_ns_ + draw_.patience_ns};
    for (int peer = 0; peer < draw_.ranks; ++peer)  // of those dead most, of the others a few
      if (draw_.chance(member(peer).is_alive ? draw_.wrong_percent : 70))
        setup.suspects.push_back(peer);
    self.begun_ns[instance] = now_ns_;
    std::set<int> linked;
    for (int peer = 0; peer < draw_.ranks; ++peer)
      if (open_link(rank, peer) != nullptr) linked.insert(peer);
    self.agreements.begin(std::move(setup), now_ns_ + draw_.deadline_ns, linked);
  }

  void note_ended(int rank, int peer) {
    for (SimulatedLink& link : links_)
      if (link.is_between(rank, peer)) link.is_open[link.ends[1] == rank] = false;
    member(rank).agreements.note_ended(peer);
  }

  void pump(int rank) {
    SimulatedProcess& self = member(rank);
    if (!self.is_alive || self.is_stopped || self.agreements.begun() == 0) return;
    self.agreements.advance(now_ns_);
    dial_wanted(rank);
    if (self.agreements.decision()) check_decision(rank);
    send_messages(rank);
    if (self.is_alive && self.agreements.check_end(now_ns_)) end(rank);
    ++self.wakes;
    if (!self.is_alive || self.agreements.is_over()) return;
    const int64_t wake_ns = self.agreements.wake_at_ns();
    expect(wake_ns > now_ns_, fmt::format("rank {} wants to be woken at once, again", rank));
    after(wake_ns - now_ns_, [this, rank, wake = self.wakes] {
      if (member(rank).wakes == wake) post(rank, [] {});
    });
  }

  void send_messages(int rank) {
    for (const auto& [peer, message] : member(rank).agreements.take_messages())
      send(rank, peer, message);
  }

  void end(int rank) {
    SimulatedProcess& self = member(rank);
    const uint32_t instance = self.agreements.begun();
    if (self.agreements.decision()) {
      self.decided_ns[instance] = now_ns_;
      return go_on(rank);
    }
    if (now_ns_ < self.agreements.deadline_ns()) check_hopeless(rank);
    self.given_up_ns[instance] = now_ns_;
    send_messages(rank);
  }

  /// With the next agreement, if this member is among those who go on.
  void go_on(int rank) {
    SimulatedProcess& self = member(rank);
    const std::vector<int> members = self.agreements.decision()->members;
    if (self.agreements.begun() < draw_.instances && std::ranges::binary_search(members, rank)) {
      const int64_t pause_ns = draw_.time(50 * kMillisecond_ns);
      after(pause_ns, [=, this] { post(rank, [=, this] { begin(rank, members); }); });
    } else if (draw_.ends_when_done) {
      after(1 + draw_.time(50 * kMillisecond_ns), [this, rank] { die(rank); });
    }
  }

  // ---- Checks ----

  /// Of whoever has decided, as often as it does anything.
  void check_decision(int rank) {
    const uint32_t instance = member(rank).agreements.begun();
    const Decision& decision = *member(rank).agreements.decision();
    const auto [first, is_first] = decided_.emplace(instance, decision);
    expect(first->second == decision,
           fmt::format("rank {} has decided {} otherwise than others before", rank, instance));
    if (is_first) check_first_decision(rank, instance, decision);
  }

  void check_first_decision(int rank, uint32_t instance, const Decision& decision) {
    std::vector<int> voted = decision.members;
    for (const int peer : decision.ended)
      if (departs(peer, instance)) voted.push_back(peer);
    expect(is_quorum(voted, instance, /*whoever=*/true), "too few");
    expect(std::ranges::is_sorted(decision.members) && std::ranges::is_sorted(decision.ended),
           "not sorted");
    uint64_t bits = ~uint64_t{0};
    std::set<uint8_t> calls;
    for (const int peer : decision.members) {
      const auto brought = member(peer).brought.find(instance);
      if (brought == member(peer).brought.end() || departs(peer, instance) ||
          !std::ranges::binary_search(member(rank).agreements.members(), peer))
        return expect(false, fmt::format("rank {} is in, and did not take part", peer));
      bits &= brought->second.bits;
      calls.insert(brought->second.call);
      if (peer == decision.members[0]) expect(decision.text == brought->second.text, "text");
    }
    expect(decision.bits == bits, "bits");
    if (decision.members.empty()) calls.insert(kDepartCall);
    expect(decision.call == (calls.size() == 1 ? *calls.begin() : 0), "call");
    for (const int peer : decision.ended)
      expect(!std::ranges::binary_search(decision.members, peer) &&
                 (is_out(peer, instance) || departs(peer, instance)),
             fmt::format("rank {} has not ended", peer));
  }

  size_t learners_in(uint32_t instance) const { return instance == 1 ? draw_.learners : 0; }
  const std::vector<int>& members_in(uint32_t instance) {
    return instance == 1 ? all_ : decided_[instance - 1].members;
  }
  /// Those who vote are enough by the rules of all members, or of one.
  bool is_quorum(const std::vector<int>& ranks, uint32_t instance, bool whoever = false) {
    const auto& members = members_in(instance);
    if (members.empty()) return false;  // it was never decided who they are
    const size_t voters = members.size() - learners_in(instance);
    const int last = members[voters - 1];
    const auto count = std::ranges::count_if(ranks, [last](int rank) { return rank <= last; });
    const int twice = 2 * static_cast<int>(count);
    const bool is_half =
        twice == static_cast<int>(voters) && std::ranges::count(ranks, members[0]) > 0;
    const auto is_enough = [&](int rank) {
      const Quorum& rule = draw_.quorums[static_cast<size_t>(rank)];
      return (twice > static_cast<int>(voters) || (is_half && rule.tie_breaker)) &&
             count >= rule.least;
    };
    return whoever ? std::ranges::any_of(members, is_enough)
                   : std::ranges::all_of(members, is_enough);
  }

  bool departs(int rank, uint32_t in) { return member(rank).brought[in].call == kDepartCall; }
  bool is_out(int rank, uint32_t instance) {
    return !member(rank).is_alive || member(rank).given_up_ns.contains(instance);
  }

  /// Who gives up before its deadline has a reason.
  void check_hopeless(int rank) {
    const uint32_t instance = member(rank).agreements.begun();
    std::vector<int> left;
    for (const int peer : members_in(instance))
      if (!is_out(peer, instance)) left.push_back(peer);
    expect(!is_quorum(left, instance),
           fmt::format("rank {} has given up though enough are there", rank));
  }

  void check_all_ended() {
    for (int rank = 0; rank < draw_.ranks; ++rank)
      expect(!member(rank).is_alive || member(rank).agreements.is_over(),
             fmt::format("rank {} waits for ever in {}", rank, member(rank).agreements.begun()));
  }

  /// A quorum who can reach each other decide soon after the last fault, the last of their
  /// begins, and the last of those who had given up before that was over.
  void check_termination(uint32_t instance) {
    const std::vector<int>& before = members_in(instance);
    // Patience, and silence of all before the one that leads in the end.
    const int64_t most_ns = draw_.slow_percent > 0
                                ? 12 * draw_.patience_ns
                                : draw_.patience_ns + draw_.patience_ns / 4 * (draw_.ranks + 4);
    for (const int part : std::set<int>(parts_.begin(), parts_.end())) {
      int64_t from_ns = quiet_ns_;
      std::multimap<int64_t, int> there;  // by when they gave up
      for (const int rank : before) {
        SimulatedProcess& peer = member(rank);
        if (parts_[static_cast<size_t>(rank)] != part || !peer.is_alive ||
            !peer.begun_ns.contains(instance))
          continue;
        from_ns = std::max(from_ns, peer.begun_ns[instance]);
        const auto given_up = peer.given_up_ns.find(instance);
        there.emplace(given_up == peer.given_up_ns.end() ? INT64_MAX : given_up->second, rank);
      }
      while (!there.empty() && there.begin()->first < from_ns + most_ns) {
        from_ns = std::max(from_ns, there.begin()->first);
        there.erase(there.begin());
      }
      std::vector<int> all_there;
      for (const auto& [_, rank] : there) all_there.push_back(rank);
      if (!is_quorum(all_there, instance)) continue;
      for (const int rank : all_there)
        expect(member(rank).decided_ns.contains(instance) &&
                   member(rank).decided_ns[instance] <= from_ns + most_ns,
               fmt::format("rank {} has not decided {} in time", rank, instance));
    }
  }

  Scenario draw_;
  std::vector<SimulatedProcess> members_;
  std::vector<int> parts_;  // by rank: of the network
  std::vector<int> all_;    // ranks
  std::deque<SimulatedLink> links_;
  std::priority_queue<Event> events_;
  uint64_t events_made_ = 0;
  int64_t now_ns_ = 0;
  int64_t quiet_ns_ = 0;
  std::map<uint32_t, Decision> decided_;  // by instance: the first
  std::string wrong_;
};

/// As of the other simulations (tests/simulation/random_cases.h).
std::pair<uint64_t, uint64_t> seeds_to_run(uint64_t last) {
  const char* text = std::getenv("ROPEWALK_SEEDS");
  if (text == nullptr) return {1, last};
  char* rest = nullptr;
  const uint64_t first = std::strtoull(text, &rest, 10);
  return {first, *rest == ':' ? std::strtoull(rest + 1, nullptr, 10) : first};
}

TEST(AgreementSimulation, AllDecideTheSameWhateverFails) {
  const auto [first, last] = seeds_to_run(kIsSanitized ? 500 : 10'000);
  for (uint64_t seed = first; seed <= last; ++seed)
    ASSERT_EQ(AgreementSimulation(seed).run(), "") << "replay with ROPEWALK_SEEDS=" << seed;
}

}  // namespace
}  // namespace ropewalk::bootstrap
