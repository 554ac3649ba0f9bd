// The real engine under seeded delays, reorderings, full queues and lost ranks: no hang, no wrong
// byte. ROPEWALK_SEEDS=first:last chooses the seeds; a failing seed is printed and replays.
#include <gtest/gtest.h>

#include <deque>

#include "engine/executors.h"
#include "engine/layout.h"
#include "tests/simulation/random_cases.h"
#include "tests/simulation/simulated_job.h"
#include "tests/support/cases.h"

namespace ropewalk::testing {
namespace {

/// What one rank runs: every case in order, up to `kDepth` of them under way at a time.
class RankProgram {
 public:
  static constexpr size_t kDepth = 3;

  RankProgram(SimulatedJob& job, int rank, const std::vector<Case>& cases)
      : job_(job), rank_(rank) {
    for (const Case& c : cases) {
      buffers_.push_back(
          std::make_unique<RankBuffers>(c, rank, [this](size_t bytes) { return allocate(bytes); }));
      buffers_.back()->fill();
      const std::vector<int> hosts(static_cast<size_t>(c.ranks), 0);
      const ScheduleKey key{c.collective, c.algorithm, c.ranks, c.root, hosts};
      operations_.push_back(job.engine(rank).prepare(
          buffers_.back()->call(), build_schedule(key, rank), c.algorithm, kSliceBytes));
    }
  }

  bool done() const { return finished_ == operations_.size(); }

  void step() {
    while (finished_ < started_ && operations_[finished_]->state == Operation::State::done) {
      wrong_ += buffers_[finished_]->check();
      ++finished_;
    }
    if (started_ < operations_.size() && started_ - finished_ < kDepth)
      job_.engine(rank_).start(*operations_[started_++]);
  }

  const std::string& wrong() const { return wrong_; }
  size_t finished() const { return finished_; }

 private:
  std::byte* allocate(size_t bytes) {
    // Half of the memory is registered, half is plain.
    if (memories_.size() % 2 == 0) {
      memories_.push_back(std::make_shared<RegisteredMemory>(bytes));
      memories_.back()->register_with(job_.transport(rank_));
      job_.memories(rank_).add(memories_.back());
      return memories_.back()->data();
    }
    memories_.push_back(nullptr);
    plain_.emplace_back(bytes + 1);
    return plain_.back().data();
  }

