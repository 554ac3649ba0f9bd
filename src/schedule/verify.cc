#include "schedule/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "schedule/graph.h"

namespace ropewalk {
namespace {

constexpr double kRounding = 1e-9;

std::string_view name_of(StepOp op) {
  constexpr std::string_view kNames[] = {"send_copy", "send_reduce", "recv_copy", "recv_reduce",
                                         "reduce"};
  return kNames[static_cast<int>(op)];
}

std::string text_of(const Step& step) {
  if (step.op == StepOp::reduce) return fmt::format("reduce {} += {}", step.block, step.from);
  return fmt::format("{} {} {} {} lane {}", name_of(step.op), step.block,
                     is_send(step.op) ? "to" : "from", step.peer, step.lane);
}

struct Findings {
  const std::vector<Schedule>& schedules;
  VerifyReport& report;

  void add(Flaw flaw, int rank, int step, const std::string& what) {
    if (report.findings.size() >= kFindingsMax) return;
    std::string text = fmt::format("rank {}", rank);
    if (step >= 0)
      text += fmt::format(", step {} ({})", step, text_of(schedules[rank].steps[step]));
    report.findings.push_back({flaw, rank, step, text + ": " + what});
  }
};

// What blocks hold, symbolically.

/// Which rank's part block `b` belongs to, where blocks are parts of ranks.
int owner_of(const Schedule& layout, int block) {
  return block / std::max(1, layout.blocks / layout.ranks);
}

/// Whether `rank` starts with data in `block`.
bool starts_with(const ScheduleKey& key, const Schedule& layout, int rank, int block) {
  if (block >= layout.blocks) return false;  // scratch
  if (key.collective == Collective::all_to_all) return block < key.ranks;
  const CollectiveTraits traits = traits_of(key.collective);
  return traits.in == Side::own ? owner_of(layout, block) == rank
                                : rank == key.root || !traits.reads_on_root;
}

/// The content of data that only moves: where it came from.
uint64_t origin(int rank, int block) {
  return (static_cast<uint64_t>(rank) << 32 | static_cast<uint64_t>(block)) + 1;
}

/// The contents of all blocks of all ranks. A content is a row of 64-bit words, all zero while
/// undefined: one bit per contributing rank, or one word for the origin of moved data.
class Contents {
 public:
  Contents(const ScheduleKey& key, const Schedule& layout)
      : ranks_(key.ranks),
        blocks_(layout.blocks + layout.scratch),
        words_(is_reduction(key.collective) ? (key.ranks + 63) / 64 : 1),
        store_(ranks_ * blocks_ * words_) {
    for (int rank = 0; rank < key.ranks; ++rank)
      for (int block = 0; block < layout.blocks; ++block) {
        if (!starts_with(key, layout, rank, block)) continue;
        if (is_reduction(key.collective))
          at(rank, block)[rank / 64] = uint64_t{1} << rank % 64;
        else
          at(rank, block)[0] = origin(rank, block);
      }
  }

  size_t words() const { return words_; }
  std::span<uint64_t> at(int rank, int block) {
    return {store_.data() + (rank * blocks_ + block) * words_, words_};
  }
  /// The lowest rank missing from a sum, or -1.
  int missing(std::span<const uint64_t> content) const {
    for (size_t rank = 0; rank < ranks_; ++rank)
      if ((content[rank / 64] >> rank % 64 & 1) == 0) return static_cast<int>(rank);
    return -1;
  }
  static bool is_defined(std::span<const uint64_t> content) {
    return std::ranges::any_of(content, [](uint64_t word) { return word != 0; });
  }

