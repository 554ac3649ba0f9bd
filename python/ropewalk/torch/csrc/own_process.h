// What a forked child inherits: objects of threads that are not there, and locks that these may
// hold. There nothing is waited for and nothing destroyed, and calls are errors.
#pragma once

#include <unistd.h>

#include <utility>

namespace ropewalk::pytorch {

/// Part of what belongs to the process that made it.
class OwnProcess {
 public:
  bool is_forked() const { return getpid() != process_; }
  /// Throws DistBackendError in a forked child.
  void require(int rank, const char* operation) const;

 private:
  const pid_t process_ = getpid();
};

/// What a forked child must not destroy.
template <class T>
void keep_forever(T&& object) {
  new auto(std::forward<T>(object));
}

}  // namespace ropewalk::pytorch
