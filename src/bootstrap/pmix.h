// PMIx: the key-value store of Slurm, Open MPI 5 and PRRTE, through the libpmix.so.2 of the
// launcher (dlopen: nothing is needed to build). Source: the PMIx standard, version 4,
// www.pmix.org.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "bootstrap/key_value_store.h"
#include "ropewalk/fork.h"
#include "ropewalk/status.h"

namespace ropewalk::bootstrap {

namespace pmix {
class EndEvents;
struct Library;
}  // namespace pmix

/// One client of the launcher's server, until its end. MPI in the same process may be another: PMIx
/// counts them.
class Pmix final : public KeyValueStore {
 public:
  /// Connects to the server that the launcher's variables name. Throws Error(unavailable) where
  /// there is no libpmix, or no server.
  explicit Pmix(std::chrono::nanoseconds timeout);
  Pmix(const Pmix&) = delete;
  Pmix& operator=(const Pmix&) = delete;
  /// Finalizes, except in a forked child.
  ~Pmix() override;

  /// Which libpmix it would be. Throws Error(unavailable) where there is none.
  static std::string library_path();

  bool is_forked() const override { return process_.is_forked(); }
  int rank() const;
  int size();
  void put(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key) override;
  /// Throws Error(peer_lost) as soon as the launcher says that a rank has ended.
  void barrier() override;
  EndedRanks* ended_ranks() override;

 private:
  const std::chrono::nanoseconds timeout_;
  const ForkGuard process_;
  const std::unique_ptr<pmix::Library> library_;
  std::unique_ptr<pmix::EndEvents> events_;
};

}  // namespace ropewalk::bootstrap