 private:
  size_t ranks_, blocks_, words_;
  std::vector<uint64_t> store_;
};

/// Blocks [first, last) of `rank`, which the collective promises.
std::pair<int, int> promised_blocks(const ScheduleKey& key, const Schedule& layout, int rank) {
  const int k = std::max(1, layout.blocks / key.ranks);
  const CollectiveTraits traits = traits_of(key.collective);
  if (traits.out == Side::own) return {rank * k, (rank + 1) * k};
  return {0, rank == key.root || !traits.writes_on_root ? layout.blocks : 0};
}

/// Where data moves only: the origin that `block` of `rank` must hold at the end.
uint64_t promised_origin(const ScheduleKey& key, const Schedule& layout, int rank, int block) {
  if (traits_of(key.collective).reads_on_root) return origin(key.root, block);
  if (key.collective != Collective::all_to_all) return origin(owner_of(layout, block), block);
  return block < key.ranks ? origin(rank, block) : origin(block - key.ranks, rank);
}

/// Equal numbers: blocks that are equally long for every length of the vector, and, for the
/// collectives with a part per rank, for all lengths of the parts. The parts of an all_to_all may
/// differ, except where the schedule needs equal ones.
int64_t length_class(const ScheduleKey& key, const Schedule& layout, int rank, int block,
                     bool equal_parts) {
  const int64_t n = key.ranks;
  if (block >= layout.blocks) block = (block - layout.blocks) % layout.blocks;
  if (key.collective != Collective::all_to_all) return block;
  if (equal_parts) return 0;
  return block < n ? rank * n + block : (block - n) * n + rank;  // (from, to)
}

// Form: everything that can be seen in one rank's list.

void check_step(const Schedule& schedule, int index, Findings& findings) {
  const Step& step = schedule.steps[index];
  const int rank = schedule.rank, blocks = schedule.blocks + schedule.scratch;
  const auto is_block = [&](int block) { return block >= 0 && block < blocks; };
  const bool local = step.op == StepOp::reduce;
  if (local ? step.peer != -1 : step.peer < 0 || step.peer >= schedule.ranks)
    findings.add(Flaw::bad_peer, rank, index, fmt::format("peer {} is out of range", step.peer));
  else if (step.peer == rank)
    findings.add(Flaw::self_send, rank, index, "a rank must not talk to itself");
  if (step.lane >= kLanes)
    findings.add(Flaw::bad_lane, rank, index, fmt::format("there are {} lanes", kLanes));
  if (!is_block(step.block) || (local && (!is_block(step.from) || step.from == step.block)))
    findings.add(Flaw::bad_block, rank, index, fmt::format("there are {} blocks", blocks));
}

void check_form(const ScheduleKey& key, const std::vector<Schedule>& schedules,
                Findings& findings) {
  for (size_t r = 0; r < schedules.size(); ++r) {
    const Schedule& schedule = schedules[r];
    if (schedule.ranks != key.ranks || schedule.rank != static_cast<int>(r) ||
        schedule.blocks != schedules[0].blocks || schedule.scratch != schedules[0].scratch ||
        schedule.blocks < 1 || schedule.scratch < 0)
      findings.add(Flaw::unequal_layout, static_cast<int>(r), -1,
                   fmt::format("says rank {} of {}, {} blocks, {} scratch", schedule.rank,
                               schedule.ranks, schedule.blocks, schedule.scratch));
    else
      for (size_t i = 0; i < schedule.steps.size(); ++i)
        check_step(schedule, static_cast<int>(i), findings);
  }
}

// The replay.

class Replay {
 public:
  Replay(const ScheduleKey& key, const std::vector<Schedule>& schedules, int credits,
         const Promise& promise, VerifyReport& report)
      : key_(key),
        schedules_(schedules),
        in_list_order_(credits == kInListOrder),
        credits_(in_list_order_ ? promise.list_order_credits : static_cast<uint32_t>(credits)),
        equal_parts_(promise.needs_equal_parts),
        report_(report),
        findings_{schedules, report},
        graph_(graph_of(schedules)),
        contents_(key, schedules[0]),
        waits_(graph_.nodes(), 0),
        round_(graph_.nodes(), 0),
        done_(graph_.nodes(), false) {
    if (credits_ > 0) in_flight_.resize(graph_.nodes() * contents_.words());
  }

  void run() {
    check_pairs();
    prepare();
    while (!ready_.empty()) {
      const uint32_t node = ready_.back();
      ready_.pop_back();
      fire(node);
    }
    if (fired_ < graph_.nodes())
      explain_deadlock();
    else
      check_promises();
  }

