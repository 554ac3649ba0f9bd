// What a forked child inherits: objects of threads that are not there, and locks that these may
// hold. There nothing is waited for and nothing destroyed, and calls are errors.
#pragma once

#include <unistd.h>

#include "ropewalk/fork.h"

namespace ropewalk::pytorch {

/// Part of what belongs to the process that made it.
class OwnProcess {
 public:
  bool is_forked() const { return guard_.is_forked(); }
  /// Throws DistBackendError in a forked child.
  void require(int rank, const char* operation) const;

 private:
  const ForkGuard guard_;
  const pid_t process_ = getpid();
};

}  // namespace ropewalk::pytorch
