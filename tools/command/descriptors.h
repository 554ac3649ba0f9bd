// The descriptors of this process: standard ones, and how many it may have.
#pragma once

#include <sys/resource.h>

#include <string_view>

namespace ropewalk::tools {

/// Opens /dev/null in place of standard descriptors that are closed: else the next ones that are
/// opened would take their numbers. It is opened for reading, so writes fail as they would.
void occupy_standard_descriptors();

/// The limit on open files (ulimit -n). A program that is started must get the user's own back.
class DescriptorLimit {
 public:
  DescriptorLimit();
  /// Raises the soft limit to `needed` where it is lower. Throws Error(exhausted) where the hard
  /// limit does not allow it; `what` is what needs them: "an agent with 40 ranks".
  void raise_to(rlim_t needed, std::string_view what) const;
  /// How many it could be raised to.
  rlim_t most() const { return found_.rlim_max; }
  /// As it was when the object was made.
  void restore() const;

 private:
  rlimit found_{};
};

}  // namespace ropewalk::tools