 private:
  int rank_of(uint32_t node) const { return graph_.rank_of[node]; }
  int index_of(uint32_t node) const { return static_cast<int>(node - graph_.first[rank_of(node)]); }
  const Step& step_of(uint32_t node) const {
    return schedules_[rank_of(node)].steps[index_of(node)];
  }
  void find(Flaw flaw, uint32_t node, const std::string& what) {
    findings_.add(flaw, rank_of(node), index_of(node), what);
  }
  std::string where(uint32_t node) const {
    return fmt::format("rank {} step {} ({})", rank_of(node), index_of(node),
                       text_of(step_of(node)));
  }

  void check_pairs() {
    for (uint32_t node = 0; node < graph_.nodes(); ++node) {
      const Step& step = step_of(node);
      const uint32_t other = graph_.partner[node];
      if (step.op == StepOp::reduce) continue;
      if (other == StepGraph::kNone) {
        if (is_send(step.op))
          find(Flaw::unmatched_send, node, "nobody receives this");
        else
          find(Flaw::unmatched_recv, node, "nobody sends this");
      } else if (is_send(step.op)) {
        const Step& receive = step_of(other);
        if ((step.op == StepOp::send_copy) != (receive.op == StepOp::recv_copy))
          find(Flaw::op_mismatch, node, "meets " + where(other));
        const auto length_of = [&](uint32_t of, int block) {
          return length_class(key_, schedules_[0], rank_of(of), block, equal_parts_);
        };
        if (length_of(node, step.block) != length_of(other, receive.block))
          find(Flaw::length_mismatch, node, "meets a block of another length: " + where(other));
      }
    }
  }

  void prepare() {
    for (uint32_t node = 0; node < graph_.nodes(); ++node) {
      for (uint32_t next : graph_.waiting_on(node)) ++waits_[next];
      if (graph_.fifo_next[node] != StepGraph::kNone) ++waits_[graph_.fifo_next[node]];
      if (in_list_order_ && index_of(node) > 0) ++waits_[node];
      if (credits_ == 0) continue;
      if (is_recv(step_of(node).op)) ++waits_[node];  // for its message
      if (is_send(step_of(node).op) && graph_.stream_position[node] >= credits_)
        ++waits_[node];  // for the slot that an earlier message leaves
    }
    map_slots();
    for (uint32_t node = 0; node < graph_.nodes(); ++node)
      if (waits_[node] == 0) ready_.push_back(node);
  }

  /// Which send a receive makes room for: the one `credits` places further in its FIFO.
  void map_slots() {
    if (credits_ == 0) return;
    slot_user_.assign(graph_.nodes(), StepGraph::kNone);
    for (uint32_t node = 0; node < graph_.nodes(); ++node) {
      if (!is_send(step_of(node).op) || graph_.stream_position[node] != 0) continue;
      uint32_t leader = node;  // runs `credits` places ahead of `send`
      for (uint32_t i = 0; i < credits_ && leader != StepGraph::kNone; ++i)
        leader = graph_.fifo_next[leader];
      for (uint32_t send = node; leader != StepGraph::kNone; send = graph_.fifo_next[send]) {
        if (graph_.partner[send] != StepGraph::kNone) slot_user_[graph_.partner[send]] = leader;
        leader = graph_.fifo_next[leader];
      }
    }
  }

  void fire(uint32_t node) {
    const Step& step = step_of(node);
    const uint32_t other = graph_.partner[node];
    if (step.op == StepOp::reduce) {
      add(node, contents_.at(rank_of(node), step.from));
    } else if (credits_ == 0) {
      // Whichever of the two becomes ready last carries both out.
      if (other == StepGraph::kNone || waits_[other] > 0) return;
      const uint32_t send = is_send(step.op) ? node : other;
      const uint32_t receive = is_send(step.op) ? other : node;
      if (done_[send]) return;
      round_[receive] = std::max(round_[receive], round_[send] + 1);
      take_in(receive, read(send));
      finish(send);
      finish(receive);
      return;
    } else if (is_send(step.op)) {
      const std::span<uint64_t> content = read(node);
      if (other != StepGraph::kNone) {
        std::copy(content.begin(), content.end(), message(other).begin());
        round_[other] = std::max(round_[other], round_[node] + 1);
        release(other);
      }
    } else {
      take_in(node, message(node));
      if (slot_user_[node] != StepGraph::kNone) release(slot_user_[node]);
    }
    finish(node);
  }

  std::span<uint64_t> message(uint32_t receive) {
    return {in_flight_.data() + receive * contents_.words(), contents_.words()};
  }

