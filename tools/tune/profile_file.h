// The file of a tuning profile that is being measured.
#pragma once

#include <string>

#include "job/tuning.h"

namespace ropewalk::tools {

/// Always whole: what is written takes the place of what was there at once.
class ProfileFile {
 public:
  /// Throws Error at once where it could not be written.
  explicit ProfileFile(std::string path);

  /// While some jobs have not been measured: those of the profile that was there before, of the
  /// same hosts, stay until they are. Throws Error.
  void save_part(const TuningProfile& profile) const;
  void save(const TuningProfile& profile) const;

 private:
  [[noreturn]] void fail() const;

  const std::string path_, written_;
};

}  // namespace ropewalk::tools
