#include "synthesize/problem.h"

namespace ropewalk {

TreeUse tree_use(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return {.inwards = true, .outwards = true};
    case Collective::all_gather:
    case Collective::broadcast:
      return {.inwards = false, .outwards = true};
    case Collective::reduce_scatter:
    case Collective::reduce:
      return {.inwards = true, .outwards = false};
    default:
      return {};
  }
}

}  // namespace ropewalk