  std::span<uint64_t> read(uint32_t send) {
    const std::span<uint64_t> content = contents_.at(rank_of(send), step_of(send).block);
    if (!Contents::is_defined(content))
      find(Flaw::undefined_content, send, "the block is undefined");
    return content;
  }

  void take_in(uint32_t receive, std::span<const uint64_t> content) {
    const Step& step = step_of(receive);
    if (step.op == StepOp::recv_reduce) return add(receive, content);
    if (key_.collective == Collective::all_to_all && step.block < key_.ranks)
      find(Flaw::input_overwritten, receive, "the block is input");
    std::copy(content.begin(), content.end(), contents_.at(rank_of(receive), step.block).begin());
  }

  void add(uint32_t node, std::span<const uint64_t> content) {
    const std::span<uint64_t> sum = contents_.at(rank_of(node), step_of(node).block);
    if (!is_reduction(key_.collective))
      return find(Flaw::wrong_content, node, "a reduction, but this collective only moves data");
    if (!Contents::is_defined(sum) || !Contents::is_defined(content))
      find(Flaw::undefined_content, node, "adds to, or from, an undefined block");
    for (size_t word = 0; word < sum.size(); ++word) {
      if ((sum[word] & content[word]) != 0)
        find(Flaw::duplicate_contribution, node,
             fmt::format(
                 "rank {} is counted twice",
                 word * 64 + static_cast<size_t>(std::countr_zero(sum[word] & content[word]))));
      sum[word] |= content[word];
    }
  }

  void finish(uint32_t node) {
    done_[node] = true;
    ++fired_;
    report_.rounds = std::max(report_.rounds, round_[node]);
    for (uint32_t next : graph_.waiting_on(node)) follow(node, next);
    if (graph_.fifo_next[node] != StepGraph::kNone) follow(node, graph_.fifo_next[node]);
    if (in_list_order_ && has_successor(node)) release(node + 1);  // waits for no message
  }
  /// Whether the rank has a step after this one.
  bool has_successor(uint32_t node) const {
    return node + 1 < graph_.first[static_cast<size_t>(rank_of(node)) + 1];
  }
  void follow(uint32_t node, uint32_t next) {
    round_[next] = std::max(round_[next], round_[node]);
    release(next);
  }
  void release(uint32_t node) {
    if (--waits_[node] == 0) ready_.push_back(node);
  }

  /// Walks from a waiting step to one it waits for, until a step comes up again or no step is to
  /// blame (its partner does not exist).
  void explain_deadlock() {
    std::vector<uint32_t> waits_for(graph_.nodes(), StepGraph::kNone);
    for (uint32_t node = 0; node < graph_.nodes(); ++node) {
      if (done_[node]) continue;
      for (uint32_t next : graph_.waiting_on(node)) waits_for[next] = node;
      if (graph_.fifo_next[node] != StepGraph::kNone) waits_for[graph_.fifo_next[node]] = node;
      if (in_list_order_ && has_successor(node)) waits_for[node + 1] = node;
      if (credits_ > 0 && slot_user_[node] != StepGraph::kNone) waits_for[slot_user_[node]] = node;
      const bool needs_partner = credits_ == 0 || is_recv(step_of(node).op);
      if (needs_partner && waits_for[node] == StepGraph::kNone)
        waits_for[node] = graph_.partner[node];
    }
    const auto stuck =
        static_cast<uint32_t>(std::find(done_.begin(), done_.end(), false) - done_.begin());
    constexpr int kChainMax = 12;
    std::vector<bool> seen(graph_.nodes(), false);
    std::string chain;
    uint32_t node = waits_for[stuck];
    seen[stuck] = true;
    for (int i = 0; i < kChainMax && node != StepGraph::kNone; ++i) {
      chain += fmt::format("{} {}", i == 0 ? "waits for" : ", which waits for", where(node));
      if (seen[node]) break;
      seen[node] = true;
      node = waits_for[node];
    }
    if (node == StepGraph::kNone)
      chain += chain.empty() ? "has no partner" : ", which has no partner";
    find(Flaw::deadlock, stuck,
         fmt::format("{} ({} of {} steps never run)", chain, graph_.nodes() - fired_,
                     graph_.nodes()));
  }

