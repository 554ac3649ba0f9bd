// In place of synthesize.cc where Boost.Graph is not there.
#include "ropewalk/status.h"
#include "synthesize/synthesize.h"

namespace ropewalk {

bool can_synthesize() {
  return false;
}

Forest make_forest(Routes&, Collective, int) {
  throw Error(ErrorCode::unavailable, "synthesize", "this build is without Boost.Graph",
              "install libboost-dev, and build again");
}

}  // namespace ropewalk
