// How ranks find rank 0 where nobody has set its address: through what has started them.
#pragma once

#include <memory>
#include <optional>

#include "bootstrap/config.h"
#include "bootstrap/ended_ranks.h"
#include "bootstrap/munge.h"
#include "bootstrap/world.h"
#include "ropewalk/rendezvous.h"

namespace ropewalk::bootstrap {

/// What rank 0 must keep until all have joined.
struct Discovery {
  std::optional<Rendezvous> rendezvous;
  std::unique_ptr<CredentialServer> credentials;
  EndedRanks* ended_ranks = nullptr;  // of the process, where the launcher tells of them
};

/// Has all ranks of `identity` learn from rank 0, as identity.discovery tells, where it listens,
/// and a key where they have none: completes both. Every rank must call it as often. Throws Error.
/// Thread-safe.
Discovery discover(JobIdentity& identity, Config& config);

}  // namespace ropewalk::bootstrap