  void check_promises() {
    for (int rank = 0; rank < key_.ranks; ++rank) {
      const auto [first, last] = promised_blocks(key_, schedules_[0], rank);
      for (int block = first; block < last; ++block) check_promise(rank, block);
    }
  }
  void check_promise(int rank, int block) {
    const std::span<uint64_t> content = contents_.at(rank, block);
    if (is_reduction(key_.collective)) {
      if (const int missing = contents_.missing(content); missing >= 0)
        findings_.add(Flaw::missing_contribution, rank, -1,
                      fmt::format("block {} ends without rank {}'s contribution", block, missing));
      return;
    }
    // The own part of an all_to_all is copied outside the schedule.
    if (key_.collective == Collective::all_to_all && block == key_.ranks + rank) return;
    if (content[0] != promised_origin(key_, schedules_[0], rank, block))
      findings_.add(Flaw::wrong_content, rank, -1,
                    fmt::format("block {} ends with {}", block,
                                content[0] == 0 ? "nothing in it" : "something else in it"));
  }

  const ScheduleKey& key_;
  const std::vector<Schedule>& schedules_;
  const bool in_list_order_;
  const uint32_t credits_;
  const bool equal_parts_;
  VerifyReport& report_;
  Findings findings_;
  const StepGraph graph_;
  Contents contents_;
  std::vector<uint32_t> waits_;      // by node: how many steps it still waits for
  std::vector<int> round_;           // by node: messages on the longest chain up to it
  std::vector<bool> done_;           // by node
  std::vector<uint32_t> slot_user_;  // by receive: the send that gets its slot
  std::vector<uint64_t> in_flight_;  // by receive: what its message holds
  std::vector<uint32_t> ready_;
  uint32_t fired_ = 0;
};

void check_costs(const ScheduleKey& key, const std::vector<Schedule>& schedules,
                 VerifyReport& report) {
  Findings findings{schedules, report};
  int worst = 0;
  for (const Schedule& schedule : schedules) {
    const auto sends = std::count_if(schedule.steps.begin(), schedule.steps.end(),
                                     [](const Step& step) { return is_send(step.op); });
    const int parts =
        key.collective == Collective::all_to_all ? schedule.blocks / 2 : schedule.blocks;
    const double sent = static_cast<double>(sends) / parts;
    if (sent > report.sent_max) worst = schedule.rank;
    report.sent_max = std::max(report.sent_max, sent);
    report.steps_max = std::max(report.steps_max, schedule.steps.size());
  }
  if (report.sent_max > report.bound.sent + kRounding)
    findings.add(
        Flaw::too_many_bytes, worst, -1,
        fmt::format("sends {} of the vector; the bound is {}", report.sent_max, report.bound.sent));
  if (report.rounds > report.bound.rounds)
    findings.add(Flaw::too_many_rounds, worst, -1,
                 fmt::format("{} rounds; the bound is {}", report.rounds, report.bound.rounds));
}

}  // namespace

std::string_view name_of(Flaw flaw) {
#define ROPEWALK_NAME(flaw, name) name,
  constexpr std::string_view kNames[] = {ROPEWALK_FLAWS(ROPEWALK_NAME)};
#undef ROPEWALK_NAME
  return kNames[static_cast<int>(flaw)];
}

VerifyReport verify(const ScheduleKey& key, const std::vector<Schedule>& schedules, int credits,
                    const Promise& promise) {
  VerifyReport report;
  report.bound = promise.bound;
  Findings findings{schedules, report};
  check_form(key, schedules, findings);
  if (!report.ok()) return report;  // a malformed schedule cannot be replayed
  Replay(key, schedules, credits, promise, report).run();
  check_costs(key, schedules, report);
  return report;
}

VerifyReport verify(const ScheduleKey& key, const std::vector<Schedule>& schedules, int credits) {
  const AlgorithmDescriptor& descriptor = descriptor_of(key.algorithm);
  return verify(key, schedules, credits,
                {bound_of(key), descriptor.list_order_credits, descriptor.needs_equal_parts});
}

VerifyReport verify(const ScheduleKey& key, int credits) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < key.ranks; ++rank) schedules.push_back(build_schedule(key, rank));
  return verify(key, schedules, credits);
}

}  // namespace ropewalk
