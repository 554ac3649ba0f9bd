// Which option overrides which variable, said once for both ways.
#pragma once

#include "bootstrap/config.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

/// Calls `visit(option, setting)` for each pair. Where the job is to be found is not among them:
/// `find_identity` (bootstrap/world.h) looks at more than options and variables.
template <class AnyOptions, class AnyConfig, class Visit>
void visit_settings(AnyOptions& options, AnyConfig& config, Visit visit) {
  visit(options.key, config.job_key);
  visit(options.transport, config.transport);
  visit(options.timeout, config.timeout);
  visit(options.progress_thread, config.progress_thread);
  visit(options.progress_cpu, config.progress_cpu);
}

}  // namespace ropewalk
