// Ranks that are late, stopped, dead, cut off or gone, under seeded delays: who waits fails at its
// deadline or before, and all that fail name the ranks at fault, no others. ROPEWALK_SEEDS as for
// the other simulations.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include "engine/driver.h"
#include "tests/simulation/random_cases.h"
#include "tests/simulation/simulated_job.h"

namespace ropewalk::testing {
namespace {

constexpr int64_t kLimit_ns = 2000 * kMillisecond_ns;

enum class AtEnd { stay, leave };

/// Makes the first calls, in order, and waits for each as Driver::wait does, for kLimit_ns at most.
class WaitingRank {
 public:
  WaitingRank(SimulatedJob& job, int rank, const std::vector<Case>& cases, size_t calls,
              AtEnd at_end)
      : job_(job),
        rank_(rank),
        engine_(job.engine(rank)),
        clock_(job.clock()),
        calls_(calls),
        leaves_(at_end == AtEnd::leave) {
    for (const Case& c : cases) {
      buffers_.push_back(std::make_unique<RankBuffers>(c, rank, [this](size_t bytes) {
        memory_.emplace_back(bytes + 1);
        return memory_.back().data();
      }));
      buffers_.back()->fill();
      const std::vector<int> hosts(static_cast<size_t>(c.ranks), 0);
      const ScheduleKey key{c.collective, c.algorithm, c.ranks, c.root, hosts};
      groups_.push_back(std::make_unique<Group>());
      groups_.back()->add(engine_.prepare(buffers_.back()->call(), build_schedule(key, rank),
                                          c.algorithm, kSliceBytes));
    }
  }

  /// What it sends in its last call.
  void hold_back_last_call(int64_t late_ns) { late_ns_ = late_ns; }
  bool done() const { return finished_ == calls_ && !leaves_; }
  const std::string& wrong() const { return wrong_; }

  void step() {
    if (finished_ == calls_) {
      leaves_ = false;
      return job_.leave(rank_);
    }
    Group& group = *groups_[finished_];
    FailureDetector& failures = engine_.failures();
    const int64_t now_ns = clock_.now_ns();
    if (begun_ns_ == 0) {
      begun_ns_ = std::max<int64_t>(1, now_ns);
      if (late_ns_ > 0 && finished_ + 1 == calls_) job_.hold_back(rank_, now_ns + late_ns_);
      group.start(engine_);
      failures.count_awaiters(group, 1);
    }
    if (group.is_finished()) {
      failures.count_awaiters(group, -1);
      wrong_ += buffers_[finished_++]->check();
      begun_ns_ = over_since_ns_ = 0;
      return;
    }
    const int64_t left_ns = begun_ns_ + kLimit_ns - now_ns;
    const int64_t question_ns = question_time_ns(kLimit_ns);
    if (left_ns < question_ns) failures.ask_who_waits(now_ns);
    if (left_ns >= 0) return;
    if (over_since_ns_ == 0) over_since_ns_ = now_ns;
    const bool may_hear_more =
        now_ns - over_since_ns_ < question_ns && !failures.all_have_answered(now_ns, kLimit_ns);
    if (!may_hear_more) failures.fail_timeout(*group.unfinished_part(), kLimit_ns);
  }

 private:
  SimulatedJob& job_;
  const int rank_;
  Engine& engine_;
  const Clock& clock_;
  const size_t calls_;
  bool leaves_;  // once it has made them
  int64_t late_ns_ = 0;
  std::deque<std::vector<std::byte>> memory_;
  std::vector<std::unique_ptr<RankBuffers>> buffers_;
  std::vector<std::unique_ptr<Group>> groups_;
  size_t finished_ = 0;
  int64_t begun_ns_ = 0, over_since_ns_ = 0;  // of the call at hand
  std::string wrong_;
};

/// What a seed makes of a job: some calls, of which the last is for all of all.
class Scenario {
 public:
  Scenario(uint64_t seed, int ranks_min)
      : random_(seed),
        seed_(seed),
        ranks_(ranks_min + below(9 - ranks_min)),
        options_(random_options(random_, ranks_, false)) {
    const int calls = 1 + below(4);
    for (int i = 0; i < calls; ++i) cases_.push_back(random_case(random_, ranks_));
    Case last;
    last.algorithm = Algorithm::direct;
    last.ranks = ranks_;
    last.count = 20;
    cases_.push_back(last);
  }

