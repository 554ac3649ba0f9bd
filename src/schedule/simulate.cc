#include "schedule/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <queue>

#include "ropewalk/status.h"
#include "schedule/algorithm.h"
#include "schedule/graph.h"

namespace ropewalk {
namespace {

/// A serial resource: a port, or a rank's adding.
struct Port {
  /// Occupies it for `seconds` from `ready` on, or from when it is free; returns the start.
  double take(double ready, double seconds) {
    const double start = std::max(ready, free_at);
    free_at = start + seconds;
    return start;
  }

  double free_at = 0;
};

// An item is one slice of one step: node * slices + slice.
using Item = uint64_t;

class Machine {
 public:
  Machine(std::vector<Schedule> schedules, const Simulation& simulation, int parts)
      : schedules_(std::move(schedules)),
        graph_(graph_of(schedules_)),
        hosts_(hosts_of(simulation.hosts, static_cast<int>(schedules_.size()))),
        cost_(simulation.cost),
        ranks_(schedules_.size()),
        host_wires_(hosts_.count()) {
    const double block_bytes = simulation.bytes / parts;
    slices_ = static_cast<uint64_t>(
        std::max(1.0, std::ceil(block_bytes / static_cast<double>(simulation.slice_bytes))));
    slice_bytes_ = block_bytes / static_cast<double>(slices_);
    if (graph_.nodes() * slices_ > kSimulatedSlicesMax)
      throw Error(ErrorCode::exhausted, "simulate",
                  fmt::format("{} steps of {} slices each are too many", graph_.nodes(), slices_),
                  "simulate fewer ranks or larger slices");
  }

  SimulationReport run() {
    prepare();
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      (this->*event.happen)(event.item);
    }
    report_.seconds = now_;
    return report_;
  }

 private:
  using Happen = void (Machine::*)(Item);
  struct Event {
    double time;
    uint64_t order;  // of scheduling: makes ties deterministic
    Item item;
    Happen happen;
    bool operator>(const Event& other) const {
      return std::pair(time, order) > std::pair(other.time, other.order);
    }
  };
  struct Wires {
    Port out, in;
  };
  struct RankPorts {
    Port posting, adding;
    Wires wires;
  };

  const Step& step_of(uint32_t node) const {
    const auto rank = static_cast<size_t>(graph_.rank_of[node]);
    return schedules_[rank].steps[node - graph_.first[rank]];
  }
  void schedule(double time, Happen happen, Item item) {
    events_.push({time, order_++, item, happen});
  }

  /// An item waits for the same slice of the steps on its block listed before, for the slice before
  /// it in its FIFO and, if it receives, for its message.
  void prepare() {
    waits_.assign(graph_.nodes() * slices_, 0);
    for (uint32_t node = 0; node < graph_.nodes(); ++node) {
      const bool in_fifo = graph_.partner[node] != StepGraph::kNone;
      const bool receives = is_recv(step_of(node).op);
      for (Item s = 0; s < slices_; ++s) {
        for (uint32_t next : graph_.waiting_on(node)) ++waits_[next * slices_ + s];
        const bool first = s == 0 && graph_.stream_position[node] == 0;
        waits_[node * slices_ + s] += (in_fifo && !first ? 1u : 0u) + (receives ? 1u : 0u);
      }
    }
    for (Item item = 0; item < waits_.size(); ++item)
      if (waits_[item] == 0) start(item);
  }

  void release(Item item) {
    if (--waits_[item] == 0) start(item);
  }

  void start(Item item) {
    const auto node = static_cast<uint32_t>(item / slices_);
    const Step& step = step_of(node);
    RankPorts& rank = ranks_[graph_.rank_of[node]];
    if (is_send(step.op)) return post(item, node);
    double seconds = 0;
    if (step.op != StepOp::recv_copy) {
      const double adding = slice_bytes_ * cost_.reduce_s_per_byte;
      seconds = rank.adding.take(now_, adding) + adding - now_;
    }
    schedule(now_ + seconds, &Machine::complete, item);
  }

