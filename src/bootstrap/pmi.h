// PMI-1: the key-value store of a launcher, MPICH's and its kin. Each rank inherits a socket,
// PMI_FD, over which it asks in lines of "cmd=NAME key=value ...". Source: P. Balaji et al., "PMI:
// A Scalable Parallel Process-Management Interface for Extreme-Scale Systems", EuroMPI 2010.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "bootstrap/config.h"
#include "bootstrap/world.h"
#include "ropewalk/fork.h"
#include "ropewalk/rendezvous.h"

namespace ropewalk::bootstrap {

/// What this process says to its launcher, which awaits a goodbye of everyone that it has served.
/// Calls throw Error(timeout) after `timeout` without an answer, and Error(unavailable) where there
/// is no sense in it. One thread at a time.
class Pmi {
 public:
  /// `fd` stays the launcher's.
  Pmi(int fd, std::chrono::nanoseconds timeout);
  Pmi(const Pmi&) = delete;
  Pmi& operator=(const Pmi&) = delete;
  /// Says goodbye, except in a forked child.
  ~Pmi();

  /// Neither may have blanks or '='. Other ranks see it after a barrier.
  void put(const std::string& key, const std::string& value);
  std::string get(const std::string& key);
  /// Until all ranks have come here.
  void barrier();

 private:
  using Answer = std::map<std::string, std::string>;
  /// Sends a line, and reads the one that answers it, whose `cmd` must be `expected`.
  Answer ask(const std::string& request, const char* expected);
  std::string read_line(const std::string& request);

  const int fd_;
  std::chrono::nanoseconds timeout_;
  const ForkGuard process_;
  std::string received_;  // beyond the last line
  std::string store_;     // "kvsname"
  size_t value_bytes_max_ = 0;
};

/// Has all ranks of `identity` learn over identity.pmi_fd where rank 0 listens, and a key where
/// they have none: completes both. On rank 0 the result must live until it has joined. Every rank
/// must call it as often. Throws Error.
std::optional<Rendezvous> meet_over_pmi(JobIdentity& identity, Config& config);

}  // namespace ropewalk::bootstrap