  SimulatedJob& job_;
  const int rank_;
  std::vector<std::shared_ptr<RegisteredMemory>> memories_;
  std::deque<std::vector<std::byte>> plain_;
  std::vector<std::unique_ptr<RankBuffers>> buffers_;
  std::vector<std::shared_ptr<Operation>> operations_;
  size_t started_ = 0, finished_ = 0;
  std::string wrong_;
};

std::string run_seed(uint64_t seed, bool with_faults) {
  std::mt19937_64 random(seed);
  const int ranks = 2 + static_cast<int>(random() % 6);
  SimulatedJob job(ranks, seed, random_options(random, ranks, with_faults));
  std::vector<Case> cases;
  for (int i = 0; i < 6; ++i) cases.push_back(random_case(random, ranks));
  std::vector<std::unique_ptr<RankProgram>> programs;
  for (int rank = 0; rank < ranks; ++rank)
    programs.push_back(std::make_unique<RankProgram>(job, rank, cases));
  std::string wrong = job.run([&](int rank) { return programs[static_cast<size_t>(rank)]->done(); },
                              [&](int rank) { programs[static_cast<size_t>(rank)]->step(); });
  for (int rank = 0; rank < ranks; ++rank) {
    wrong += programs[static_cast<size_t>(rank)]->wrong();
    const Failure* failure = job.engine(rank).failures().failure();
    if (!with_faults && failure != nullptr) wrong += failure->text();
    if (with_faults && failure != nullptr && failure->code != ErrorCode::peer_lost)
      wrong += failure->text();
  }
  if (wrong.empty()) return wrong;
  for (const Case& c : cases) wrong += "\n  " + c.text();
  return wrong;
}

/// `c` as a rank may get it wrong.
Case altered(const Case& c, std::mt19937_64& random) {
  const auto differs = [&c](const Case& other) {
    return other.collective != c.collective || other.algorithm != c.algorithm ||
           other.type != c.type || other.op != c.op || other.root != c.root ||
           other.count != c.count;
  };
  Case other = c;
  while (!differs(other)) other = random_case(random, c.ranks);
  other.uneven &= other.collective != Collective::all_to_all;
  if (random() % 2 == 0) return other;
  // Nearly the same.
  Case near = c;
  const auto& algorithms = algorithms_for(c.collective);
  near.algorithm = algorithms[random() % algorithms.size()];
  if (near.algorithm == c.algorithm) near.count += 1 + random() % 100;
  return near;
}

/// One rank makes another call than the others, which then go on together.
std::string run_mismatch(uint64_t seed) {
  std::mt19937_64 random(seed);
  const int ranks = 2 + static_cast<int>(random() % 4);
  SimulatedJob job(ranks, seed, random_options(random, ranks, false));
  std::vector<Case> cases;
  for (int i = 0; i < 3; ++i) cases.push_back(random_case(random, ranks));
  for (Case& c : cases)  // whose counts may differ without anybody's harm
    c.uneven &= c.collective != Collective::all_to_all;
  Case last;
  last.algorithm = Algorithm::direct;
  last.ranks = ranks;
  last.count = 20;
  for (int i = 0; i < 8; ++i) cases.push_back(last);
  std::vector<Case> wrong_cases = cases;
  const size_t which = random() % 3;
  const int culprit = static_cast<int>(random() % static_cast<uint64_t>(ranks));
  wrong_cases[which] = altered(cases[which], random);
  std::vector<std::unique_ptr<RankProgram>> programs;
  for (int rank = 0; rank < ranks; ++rank)
    programs.push_back(
        std::make_unique<RankProgram>(job, rank, rank == culprit ? wrong_cases : cases));
  std::string wrong = job.run([&](int rank) { return programs[static_cast<size_t>(rank)]->done(); },
                              [&](int rank) { programs[static_cast<size_t>(rank)]->step(); });
  for (int rank = 0; rank < ranks; ++rank) {
    const Failure* failure = job.engine(rank).failures().failure();
    if (failure != nullptr && failure->code == ErrorCode::mismatch) continue;
    wrong += " rank " + std::to_string(rank) + ": ";
    wrong += failure == nullptr ? "no error" : failure->text();
  }
  if (wrong.empty()) return wrong;
  return wrong + "\n  " + cases[which].text() + "\n  rank " + std::to_string(culprit) + ": " +
         wrong_cases[which].text();
}

/// One case on all ranks of `job`; empty when it ends with the right answer.
std::string run_case(SimulatedJob& job, const Case& c) {
  std::vector<std::unique_ptr<RankProgram>> programs;
  for (int rank = 0; rank < job.ranks(); ++rank)
    programs.push_back(std::make_unique<RankProgram>(job, rank, std::vector<Case>{c}));
  std::string wrong = job.run([&](int rank) { return programs[static_cast<size_t>(rank)]->done(); },
                              [&](int rank) { programs[static_cast<size_t>(rank)]->step(); });
  for (const auto& program : programs) wrong += program->wrong();
  return wrong;
}

void run_all(bool with_faults) {
  const auto [first, last] = seeds();
  for (uint64_t seed = first; seed <= last; ++seed) {
    const std::string wrong = run_seed(seed, with_faults);
    ASSERT_EQ(wrong, "") << "replay with ROPEWALK_SEEDS=" << seed;
  }
}

TEST(Simulation, EveryCaseOnTheFakeNetwork) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (const char* kind : {"put", "load_store", "registered_sources"}) {
      FakeOptions options;
      options.load_store = options.needs_registration = kind == std::string("load_store");
      options.registered_sources = kind == std::string("registered_sources");
      SimulatedJob job(ranks, static_cast<uint64_t>(ranks), options);
      std::vector<Case> cases = cases_of_every_size(ranks);
      const std::vector<Case> kinds = cases_of_every_kind(ranks);
      // Every eighth kind, another eighth on every rank count.
      for (size_t i = static_cast<size_t>(ranks) % 8; i < kinds.size(); i += 8)
        cases.push_back(kinds[i]);
      for (const Case& c : cases) {
        const std::string wrong = run_case(job, c);
        ASSERT_EQ(wrong, "") << c.text();
      }
    }
}

/// Plain memory that nobody watches may be other memory in the next run.
TEST(Simulation, PlainMemoryThatIsNotCurrentIsRegisteredForEachRun) {
  for (const bool is_current : {false, true}) {
    constexpr size_t kCount = 30'000;
    FakeOptions options;
    options.registered_sources = true;
    options.plain_is_current = is_current;
    SimulatedJob job(2, 1, options);
    std::vector<std::vector<float>> in(2, std::vector<float>(kCount)), out = in;
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank < 2; ++rank) {
      const auto r = static_cast<size_t>(rank);
      Call call;
      call.in = in[r].data();
      call.out = out[r].data();
      call.count = kCount;
      const ScheduleKey key{Collective::all_reduce, Algorithm::ring, 2, 0, {}};
      operations.push_back(
          job.engine(rank).prepare(call, build_schedule(key, rank), Algorithm::ring, kSliceBytes));
    }
    for (int run = 1; run <= 3; ++run) {
      for (int rank = 0; rank < 2; ++rank) {
        const auto r = static_cast<size_t>(rank);
        std::fill(in[r].begin(), in[r].end(), static_cast<float>(run));
        job.engine(rank).start(*operations[r]);
        EXPECT_EQ(operations[r]->memory.plain.size(), 2u) << "input and output";
      }
      const auto is_done = [&](int rank) {
        return operations[static_cast<size_t>(rank)]->state == Operation::State::done;
      };
      ASSERT_EQ(job.run(is_done, [](int) {}), "");
      for (size_t r = 0; r < 2; ++r) {
        EXPECT_EQ(out[r], std::vector<float>(kCount, 2.0f * static_cast<float>(run)));
        EXPECT_EQ(operations[r]->memory.plain.size(), is_current ? 2u : 0u);
      }
    }
  }
}

