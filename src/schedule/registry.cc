// Which algorithm implements what.
#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/status.h"
#include "schedule/builders.h"

namespace ropewalk {
namespace {

void require(bool condition, const char* what, const ScheduleKey& key, int rank) {
  if (condition) return;
  throw Error(ErrorCode::invalid_argument, "build_schedule",
              fmt::format("{} (ranks {}, rank {}, root {}, {} host numbers)", what, key.ranks, rank,
                          key.root, key.hosts.size()));
}

Schedule build(const ScheduleKey& key, int rank) {
  switch (key.algorithm) {
    case Algorithm::ring:
      return build_ring(key, rank);
    case Algorithm::tree:
      return build_tree(key, rank);
    case Algorithm::recursive_doubling:
      return build_recursive_doubling(key, rank);
    case Algorithm::halving_doubling:
      return build_halving_doubling(key, rank);
    case Algorithm::direct:
      return build_direct(key, rank);
    case Algorithm::two_level:
      return build_two_level(key, rank);
    case Algorithm::one_shot:
      return build_one_shot(key, rank);
    case Algorithm::scattered:
      return build_scattered(key, rank);
    case Algorithm::automatic:
      break;
  }
  throw Error(ErrorCode::unavailable, "build_schedule", "'auto' is not an algorithm",
              "let the planner choose first");
}

/// With one rank there is nothing to do, whatever the algorithm; blocks as for more ranks.
Schedule alone(const ScheduleKey& key) {
  return Schedule{1, 0, key.collective == Collective::all_to_all ? 2 : 1, 0, {}, {}};
}

}  // namespace

const std::vector<Algorithm>& algorithms_for(Collective collective) {
  using enum Algorithm;
  static const std::vector<Algorithm> kAllReduce = {
      ring, tree, recursive_doubling, halving_doubling, direct, two_level, one_shot};
  static const std::vector<Algorithm> kReduceScatter = {ring, halving_doubling, direct, two_level};
  static const std::vector<Algorithm> kAllGather = {ring, recursive_doubling, halving_doubling,
                                                    direct, two_level};
  static const std::vector<Algorithm> kBroadcast = {ring, tree, direct, two_level, scattered};
  static const std::vector<Algorithm> kReduce = {ring, tree, direct, scattered};
  static const std::vector<Algorithm> kDirect = {direct};
  static const std::vector<Algorithm> kBarrier = {recursive_doubling};
  static const std::vector<Algorithm> kNone;
  switch (collective) {
    case Collective::all_reduce:
      return kAllReduce;
    case Collective::reduce_scatter:
      return kReduceScatter;
    case Collective::all_gather:
      return kAllGather;
    case Collective::broadcast:
      return kBroadcast;
    case Collective::reduce:
      return kReduce;
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
      return kDirect;
    case Collective::barrier:
      return kBarrier;
    case Collective::send:
    case Collective::recv:
      return kNone;
  }
  return kNone;
}

Schedule build_schedule(const ScheduleKey& key, int rank) {
  require(key.ranks >= 1, "no ranks", key, rank);
  require(rank >= 0 && rank < key.ranks, "rank out of range", key, rank);
  require(key.root >= 0 && key.root < key.ranks, "root out of range", key, rank);
  require(key.hosts.empty() || key.hosts.size() == static_cast<size_t>(key.ranks),
          "need one host number per rank", key, rank);
  const std::vector<Algorithm>& known = algorithms_for(key.collective);
  if (std::find(known.begin(), known.end(), key.algorithm) == known.end())
    throw Error(ErrorCode::unavailable, "build_schedule",
                fmt::format("{} is not implemented by '{}'", name_of(key.collective),
                            name_of(key.algorithm)));
  return key.ranks == 1 ? alone(key) : build(key, rank);
}

}  // namespace ropewalk
