#include "engine/culprits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "engine/wire.h"
#include "schedule/collective.h"

namespace ropewalk {
namespace {

/// Of a wait that lasts too long: another that has lasted for less than this part began lately.
constexpr int64_t kLatePart = 10;
/// One that has lasted for this part will be too long as well: its culprits are named, too.
constexpr int64_t kLongPart = 2;
constexpr size_t kHopsToldMax = 12;

bool is_message(const Wait& wait) {
  return traits_of(wait.operation).is_point_to_point();
}

/// Whether `wait` of `rank` and `other` of a peer are the two ends of one message.
bool is_other_end(const Wait& wait, int rank, const Wait& other) {
  if (wait.any || other.any || !is_message(wait) || !is_message(other)) return false;
  const auto peers = other.waits_for();
  return wait.operation != other.operation && wait.channel == other.channel &&
         wait.sequence == other.sequence && std::ranges::count(peers, rank) != 0;
}

/// A wait of a rank: its place among the rank's.
struct Node {
  int rank;
  size_t index;
  auto operator<=>(const Node&) const = default;
};

class WaitGraph {
 public:
  WaitGraph(const std::vector<KnownRank>& ranks, int64_t now_ns, int64_t waited_ns)
      : ranks_(ranks), now_ns_(now_ns), waited_ns_(waited_ns) {}

  /// Goes on from `begin`, and notes where it ends: in ranks that wait for nobody, or that have not
  /// said for whom.
  void walk(const std::vector<Node>& begin) {
    std::deque<Node> open;
    const auto visit = [&](const Node& node, std::optional<Edge> from) {
      if (from_.emplace(node, from).second) open.push_back(node);
    };
    for (const Node& node : begin) visit(node, {});
    for (; !open.empty(); open.pop_front()) {
      const Node node = open.front();
      for (const int peer : peers_of(node)) {
        const Edge edge{node, peer};
        const Next next = follow(edge);
        if (next.ends) (ranks_[index(peer)].known ? idle_ : silent_).emplace(peer, edge);
        for (const size_t i : next.waits) visit({peer, i}, edge);
      }
    }
  }
  /// The waits that will have lasted too long, too.
  std::vector<Node> long_waits() const {
    std::vector<Node> nodes;
    for (const Node& node : all())
      if (wait_of(node).awaited && age_ns(wait_of(node)) >= waited_ns_ / kLongPart)
        nodes.push_back(node);
    return nodes;
  }

  bool has_called(int rank, uint32_t sequence) const {
    return static_cast<int32_t>(ranks_[index(rank)].calls - sequence) > 0;
  }
  bool has_idle() const { return !idle_.empty(); }
  Culprits culprits() const {
    const auto& found = idle_.empty() ? silent_ : idle_;
    Culprits culprits;
    culprits.known = !idle_.empty();
    for (const auto& [rank, edge] : found) culprits.ranks.push_back(rank);
    if (!found.empty()) culprits.path = path_to(found.begin()->second);
    return culprits;
  }

  /// Ranks that wait for each other, from the lowest of them. None within one collective that all
  /// of them have called: nothing is wrong with that.
  std::vector<Hop> circle() const {
    for (const Node& node : all())
      for (const int peer : peers_of(node)) {
        const Next next = follow({node, peer});
        if (next.same_call || next.waits.empty()) continue;
        WaitGraph onwards(ranks_, now_ns_, waited_ns_);
        std::vector<Node> begin;
        for (const size_t i : next.waits) begin.push_back({peer, i});
        onwards.walk(begin);
        const auto back = onwards.from_.find(node);
        if (back == onwards.from_.end() || !back->second) continue;
        std::vector<Hop> path = onwards.path_to(*back->second);
        path.insert(path.begin(), {node.rank, wait_of(node), peer});
        std::rotate(path.begin(), std::ranges::min_element(path, {}, &Hop::rank), path.end());
        return path;
      }
    return {};
  }

 private:
  struct Edge {
    Node node;
    int peer;
  };
  struct Next {
    std::vector<size_t> waits;  // of the peer, that hold it up
    bool ends = false;          // there, for all that is known
    bool same_call = false;     // the peer has called it, too
  };

  static size_t index(int rank) { return static_cast<size_t>(rank); }
  const Wait& wait_of(const Node& node) const { return ranks_[index(node.rank)].waits[node.index]; }
  int64_t age_ns(const Wait& wait) const { return now_ns_ - wait.since_ns; }
  bool is_late(const Wait& wait) const { return age_ns(wait) < waited_ns_ / kLatePart; }

  std::vector<Node> all() const {
    std::vector<Node> nodes;
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      for (size_t i = 0; i < ranks_[rank].waits.size(); ++i)
        nodes.push_back({static_cast<int>(rank), i});
    return nodes;
  }