  struct Channel {
    const LinkCost& link;
    Port &out, &in;
    bool inside;
  };
  /// From `from` to `to`: ports of the two ranks, or of their hosts.
  Channel way(int32_t from, int32_t to) {
    const int host_a = hosts_.host_of[from], host_b = hosts_.host_of[to];
    if (host_a == host_b) return {cost_.intra, ranks_[from].wires.out, ranks_[to].wires.in, true};
    return {cost_.inter, host_wires_[host_a].out, host_wires_[host_b].in, false};
  }

  void post(Item item, uint32_t node) {
    const int32_t rank = graph_.rank_of[node];
    const double overhead = way(rank, step_of(node).peer).link.overhead_s;
    Port& posting = ranks_[rank].posting;
    schedule(posting.take(now_, overhead) + overhead, &Machine::inject, item);
  }

  /// The item, a send, has been posted and wants its port.
  void inject(Item item) {
    const auto node = static_cast<uint32_t>(item / slices_);
    const Channel out = way(graph_.rank_of[node], step_of(node).peer);
    const double busy = slice_bytes_ * out.link.s_per_byte;
    const double begin = out.out.take(now_, busy);
    ++report_.messages;
    if (!out.inside) report_.bytes_between_hosts += slice_bytes_;
    schedule(begin + busy, &Machine::complete, item);
    schedule(begin + out.link.latency_s, &Machine::arrive,
             graph_.partner[node] * slices_ + item % slices_);
    release_fifo(item);  // ports keep the order, so the next may be posted meanwhile
  }

  /// The message of `receive` reaches the port of its receiver.
  void arrive(Item receive) {
    const auto node = static_cast<uint32_t>(receive / slices_);
    const Channel in = way(step_of(node).peer, graph_.rank_of[node]);
    const double busy = slice_bytes_ * in.link.s_per_byte;
    schedule(in.in.take(now_, busy) + busy, &Machine::release, receive);
  }

  void complete(Item item) {
    const auto node = static_cast<uint32_t>(item / slices_);
    const Item slice = item % slices_;
    for (uint32_t next : graph_.waiting_on(node)) release(next * slices_ + slice);
    if (is_recv(step_of(node).op)) release_fifo(item);
  }

  void release_fifo(Item item) {
    const auto node = static_cast<uint32_t>(item / slices_);
    if (item % slices_ + 1 < slices_)
      release(item + 1);
    else if (graph_.fifo_next[node] != StepGraph::kNone)
      release(graph_.fifo_next[node] * slices_);
  }

  const std::vector<Schedule> schedules_;
  const StepGraph graph_;
  const Hosts hosts_;
  const CostModel cost_;
  uint64_t slices_ = 1;
  double slice_bytes_ = 0;
  std::vector<uint32_t> waits_;  // by item
  std::vector<RankPorts> ranks_;
  std::vector<Wires> host_wires_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t order_ = 0;
  double now_ = 0;
  SimulationReport report_;
};

}  // namespace

SimulationReport simulate(const ScheduleKey& key, const Simulation& simulation) {
  std::vector<Schedule> schedules;
  uint64_t steps = 0;
  for (int rank = 0; rank < key.ranks; ++rank) {
    schedules.push_back(build_schedule(key, rank));
    steps += schedules.back().steps.size();
    if (steps > kSimulatedSlicesMax)
      throw Error(
          ErrorCode::exhausted, "simulate",
          fmt::format("{} ranks of {} have too many steps", key.ranks, name_of(key.algorithm)),
          "simulate fewer ranks");
  }
  const int blocks = schedules[0].blocks;
  const int parts = key.collective == Collective::all_to_all ? blocks / 2 : blocks;
  return Machine(std::move(schedules), simulation, parts).run();
}

}  // namespace ropewalk
