#include "ucx.h"

#include "ropewalk/status.h"
#include "transports/ucx/resources.h"
#include "transports/ucx/ucx_transport.h"

namespace ropewalk {

UcxReport look_at_ucx() {
  UcxReport report;
  try {
    report.version = ucx::version();
  } catch (const Error& error) {
    report.why_not = error.failure().reason + "; " + error.failure().advice;
    return report;
  }
  for (const ucx::Resource& resource : ucx::find_resources()) {
    report.all.push_back(resource.transport + "/" + resource.device);
    if (resource.is_fabric()) report.fabrics.push_back(report.all.back());
  }
  return report;
}

std::unique_ptr<Transport> make_ucx_transport(int rank, SocketSource& sockets,
                                              std::vector<bool> is_local) {
  return std::make_unique<UcxTransport>(rank, sockets, std::move(is_local));
}

}  // namespace ropewalk
