#include "synthesize/flow_graph.h"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>
#include <cassert>

namespace ropewalk {
namespace {

using FlowTraits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
using ReverseArc = boost::property<boost::edge_reverse_t, FlowTraits::edge_descriptor>;
using Residual = boost::property<boost::edge_residual_capacity_t, int64_t, ReverseArc>;
using FlowArcs = boost::property<boost::edge_capacity_t, int64_t, Residual>;
using BoostGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, FlowArcs>;

}  // namespace

struct FlowGraph::Boosted {
  BoostGraph graph;
  std::vector<FlowTraits::edge_descriptor> arcs;
  size_t source = 0;
  // What the algorithm keeps of nodes.
  std::vector<FlowTraits::edge_descriptor> predecessors;
  std::vector<boost::default_color_type> colors;
  std::vector<int64_t> distances;
};

FlowGraph::FlowGraph(int nodes) : boosted_(std::make_unique<Boosted>()) {
  const auto count = static_cast<size_t>(nodes);
  boosted_->graph = BoostGraph(count);
  boosted_->predecessors.resize(count);
  boosted_->colors.resize(count);
  boosted_->distances.resize(count);
}

FlowGraph::~FlowGraph() = default;

int FlowGraph::add_arc(int from, int to, int64_t capacity) {
  assert(from != to && capacity >= 0);
  BoostGraph& graph = boosted_->graph;
  const auto a = static_cast<size_t>(from), b = static_cast<size_t>(to);
  const auto arc = boost::add_edge(a, b, FlowArcs(capacity), graph).first;
  const auto back = boost::add_edge(b, a, FlowArcs(0), graph).first;
  boost::put(boost::edge_reverse, graph, arc, back);
  boost::put(boost::edge_reverse, graph, back, arc);
  boosted_->arcs.push_back(arc);
  return static_cast<int>(boosted_->arcs.size()) - 1;
}

void FlowGraph::set_capacity(int arc, int64_t capacity) {
  assert(capacity >= 0);
  boost::put(boost::edge_capacity, boosted_->graph, boosted_->arcs[static_cast<size_t>(arc)],
             capacity);
}

int64_t FlowGraph::arcs() const {
  return static_cast<int64_t>(boosted_->arcs.size());
}

int64_t FlowGraph::max_flow(int source, int sink) {
  assert(source != sink);
  boosted_->source = static_cast<size_t>(source);
  BoostGraph& graph = boosted_->graph;
  return boost::boykov_kolmogorov_max_flow(
      graph, boost::get(boost::edge_capacity, graph),
      boost::get(boost::edge_residual_capacity, graph), boost::get(boost::edge_reverse, graph),
      boosted_->predecessors.data(), boosted_->colors.data(), boosted_->distances.data(),
      boost::get(boost::vertex_index, graph), boosted_->source, static_cast<size_t>(sink));
}

std::vector<bool> FlowGraph::source_side() const {
  const BoostGraph& graph = boosted_->graph;
  std::vector<bool> reached(boost::num_vertices(graph));
  std::vector<size_t> nodes{boosted_->source};
  reached[boosted_->source] = true;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto [first, last] = boost::out_edges(nodes[i], graph);
    for (auto arc = first; arc != last; ++arc) {
      const size_t to = boost::target(*arc, graph);
      if (reached[to] || boost::get(boost::edge_residual_capacity, graph, *arc) == 0) continue;
      reached[to] = true;
      nodes.push_back(to);
    }
  }
  return reached;
}

}  // namespace ropewalk
