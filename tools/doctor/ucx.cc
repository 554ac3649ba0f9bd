#include "transport_choice/ucx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/doctor/doctor.h"

namespace ropewalk::tools {

Diagnosis check_ucx() {
  const UcxReport report = look_at_ucx();
  if (report.version.empty())
    return {Severity::ok, "ucx", "ROPEWALK_TRANSPORT=ucx cannot be used: " + report.why_not, ""};
  return {Severity::ok, "ucx",
          fmt::format(
              "version {}; transports and devices: {}; shared memory: {}; fabrics besides sockets "
              "that UCX_TLS and UCX_NET_DEVICES allow: {}",
              report.version, fmt::join(report.all, ", "), report.shares_memory ? "yes" : "no",
              report.fabrics.empty() ? "none" : fmt::format("{}", fmt::join(report.fabrics, ", "))),
          ""};
}

}  // namespace ropewalk::tools
