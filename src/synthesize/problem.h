// What a collective asks of a network, as a forest of trees between groups of hosts.
#pragma once

#include "schedule/collective.h"
#include "synthesize/fabric.h"
#include "synthesize/forest.h"

namespace ropewalk {

/// Which way trees carry data: to the root adding up, from the root, or both, one after the other.
struct TreeUse {
  bool inwards = false, outwards = false;
};
/// Neither: the collective is not made of trees.
TreeUse tree_use(Collective collective);

/// How links of an all_reduce are shared by its two halves, where trees go both ways.
enum class Sharing : uint8_t {
  /// Where a link alone joins two parts of the network, each tree crosses it once; what is left
  /// goes
  /// outwards from the smaller part.
  as_needed,
  evenly,
};

/// A tree reaches each group at one of its hosts, which hands on to the others: that is taken from
/// the group's links beforehand.
/// Trees have equal shares of the vector. Of all_gather and reduce_scatter each rank is the root of
/// one; of an all_reduce hosts are whose links have something to spare. `root_host`: of broadcast
/// and reduce, alone in its group.
ForestProblem problem_of(const Fabric& fabric, Collective collective, int root_host,
                         Sharing sharing);

/// Seconds a byte of the whole vector that no schedule can do without, whatever it does: for
/// all_gather and reduce_scatter ForestColl's bound, which forests meet. 0: no link has a limit, or
/// the collective is not made of trees.
double least_s_per_byte(const Network& network, Collective collective, int root_host);

}  // namespace ropewalk