/// Two ranks over a slow link: both directions carry data all the time, whoever grants
/// second. (A grant behind its sender's data cost the time of a half.)
TEST(Simulation, GrantsDoNotStandBehindData) {
  constexpr size_t kCount = 1 << 18;
  FakeOptions options;
  options.ns_per_byte = 40;  // 200 Mbit/s
  options.full_probability = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimulatedJob job(2, seed, options);
    std::vector<std::shared_ptr<RegisteredMemory>> memories;
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank < 2; ++rank) {
      memories.push_back(std::make_shared<RegisteredMemory>(kCount * sizeof(float)));
      memories.back()->register_with(job.transport(rank));
      job.memories(rank).add(memories.back());
      Call call;
      call.in = call.out = memories.back()->data();
      call.count = kCount;
      const ScheduleKey key{Collective::all_reduce, Algorithm::ring, 2, 0, {}};
      operations.push_back(
          job.engine(rank).prepare(call, build_schedule(key, rank), Algorithm::ring, kCount / 2));
    }
    const auto is_done = [&](int rank) {
      return operations[static_cast<size_t>(rank)]->state == Operation::State::done;
    };
    for (int rank = 0; rank < 2; ++rank)
      job.engine(rank).start(*operations[static_cast<size_t>(rank)]);
    ASSERT_EQ(job.run(is_done, [](int) {}), "");
    // Again, over links that stand. When rank 1 starts it knows of a grant of rank 0.
    const int64_t begin_ns = job.clock().now_ns();
    job.engine(0).start(*operations[0]);
    int turns = 0;
    const auto start_late = [&](int) {
      if (job.clock().now_ns() > begin_ns && ++turns == 5) job.engine(1).start(*operations[1]);
    };
    ASSERT_EQ(job.run([&](int rank) { return turns >= 5 && is_done(rank); }, start_late), "");
    // Virtual time: each direction carries the vector once.
    const double bound_ns = kCount * sizeof(float) * options.ns_per_byte;
    EXPECT_LT(static_cast<double>(job.clock().now_ns() - begin_ns), 1.15 * bound_ns) << seed;
  }
}

/// A contributor names memory that the owner cannot map.
TEST(Simulation, MemoryThatCannotBeMappedEndsInAnErrorThatNamesItsRank) {
  FakeOptions options;
  options.load_store = options.needs_registration = true;
  SimulatedJob job(3, 1, options);
  std::vector<std::shared_ptr<RegisteredMemory>> memories;
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < 3; ++rank) {
    memories.push_back(std::make_shared<RegisteredMemory>(40'000));
    // Rank 1's is registered where its peers do not look.
    memories.back()->register_with(job.transport(rank == 1 ? 2 : rank));
    job.memories(rank).add(memories.back());
    Call call;
    call.in = call.out = memories.back()->data();
    call.count = 10'000;
    const ScheduleKey key{Collective::all_reduce, Algorithm::direct, 3, 0, {}};
    operations.push_back(
        job.engine(rank).prepare(call, build_schedule(key, rank), Algorithm::direct, kSliceBytes));
    job.engine(rank).start(*operations.back());
  }
  ASSERT_NE(dynamic_cast<const OwnerExecutor*>(operations[0]->executor.get()), nullptr);
  const auto is_done = [&](int rank) {
    return operations[static_cast<size_t>(rank)]->state == Operation::State::done;
  };
  EXPECT_EQ(job.run(is_done, [](int) {}), "");
  for (int rank = 0; rank < 3; ++rank) {
    const Failure* failure = job.engine(rank).failures().failure();
    ASSERT_NE(failure, nullptr);
    EXPECT_EQ(failure->code, ErrorCode::unavailable) << failure->text();
    EXPECT_EQ(failure->peer, 1) << failure->text();
  }
}

TEST(Simulation, SlowAndFullNetworksGiveRightResults) {
  run_all(false);
}
TEST(Simulation, MismatchedCallsEndInErrorsThatSaySo) {
  const auto [first, last] = seeds();
  for (uint64_t seed = first; seed <= last; ++seed) {
    const std::string wrong = run_mismatch(seed);
    EXPECT_EQ(wrong, "") << "replay with ROPEWALK_SEEDS=" << seed;
  }
}
TEST(Simulation, LostRanksAndCutLinksEndInErrorsThatNameARank) {
  run_all(true);
}

}  // namespace
}  // namespace ropewalk::testing
