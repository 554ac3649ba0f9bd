#include <fmt/format.h>

#include <cstdlib>

#include "bootstrap/config.h"
#include "bootstrap/munge.h"
#include "bootstrap/pmix.h"
#include "bootstrap/world.h"
#include "ropewalk/status.h"
#include "tools/doctor/doctor.h"

namespace ropewalk::tools {
namespace {

Diagnosis failed(const char* name, const Error& error) {
  return {Severity::fail, name, error.failure().reason, error.failure().advice};
}

/// Whose word the ranks take for where rank 0 is, tried as far as one rank can.
Diagnosis check_discovery(DiscoveryMethod discovery) {
  try {
    if (discovery == DiscoveryMethod::pmix)
      return {Severity::ok, "PMIx", bootstrap::Pmix::library_path(), ""};
    const bootstrap::Munge munge;
    std::string why;
    if (munge.decode(munge.encode("ropewalk doctor"), why))
      return {Severity::ok, "munge", "makes credentials, and opens them", ""};
    return {Severity::fail, "munge", why, "systemctl status munge"};
  } catch (const Error& error) {
    return failed(discovery == DiscoveryMethod::pmix ? "PMIx" : "munge", error);
  }
}

Diagnosis check_key(const JobIdentity& identity, const Config& config) {
  if (!config.job_key.empty())
    return {Severity::ok, "job key", "set (ROPEWALK_JOB_KEY or ROPEWALK_JOB_KEY_FILE)", ""};
  if (identity.discovery != DiscoveryMethod::coordinator)
    return {Severity::ok, "job key", "drawn by rank 0, and told with its address", ""};
  return {config.open ? Severity::ok : Severity::warn, "job key",
          config.open ? "none, and ROPEWALK_OPEN=1: who reaches rank 0 can join"
                      : "none: the ranks can meet on this host's loopback alone",
          config.open ? "" : kKeyAdvice};
}

}  // namespace

std::vector<Diagnosis> check_launcher() {
  std::vector<Diagnosis> found;
  try {
    const Config config = config_from_environment();
    const JobIdentity identity = find_identity(Options{}, config, std::getenv);
    found.push_back({Severity::ok, "launcher", describe(identity), ""});
    if (identity.size == 1) return found;
    found.push_back(check_key(identity, config));
    if (identity.discovery == DiscoveryMethod::pmix || identity.discovery == DiscoveryMethod::munge)
      found.push_back(check_discovery(identity.discovery));
  } catch (const Error& error) {
    found.push_back(failed("launcher", error));
  }
  return found;
}

}  // namespace ropewalk::tools
