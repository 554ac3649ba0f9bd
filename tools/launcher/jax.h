// What ranks need to run JAX's collectives over Ropewalk: integrations/jax.
#pragma once

#include <string>
#include <vector>

#include "tools/launcher/hosts.h"

namespace ropewalk::tools {

/// "NAME=value" for every rank: the library that jaxlib loads, and where JAX's processes meet
/// unless JAX_COORDINATOR_ADDRESS or an entry of `given` says so. `hosts`: of the job; empty: all
/// ranks are here. Throws Error(unavailable) without the library, which other hosts must have at
/// the same path.
std::vector<std::string> jax_environment(const std::vector<HostSlots>& hosts,
                                         const std::vector<std::string>& given);

}  // namespace ropewalk::tools
