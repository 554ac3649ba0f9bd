// What `ropewalk explain` says of messages, against what the engine prepares.
#include "channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "tests/simulation/simulated_job.h"

namespace ropewalk::tools {
namespace {

using testing::SimulatedJob;

struct Case {
  Collective collective;
  Algorithm algorithm;
  int ranks;
  size_t count;
  bool mapped, registered;
  std::string text() const {
    return std::string(name_of(collective)) + " " + std::string(name_of(algorithm)) + " ranks " +
           std::to_string(ranks) + " count " + std::to_string(count) +
           (mapped ? " mapped" : " not mapped") + (registered ? " registered" : " plain");
  }
};

// One rank's buffer, as large as any collective needs.
struct RankMemory {
  RankMemory(SimulatedJob& job, int rank, const Case& c) {
    const size_t bytes = c.count * static_cast<size_t>(c.ranks) * sizeof(float);
    if (!c.registered) {
      plain.resize(2 * bytes);
      in = plain.data();
    } else {
      memory = std::make_shared<RegisteredMemory>(2 * bytes);
      memory->register_with(job.transport(rank));
      job.memories(rank).add(memory);
      in = memory->data();
    }
    out = in + bytes;
  }
  std::vector<std::byte> plain;
  std::shared_ptr<RegisteredMemory> memory;
  std::byte *in, *out;
};

void expect_way(const ProgramStep& step, const StepState& state, Way way, const std::string& what) {
  EXPECT_EQ(way == Way::eager, state.eager) << what;
  if (state.eager) return;
  const bool exposed = way == Way::read_in_place || way == Way::read_from_copy;
  EXPECT_EQ(exposed, state.exposed) << what;
  if (step.action == Action::send && exposed) {
    EXPECT_EQ(way == Way::read_in_place, state.reachable.known) << what;
  }
  if (step.action == Action::receive_copy) {
    EXPECT_EQ(way == Way::stored, state.reachable.known) << what;
  }
}

void expect_traffic(const Passes& passes, const Case& c) {
  EXPECT_TRUE(c.mapped) << c.text();
  size_t windows = 0, plain = 0, parts = 0;
  for (const PassPeer& host : passes.peers) {
    if (host.in != nullptr) plain += host.in_at.known ? 0 : 1;
    if (host.out != nullptr) plain += host.out_at.known ? 0 : 1;
    parts += (host.in != nullptr) + (host.out != nullptr);
  }
  for (const OwnedBlock& block : passes.owned) parts += block.sources.size() + block.targets.size();
  for (const Traffic& traffic : traffic_of(
           passes,
           {[](int) { return true; }, [&c](const std::byte*, size_t) { return c.registered; }})) {
    if (traffic.way == Way::through_window) windows += traffic.messages;
    parts -= traffic.messages;
  }
  EXPECT_EQ(windows, plain) << c.text();
  EXPECT_EQ(parts, 0u) << c.text();
}

void expect_as_prepared(const Case& c) {
  FakeOptions options;
  options.load_store = options.needs_registration = c.mapped;
  SimulatedJob job(c.ranks, 1, options);
  std::deque<RankMemory> memories;
  for (int rank = 0; rank < c.ranks; ++rank) {
    const RankMemory& memory = memories.emplace_back(job, rank, c);
    Call call;
    call.collective = c.collective;
    call.in = memory.in;
    call.out = memory.out;
    call.count = c.count;
    const ScheduleKey key{c.collective, c.algorithm, c.ranks, 0,
                          std::vector<int>(static_cast<size_t>(c.ranks), 0)};
    const auto op = job.engine(rank).prepare(call, build_schedule(key, rank), c.algorithm, 8192);
    const auto is_registered = [&](const std::byte* at, size_t) {
      const bool in_scratch = op->scratch && at >= op->scratch->data() &&
                              at < op->scratch->data() + op->scratch->bytes();
      return c.registered || in_scratch;
    };
    if (op->runner == Runner::passes) {
      expect_traffic(op->passes, c);
      continue;
    }
    const std::vector<Way> ways =
        ways_of(op->program, {[&c](int) { return c.mapped; }, is_registered});
    for (size_t i = 0; i < ways.size(); ++i)
      if (op->program.steps[i].peer >= 0)
        expect_way(op->program.steps[i], op->steps[i], ways[i],
                   c.text() + " rank " + std::to_string(rank) + " step " + std::to_string(i));
  }
}

TEST(Channel, SaysWhatTheEnginePrepares) {
  for (int k = 0; k < kCollectives; ++k) {
    const auto collective = static_cast<Collective>(k);
    if (collective == Collective::send || collective == Collective::recv) continue;
    for (const Algorithm algorithm : algorithms_for(collective))
      for (const int ranks : {2, 3, 6})
        for (const size_t count : {size_t{100}, size_t{20011}})
          for (const bool mapped : {false, true})
            for (const bool registered : {false, true}) {
              if (collective == Collective::barrier && count > 100) continue;  // carries one byte
              expect_as_prepared({collective, algorithm, ranks, count, mapped, registered});
            }
  }
}

TEST(Channel, EveryWayHasANameAndASentence) {
  for (int way = 0; way <= static_cast<int>(Way::staged); ++way) {
    EXPECT_FALSE(name_of(static_cast<Way>(way)).empty());
    EXPECT_FALSE(describe(static_cast<Way>(way), true).empty());
  }
}

}  // namespace
}  // namespace ropewalk::tools
