#pragma once

#include <sched.h>

namespace ropewalk::tcp {

/// A side that did not get on for a while lets the other have the core.
class Backoff {
 public:
  void idle() {
    if (++count_ % 4096 == 0) sched_yield();
  }

 private:
  unsigned count_ = 0;
};

}  // namespace ropewalk::tcp
