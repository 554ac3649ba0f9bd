// What a launcher keeps for the ranks that it has started, before they have met.
#pragma once

#include <string>

namespace ropewalk::bootstrap {

class EndedRanks;

/// Calls throw Error(timeout) where the launcher does not answer in time, and Error(unavailable)
/// where it answers what makes no sense. One thread at a time.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  /// This process is a child of the launcher's: the launcher does not know it.
  virtual bool is_forked() const = 0;
  /// Other ranks see it after a barrier. Neither may have blanks, '=' or ';'.
  virtual void put(const std::string& key, const std::string& value) = 0;
  /// What rank 0 has put.
  virtual std::string get(const std::string& key) = 0;
  /// Until all ranks have come here.
  virtual void barrier() = 0;
  /// Of which the launcher tells from now on; null: of none. Lives as long as the process.
  virtual EndedRanks* ended_ranks() { return nullptr; }
};

}  // namespace ropewalk::bootstrap
