// From messages along trees to steps, and their proof.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <climits>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "ropewalk/status.h"
#include "synthesize/synthesize.h"

namespace ropewalk {
namespace {

constexpr int64_t kChunkMessagesMax = 200'000;  // of all ranks, where there are several chunks
constexpr int64_t kUsualChunksMax = 8, kManyChunksMessagesMax = 50'000;

/// Steps of all ranks in the order of the messages, in which none waits for one after it: so they
/// run with any number of credits, and in list order.
///
/// Where data goes both ways the forest is repeated in chunks, for parts of the vector. A stream
/// passes one block after the other, and all blocks of a chunk end together: where two are of one
/// stream, the second is late by no more than a chunk. Within a chunk the first trees of all roots
/// come first, then their second ones: a sum is complete when the last rank has come to it. Those
/// who have several to tell of all begin with another one. What a chunk hands out stands before
/// what the next one adds up, so that `steps_ahead_max` keeps a rank some chunks ahead at most:
/// streams share a port equally, though some have more to carry, and those that have run ahead
/// would leave it to the others in the end.
class ScheduleWriter {
 public:
  ScheduleWriter(const Forest& forest, int chunks)
      : inwards_(forest.spread.messages), chunks_(chunks), in_a_row_(forest.spread.blocks) {
    const int ranks = forest.key.ranks;
    const TreeUse use = tree_use(forest.key.collective);
    // Blocks of a rank follow each other, where ranks have parts.
    if (traits_of(forest.key.collective).has_parts()) in_a_row_ /= ranks;
    for (int rank = 0; rank < ranks; ++rank)
      schedules_.push_back({ranks, rank, forest.spread.blocks * chunks_, 0, {}, {}});
    if (!use.inwards || !use.outwards)
      for (TreeMessage& message : inwards_) message.round = 0;
    if (use.outwards) outwards_ = inwards_;
    if (!use.inwards) inwards_.clear();
    std::ranges::stable_sort(inwards_, {}, [](const TreeMessage& message) {
      return std::tuple(message.round, -message.depth, message.turn);
    });
    std::ranges::stable_sort(outwards_, {}, [](const TreeMessage& message) {
      return std::tuple(message.round, message.depth, message.turn);
    });
  }

  /// `chunks_ahead`: so far before others may a rank be.
  std::vector<Schedule> run(int chunks_ahead) {
    // What comes back does not wait behind what is still to be added up.
    const uint8_t lane = inwards_.empty() ? 0 : 1;
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      for (const TreeMessage& message : inwards_)
        add(block_of(message, chunk), message.to, message.from, StepOp::send_reduce,
            StepOp::recv_reduce, 0);
      for (const TreeMessage& message : outwards_)
        add(block_of(message, chunk), message.from, message.to, StepOp::send_copy,
            StepOp::recv_copy, lane);
    }
    if (chunks_ > chunks_ahead)
      for (Schedule& schedule : schedules_)
        schedule.steps_ahead_max = static_cast<int>(schedule.steps.size()) / chunks_ * chunks_ahead;
    return std::move(schedules_);
  }

 private:
  int block_of(const TreeMessage& message, int chunk) const {
    const int row = message.block / in_a_row_, place = message.block % in_a_row_;
    return (row * chunks_ + chunk) * in_a_row_ + place;
  }
  void add(int block, int from, int to, StepOp send, StepOp receive, uint8_t lane) {
    schedules_[static_cast<size_t>(from)].steps.push_back({send, lane, to, block, -1});
    schedules_[static_cast<size_t>(to)].steps.push_back({receive, lane, from, block, -1});
  }

  std::vector<TreeMessage> inwards_, outwards_;
  const int chunks_;
  int in_a_row_;  // blocks
  std::vector<Schedule> schedules_;
};

/// The most that a rank sends, of the vector. Streams make trees wait for each other, so that there
/// is no promise of rounds.
Promise promise_of(const std::vector<Schedule>& schedules, int blocks) {
  int64_t most = 0;
  for (const Schedule& schedule : schedules)
    most = std::max<int64_t>(most, std::ranges::count_if(schedule.steps, [](const Step& step) {
                               return is_send(step.op);
                             }));
  return {.bound = {.sent = static_cast<double>(most) / blocks, .rounds = INT_MAX},
          .list_order_credits = 1};
}

void prove(Synthesized& made) {
  const MonotonicClock clock;
  const int64_t begin_ns = clock.now_ns();
  // As the pipelined executor runs them, and the sequential one, short messages.
  VerifyReport report = verify(made.key, made.schedules, 0, made.promise);
  if (report.ok()) report = verify(made.key, made.schedules, kInListOrder, made.promise);
  made.proof_s = 1e-9 * static_cast<double>(clock.now_ns() - begin_ns);
  if (!report.ok())
    throw Error(ErrorCode::unavailable, "synthesize",
                fmt::format("the schedules are wrong: {}", report.findings.front().text),
                "report this, with the description of the network");
}

}  // namespace

int chunks_max(const Forest& forest) {
  if (forest.key.collective != Collective::all_reduce) return 1;
  const int64_t messages = std::max<int64_t>(std::ssize(forest.spread.messages), 1);
  const int64_t usual = std::clamp<int64_t>(kChunkMessagesMax / messages, 1, kUsualChunksMax);
  return static_cast<int>(
      std::clamp<int64_t>(kManyChunksMessagesMax / messages, usual, kChunksMax));
}

Synthesized write_schedules(const Forest& forest, int chunks, int chunks_ahead) {
  assert(chunks >= 1 && chunks <= chunks_max(forest) && chunks_ahead >= 1);
  Synthesized made;
  made.least_s_per_byte = forest.least_s_per_byte;
  made.depth = forest.spread.depth;
  made.busy_s_per_byte = forest.spread.s_per_byte;
  made.busiest = forest.spread.busiest;
  made.key = forest.key;
  made.schedules = ScheduleWriter(forest, chunks).run(chunks_ahead);
  made.trees = made.schedules[0].blocks;
  for (const Schedule& schedule : made.schedules)
    made.steps = std::max(made.steps, static_cast<int>(schedule.steps.size()));
  made.promise = promise_of(made.schedules, made.trees);
  prove(made);
  const uint64_t digest = digest_of(made.schedules);
  for (Schedule& schedule : made.schedules) schedule.digest = digest;
  return made;
}

Synthesized synthesize(Routes& routes, Collective collective, int root) {
  const Forest forest = make_forest(routes, collective, root);
  return write_schedules(forest, chunks_max(forest), kChunksAhead);
}

}  // namespace ropewalk
