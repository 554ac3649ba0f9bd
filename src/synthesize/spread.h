// From trees of groups of hosts to messages between ranks.
#pragma once

#include "network/routes.h"
#include "synthesize/fabric.h"
#include "synthesize/forest.h"
#include "synthesize/problem.h"

namespace ropewalk {

/// A block that goes outwards along an edge of its tree, or inwards from `to` to `from`.
struct TreeMessage {
  int32_t block = 0;
  int32_t from = 0, to = 0;  // ranks
  int32_t depth = 0;         // of `to`: edges from the root
  int32_t turn = 0;          // how many `from` has told before
  int32_t round = 0;         // of trees with the same root: how many there were before
};

struct Spread {
  int blocks = 0;
  int depth = 0;
  std::vector<TreeMessage> messages;  // of a tree, nearer ones first
  std::vector<int64_t> busy;          // by LinkWay: blocks that pass it, one way or both
  double s_per_byte = 0;              // of the whole vector: the busiest link
  LinkWay busiest = 0;
  double latency_s = 0;  // of the message whose links have most
};

/// One tree for each block. `blocks_of`: by group, the blocks whose trees it is the root of, with
/// the rank that is each one's root, or -1: any. `sends_most`: by group, how many blocks one of its
/// hosts may send outwards without its links being busier than planned.
struct TreePlan {
  std::vector<SpanningTree> trees;
  struct Block {
    int block = 0, rank = -1;
  };
  std::vector<std::vector<Block>> blocks_of;
  std::vector<int64_t> sends_most;
};

/// Within a group the first host that is reached hands on to the others, as far as its links can.
/// Within a host the first rank hands on to the others. Of the ranks of two hosts those exchange a
/// block whose way is the least busy.
Spread spread(Routes& routes, const Fabric& fabric, TreeUse use, const TreePlan& plan);

}  // namespace ropewalk
