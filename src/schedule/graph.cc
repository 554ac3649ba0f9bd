#include "schedule/graph.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace ropewalk {
namespace {

using Edge = std::pair<uint32_t, uint32_t>;  // before, after

/// Remembers, per block of one rank, its last writer and the readers since.
class BlockOrder {
 public:
  explicit BlockOrder(size_t blocks) : blocks_(blocks) {}

  void read(int block, uint32_t node, std::vector<Edge>& edges) {
    State& state = blocks_[block];
    if (state.writer != StepGraph::kNone) edges.emplace_back(state.writer, node);
    state.readers.push_back(node);
  }
  void write(int block, uint32_t node, std::vector<Edge>& edges) {
    State& state = blocks_[block];
    for (uint32_t reader : state.readers) edges.emplace_back(reader, node);
    if (state.readers.empty() && state.writer != StepGraph::kNone)
      edges.emplace_back(state.writer, node);
    state.readers.clear();
    state.writer = node;
  }

 private:
  struct State {
    uint32_t writer = StepGraph::kNone;
    std::vector<uint32_t> readers;
  };
  std::vector<State> blocks_;
};

std::vector<Edge> block_edges(std::span<const Schedule> schedules, const StepGraph& graph) {
  std::vector<Edge> edges;
  edges.reserve(graph.nodes() * size_t{2});
  for (size_t r = 0; r < schedules.size(); ++r) {
    const Schedule& schedule = schedules[r];
    BlockOrder order(schedule.blocks + schedule.scratch);
    uint32_t node = graph.first[r];
    for (const Step& step : schedule.steps) {
      if (step.op == StepOp::reduce) order.read(step.from, node, edges);
      if (is_send(step.op))
        order.read(step.block, node, edges);
      else
        order.write(step.block, node, edges);
      ++node;
    }
  }
  return edges;
}

void fill_after(const std::vector<Edge>& edges, StepGraph& graph) {
  graph.after_begin.assign(graph.nodes() + size_t{1}, 0);
  for (const Edge& edge : edges) ++graph.after_begin[edge.first + size_t{1}];
  for (size_t i = 1; i < graph.after_begin.size(); ++i)
    graph.after_begin[i] += graph.after_begin[i - 1];
  graph.after.resize(edges.size());
  std::vector<uint32_t> fill(graph.after_begin.begin(), graph.after_begin.end() - 1);
  for (const Edge& edge : edges) graph.after[fill[edge.first]++] = edge.second;
}

struct Message {
  uint64_t stream;  // (source, destination, lane) in one number
  uint32_t node;
  uint32_t position = 0;  // in its stream

  auto place() const { return std::pair(stream, position); }
};

/// The i-th send of a FIFO belongs to its i-th receive.
void fill_fifos(std::vector<Message>& sends, std::vector<Message>& receives, StepGraph& graph) {
  for (std::vector<Message>* side : {&sends, &receives}) {
    std::ranges::stable_sort(*side, {}, &Message::stream);
    for (size_t i = 1; i < side->size(); ++i) {
      const Message& before = (*side)[i - 1];
      Message& message = (*side)[i];
      if (before.stream != message.stream) continue;
      message.position = before.position + 1;
      graph.fifo_next[before.node] = message.node;
      graph.stream_position[message.node] = message.position;
    }
  }
  auto send = sends.begin(), receive = receives.begin();
  while (send != sends.end() && receive != receives.end()) {
    const auto order = send->place() <=> receive->place();
    if (order == 0) {
      graph.partner[send->node] = receive->node;
      graph.partner[receive->node] = send->node;
    }
    if (order <= 0) ++send;
    if (order >= 0) ++receive;
  }
}

[[maybe_unused]] bool is_well_formed(const Step& step, const Schedule& schedule) {
  const int blocks = schedule.blocks + schedule.scratch;
  const bool is_local = step.op == StepOp::reduce;
  return step.block >= 0 && step.block < blocks && step.lane < kLanes &&
         (is_local ? step.from >= 0 && step.from < blocks
                   : step.peer >= 0 && step.peer < schedule.ranks && step.peer != schedule.rank);
}

}  // namespace

StepGraph graph_of(std::span<const Schedule> schedules) {
  StepGraph graph;
  graph.first.push_back(0);
  for (const Schedule& schedule : schedules)
    graph.first.push_back(graph.first.back() + static_cast<uint32_t>(schedule.steps.size()));
  graph.rank_of.reserve(graph.nodes());
  graph.partner.assign(graph.nodes(), StepGraph::kNone);
  graph.fifo_next.assign(graph.nodes(), StepGraph::kNone);
  graph.stream_position.assign(graph.nodes(), 0);

  std::vector<Message> sends, receives;
  const uint64_t n = schedules.size();
  for (uint64_t rank = 0; rank < n; ++rank)
    for (const Step& step : schedules[rank].steps) {
      assert(is_well_formed(step, schedules[rank]));
      const auto node = static_cast<uint32_t>(graph.rank_of.size());
      graph.rank_of.push_back(static_cast<int32_t>(rank));
      const auto peer = static_cast<uint64_t>(step.peer);
      if (is_send(step.op)) sends.push_back({(rank * n + peer) * kLanes + step.lane, node});
      if (is_recv(step.op)) receives.push_back({(peer * n + rank) * kLanes + step.lane, node});
    }
  fill_fifos(sends, receives, graph);
  fill_after(block_edges(schedules, graph), graph);
  return graph;
}

}  // namespace ropewalk
