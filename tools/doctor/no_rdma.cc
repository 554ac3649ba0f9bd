// In place of rdma.cc where Ropewalk is built without libibverbs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "bootstrap/config.h"
#include "tools/doctor/doctor.h"
#include "transport_choice/rdma.h"

namespace ropewalk::tools {

std::vector<Diagnosis> check_rdma() {
  std::vector<std::string> devices;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", error))
    devices.push_back(entry.path().filename());
  const Rdma rdma(config_from_environment());
  if (devices.empty())
    return {{Severity::ok, "rdma", "no RDMA adapter here: shared memory and TCP are used", ""}};
  return {{Severity::warn, "rdma",
           fmt::format("{}: not used: {}", fmt::join(devices, ", "), rdma.why_not().front()), ""}};
}

}  // namespace ropewalk::tools