  int below(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }
  int ranks() const { return ranks_; }
  FakeOptions& options() { return options_; }
  /// `root` makes this call at once, and what it sends in it arrives later. It comes after the call
  /// of all, which links them, or instead of it.
  void end_with_late_broadcast(int root, int64_t late_ns, bool links_first) {
    if (links_first) cases_.push_back(cases_.back());
    Case& last = cases_.back();
    last.collective = Collective::broadcast;
    last.root = root;
    late_ns_ = late_ns;
  }
  /// Some of the ranks, not all.
  std::set<int> choose_part() { return choose(1 + below(ranks_ - 1)); }
  /// So many of the ranks.
  std::set<int> choose(int count) {
    std::vector<int> all(static_cast<size_t>(ranks_));
    std::iota(all.begin(), all.end(), 0);
    std::ranges::shuffle(all, random_);
    return {all.begin(), all.begin() + count};
  }
  std::set<int> all_but(const std::set<int>& part) const {
    std::set<int> others;
    for (int rank = 0; rank < ranks_; ++rank)
      if (!part.contains(rank)) others.insert(rank);
    return others;
  }
  /// A moment of the job, which takes 20 us to 20 ms.
  int64_t moment_ns() { return kMillisecond_ns + below(20'000'000 >> below(11)); }

  SimulatedJob& job() {
    if (!job_) job_ = std::make_unique<SimulatedJob>(ranks_, seed_, options_);
    return *job_;
  }
  /// Runs it, without the calls of `late` from one on. Empty where it ends, with right results.
  std::string run(const std::set<int>& late = {}, AtEnd at_end = AtEnd::stay) {
    const auto late_from = static_cast<size_t>(below(static_cast<int>(cases_.size())));
    for (int rank = 0; rank < ranks_; ++rank)
      programs_.push_back(std::make_unique<WaitingRank>(
          job(), rank, cases_, late.contains(rank) ? late_from : cases_.size(), at_end));
    const auto of = [&](int rank) -> WaitingRank& { return *programs_[static_cast<size_t>(rank)]; };
    if (late_ns_ > 0) of(cases_.back().root).hold_back_last_call(late_ns_);
    std::string wrong =
        job().run([&](int rank) { return of(rank).done(); }, [&](int rank) { of(rank).step(); });
    for (const auto& program : programs_) wrong += program->wrong();
    return wrong;
  }

  /// Of a rank: it has ended its calls, or names ranks that `may_name` allows.
  std::string judge(int rank, bool must_fail, const std::function<bool(const std::set<int>&)>& ok) {
    const Failure* failure = job().engine(rank).failures().failure();
    const std::string who = " rank " + std::to_string(rank) + ": ";
    if (failure == nullptr) return must_fail ? who + "no error" : "";
    std::set<int> named(failure->peers.begin(), failure->peers.end());
    if (named.empty() && failure->peer >= 0) named.insert(failure->peer);
    return !named.empty() && ok(named) ? "" : who + failure->text();
  }
  std::string cases_text() const {
    std::string text;
    for (const Case& c : cases_) text += "\n  " + c.text();
    return text;
  }

