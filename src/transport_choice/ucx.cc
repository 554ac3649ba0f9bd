#include "transport_choice/ucx.h"

#include "ropewalk/status.h"
#include "transports/ucx/config.h"
#include "transports/ucx/resources.h"
#include "transports/ucx/ucx_sharing.h"
#include "transports/ucx/ucx_transport.h"
#include "transports/ucx/wires.h"

namespace ropewalk {

UcxReport look_at_ucx() {
  UcxReport report;
  try {
    report.version = ucx::version();
    const ucx::Config config;
    const std::string wires = config.wires(), devices = config.devices();
    report.shares_memory = ucx::allows_shared_memory(wires);
    for (const ucx::Resource& resource : ucx::find_resources()) {
      report.all.push_back(resource.transport + "/" + resource.device);
      if (resource.is_fabric() && ucx::allows_transport(wires, resource.transport) &&
          ucx::allows_device(devices, resource.device))
        report.fabrics.push_back(report.all.back());
    }
  } catch (const Error& error) {
    report.version.clear();
    report.why_not = error.failure().reason + "; " + error.failure().advice;
  }
  return report;
}

std::unique_ptr<shm::Sharing> make_ucx_sharing() {
  return std::make_unique<ucx::UcxSharing>();
}

std::unique_ptr<Transport> make_ucx_transport(int rank, int size, SocketSource& sockets) {
  return std::make_unique<UcxTransport>(rank, size, sockets);
}

}  // namespace ropewalk
