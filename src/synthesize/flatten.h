// Trees that are as deep as they have to be.
#pragma once

#include <vector>

#include "synthesize/fabric.h"
#include "synthesize/forest.h"

namespace ropewalk {

/// Trees hand parents on to each other, so that nodes are nearer to their roots, while every node
/// sends as often as before and each link passes as much: of two edges u > v and w > x the trees
/// take w > v and u > x, where v and x are one, or u and w, or v and x, hang on the same links.
/// What is deep fills late and empties late, and each node on the way is one more that may be busy
/// with others. The same every time; leaves forests of too many edges as they are.
void flatten(const Fabric& fabric, std::vector<SpanningTree>& trees);

}  // namespace ropewalk
