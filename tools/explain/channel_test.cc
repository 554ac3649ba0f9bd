// What `ropewalk explain` says of messages, against what the engine prepares.
#include "tools/explain/channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "engine/executors.h"
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

void expect_protocol(const ProgramStep& step, const StepState& state, MessageProtocol protocol,
                     const std::string& what) {
  EXPECT_EQ(protocol == MessageProtocol::eager, state.eager) << what;
  if (state.eager) return;
  const bool exposed =
      protocol == MessageProtocol::read_in_place || protocol == MessageProtocol::read_from_copy;
  EXPECT_EQ(exposed, state.exposed) << what;
  if (step.action == Action::send && exposed) {
    EXPECT_EQ(protocol == MessageProtocol::read_in_place, state.remote.known) << what;
  }
  if (step.action == Action::receive_copy) {
    EXPECT_EQ(protocol == MessageProtocol::stored, state.remote.known) << what;
  }
}

void expect_traffic(const OwnerProgram& program, const Case& c) {
  EXPECT_TRUE(c.mapped) << c.text();
  size_t windows = 0, plain = 0, parts = 0;
  for (const OwnerPeer& owner : program.peers) {
    if (owner.in != nullptr) plain += owner.in_at.known ? 0 : 1;
    if (owner.out != nullptr) plain += owner.out_at.known ? 0 : 1;
    parts += (owner.in != nullptr) + (owner.out != nullptr);
  }
  for (const OwnedBlock& block : program.owned)
    parts += block.sources.size() + block.targets.size();
  for (const Traffic& traffic : traffic_of(
           program,
           {[](int) { return true; }, [&c](const std::byte*, size_t) { return c.registered; }})) {
    if (traffic.protocol == MessageProtocol::through_window) windows += traffic.messages;
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
      const Staging* scratch = op->memory.scratch.get();
      const bool in_scratch =
          scratch != nullptr && at >= scratch->data() && at < scratch->data() + scratch->bytes();
      return c.registered || in_scratch;
    };
    if (const auto* owner = dynamic_cast<const OwnerExecutor*>(op->executor.get())) {
      expect_traffic(owner->program(), c);
      continue;
    }
    const auto* pipelined = dynamic_cast<const PipelinedExecutor*>(op->executor.get());
    const auto* sequential = dynamic_cast<const SequentialExecutor*>(op->executor.get());
    const Program& program = pipelined != nullptr ? pipelined->program() : sequential->program();
    StepState whole;
    whole.eager = true;
    const std::vector<MessageProtocol> protocols =
        protocols_of(program, {[&c](int) { return c.mapped; }, is_registered});
    for (size_t i = 0; i < protocols.size(); ++i)
      if (program.steps[i].peer >= 0)
        expect_protocol(program.steps[i], pipelined != nullptr ? pipelined->steps()[i] : whole,
                        protocols[i],
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
  for (int protocol = 0; protocol <= static_cast<int>(MessageProtocol::staged); ++protocol) {
    EXPECT_FALSE(name_of(static_cast<MessageProtocol>(protocol)).empty());
    EXPECT_FALSE(describe(static_cast<MessageProtocol>(protocol), true).empty());
  }
}

}  // namespace
}  // namespace ropewalk::tools