  /// In order.
  std::set<int> peers_of(const Node& node) const {
    const Wait& wait = wait_of(node);
    const auto named = wait.waits_for();
    std::set<int> peers(named.begin(), named.end());
    if (!wait.any && is_message(wait)) return peers;
    for (int peer = 0; peer < std::ssize(ranks_); ++peer) {
      const KnownRank& it = ranks_[index(peer)];
      const bool is_awaited = wait.any ? !it.left : it.known && !has_called(peer, wait.sequence);
      if (is_awaited) peers.insert(peer);
    }
    peers.erase(node.rank);
    return peers;
  }

  Next follow(const Edge& edge) const {
    const Wait& wait = wait_of(edge.node);
    const KnownRank& peer = ranks_[index(edge.peer)];
    const bool is_collective = !wait.any && !is_message(wait);
    if (!peer.known) return {{}, true, false};
    if (is_collective && has_called(edge.peer, wait.sequence)) {
      const auto same = std::ranges::find_if(peer.waits, [&](const Wait& other) {
        return !other.any && !is_message(other) && other.sequence == wait.sequence;
      });
      if (same != peer.waits.end()) {
        if (is_late(*same)) return {{}, true, true};
        return {{static_cast<size_t>(same - peer.waits.begin())}, false, true};
      }
    }
    Next next{{}, true, false};
    for (size_t i = 0; i < peer.waits.size(); ++i) {
      const Wait& other = peer.waits[i];
      if (!other.awaited || is_late(other)) continue;
      next.ends = false;
      if (!is_other_end(wait, edge.node.rank, other)) next.waits.push_back(i);
    }
    return next;
  }

  std::vector<Hop> path_to(Edge edge) const {
    std::vector<Hop> path;
    for (;;) {
      path.push_back({edge.node.rank, wait_of(edge.node), edge.peer});
      const auto& from = from_.at(edge.node);
      if (!from) break;
      edge = *from;
    }
    std::ranges::reverse(path);
    return path;
  }

  const std::vector<KnownRank>& ranks_;
  const int64_t now_ns_, waited_ns_;
  std::map<Node, std::optional<Edge>> from_;  // how each was come to first
  std::map<int, Edge> idle_, silent_;         // ranks where it ends, and from where
};

}  // namespace

Culprits find_culprits(const std::vector<KnownRank>& told, int rank, const std::vector<Wait>& waits,
                       int64_t now_ns, int64_t waited_ns) {
  std::vector<KnownRank> ranks = told;
  KnownRank& self = ranks[static_cast<size_t>(rank)];
  std::vector<Node> begin;
  for (const Wait& wait : waits) {
    begin.push_back({rank, self.waits.size()});
    self.waits.push_back(wait);
  }
  WaitGraph graph(ranks, now_ns, waited_ns);
  graph.walk(begin);
  if (graph.has_idle()) graph.walk(graph.long_waits());
  Culprits culprits = graph.culprits();
  if (culprits.ranks.empty()) culprits.path = graph.circle();
  if (graph.has_idle() && !is_message(waits.front()) &&
      std::ranges::none_of(
          culprits.ranks, [&](int late) { return graph.has_called(late, waits.front().sequence); }))
    culprits.not_called = waits.front();
  return culprits;
}

std::string operation_name(const Wait& wait) {
  if (wait.any) return "next_sender";
  return fmt::format("{} #{}", name_of(wait.operation), wait.sequence);
}

std::string explain(const Culprits& culprits, const std::string& blocker) {
  const std::vector<Hop>& path = culprits.path;
  assert(!culprits.ranks.empty() && !path.empty());
  const bool one = culprits.ranks.size() == 1;
  const std::string who = fmt::format("rank {}", fmt::join(culprits.ranks, ", "));
  if (culprits.not_called)
    return fmt::format("{} {} not called {} yet", who, one ? "has" : "have",
                       operation_name(*culprits.not_called));
  const char* state =
      culprits.known ? (one ? "is late" : "are late") : (one ? "does not answer" : "do not answer");
  return fmt::format("{}; {} {}", path.size() == 1 ? blocker : describe(path), who, state);
}

std::string describe(const std::vector<Hop>& path) {
  std::string text;
  for (size_t i = 0; i < std::min(path.size(), kHopsToldMax); ++i)
    text += fmt::format("{} waits in {} for rank {}",
                        i == 0 ? fmt::format("rank {}", path[i].rank) : ", which",
                        operation_name(path[i].wait), path[i].peer);
  if (path.size() > kHopsToldMax) text += fmt::format(" and so on, to rank {}", path.back().peer);
  return text;
}

}  // namespace ropewalk