 private:
  std::mt19937_64 random_;
  const uint64_t seed_;
  const int ranks_;
  FakeOptions options_;
  std::vector<Case> cases_;
  int64_t late_ns_ = 0;
  std::unique_ptr<SimulatedJob> job_;
  std::vector<std::unique_ptr<WaitingRank>> programs_;
};

/// Looks at `run(seed)`, which tells what is wrong, for each seed.
void for_each_seed(std::string (*run)(uint64_t seed)) {
  const auto [first, last] = seeds(300);
  for (uint64_t seed = first; seed <= last; ++seed)
    ASSERT_EQ(run(seed), "") << "replay with ROPEWALK_SEEDS=" << seed;
}

std::string judge_all(Scenario& it, std::string wrong, const std::set<int>& culprits,
                      bool must_fail) {
  for (int rank = 0; rank < it.ranks(); ++rank)
    if (!culprits.contains(rank))
      wrong += it.judge(rank, must_fail, [&](const auto& named) { return named == culprits; });
  return wrong.empty() ? wrong : wrong + it.cases_text();
}

/// What passes from the ranks in `part` to the others stands still; for less than a call may take.
void plan_outage(Scenario& it, const std::set<int>& part, int64_t begin_ns, int64_t end_ns) {
  for (const int from : part)
    for (int to = 0; to < it.ranks(); ++to)
      if (!part.contains(to)) it.options().outages.push_back({from, to, begin_ns, end_ns});
}

std::string nobody_failed(Scenario& it, std::string wrong) {
  for (int rank = 0; rank < it.ranks(); ++rank)
    wrong += it.judge(rank, false, [](const auto&) { return false; });
  return wrong.empty() ? wrong : wrong + it.cases_text();
}

TEST(CulpritsSimulation, LateRanksAreNamedByAll) {
  for_each_seed([](uint64_t seed) {
    Scenario it(seed, 3);
    const std::set<int> late = it.choose(1 + it.below(2));
    return judge_all(it, it.run(late), late, true);
  });
}

TEST(CulpritsSimulation, AStoppedRankIsNamedByAll) {
  for_each_seed([](uint64_t seed) {
    Scenario it(seed, 2);
    const std::set<int> stopped = it.choose(1);
    it.job().stop(*stopped.begin(), it.moment_ns(), SimulatedJob::kForGood_ns);
    return judge_all(it, it.run(), stopped, false);  // it may have done all that it had to do
  });
}

TEST(CulpritsSimulation, AStoppedRankThatComesBackHearsOfIt) {
  for_each_seed([](uint64_t seed) {
    Scenario it(seed, 2);
    const std::set<int> stopped = it.choose(1);
    it.job().stop(*stopped.begin(), it.moment_ns(), 2 * kLimit_ns);
    std::string wrong = it.run();
    wrong += it.judge(*stopped.begin(), false, [&](const auto& named) { return named == stopped; });
    return judge_all(it, wrong, stopped, false);
  });
}

TEST(CulpritsSimulation, APauseIsBorne) {
  for_each_seed([](uint64_t seed) {
    Scenario it(seed, 2);
    const std::set<int> paused = it.choose(1);
    const int64_t from_ns = it.moment_ns();
    it.job().stop(*paused.begin(), from_ns, from_ns + it.below(1'400) * kMillisecond_ns);
    return nobody_failed(it, it.run());
  });
}

TEST(CulpritsSimulation, TwoThatDieAreTheOnlyOnesNamed) {
  for_each_seed([](uint64_t seed) {
    Scenario it(seed, 3);
    const std::set<int> dead = it.choose(2);
    for (const int rank : dead) it.options().losses.push_back({rank, it.moment_ns()});
    std::string wrong = it.run();
    for (int rank = 0; rank < it.ranks(); ++rank)
      if (!dead.contains(rank))
        wrong += it.judge(rank, false,
                          [&](const auto& named) { return std::ranges::includes(dead, named); });
    return wrong;
  });
}

std::string fall_apart(uint64_t seed) {
  Scenario it(seed, 2);
  const std::set<int> part = it.choose_part();
  const int64_t at_ns = it.moment_ns();
  for (const int inside : part)
    for (int rank = 0; rank < it.ranks(); ++rank)
      if (!part.contains(rank)) it.options().cuts.push_back({inside, rank, at_ns});
  it.job().cut_control(part);
  std::string wrong = it.run();
  for (int rank = 0; rank < it.ranks(); ++rank)
    wrong += it.judge(rank, false, [&](const auto& named) {
      return std::ranges::all_of(
          named, [&](int other) { return part.contains(other) != part.contains(rank); });
    });
  return wrong.empty() ? wrong : wrong + it.cases_text();
}

TEST(CulpritsSimulation, EachPartOfANetworkNamesRanksOfTheOther) {
  for_each_seed(fall_apart);
}

// A rank that could not send its grant, as nobody took it, waited for no one.
TEST(CulpritsSimulation, WhoDoesNotTakeAGrantIsNamed) {
  EXPECT_EQ(fall_apart(1328), "");
}

TEST(CulpritsSimulation, AnOutageIsBorne) {
  for_each_seed([](uint64_t seed) {
    Scenario it(seed, 2);
    const std::set<int> part = it.choose_part(), others = it.all_but(part);
    const int64_t begin_ns = it.moment_ns();
    const int64_t end_ns = begin_ns + it.below(1'400) * kMillisecond_ns;
    plan_outage(it, part, begin_ns, end_ns);
    plan_outage(it, others, begin_ns, end_ns);
    it.job().cut_control(part, begin_ns, end_ns);
    return nobody_failed(it, it.run());
  });
}

TEST(CulpritsSimulation, APathCutOneWayIsNamedByAnEndOfIt) {
  for_each_seed([](uint64_t seed) {
    Scenario it(seed, 2);
    const std::set<int> ends = it.choose(2);
    const auto [first, second] = std::pair{*ends.begin(), *ends.rbegin()};
    const bool forth = it.below(2) == 0;
    it.options().cuts.push_back(
        {forth ? first : second, forth ? second : first, it.moment_ns(), true});
    std::string wrong = it.run();
    for (int rank = 0; rank < it.ranks(); ++rank)
      wrong += it.judge(rank, false,
                        [&](const auto& named) { return std::ranges::includes(ends, named); });
    return wrong.empty() ? wrong : wrong + it.cases_text();
  });
}

// Control takes another network: that a rank has left is known long before what it sent is here.
TEST(CulpritsSimulation, WhoLeavesAfterAllCallsIsNoCulpritWhileItsDataIsOnTheWay) {
  for_each_seed([](uint64_t seed) {
    Scenario it(seed, 2);
    const int root = it.below(it.ranks());
    it.options().silence_max_ns = 3'000 * kMillisecond_ns;
    it.end_with_late_broadcast(root, (1'300 + it.below(600)) * kMillisecond_ns, it.below(2) == 0);
    return nobody_failed(it, it.run({}, AtEnd::leave));
  });
}

TEST(CulpritsSimulation, WhoLeavesEarlyIsNamedByAll) {
  for_each_seed([](uint64_t seed) {
    Scenario it(seed, 3);
    const std::set<int> leaver = it.choose(1);
    return judge_all(it, it.run(leaver, AtEnd::leave), leaver, true);
  });
}

}  // namespace
}  // namespace ropewalk::testing
