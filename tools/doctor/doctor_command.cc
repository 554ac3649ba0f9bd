// ropewalk doctor: prints what check_* of doctor.h, and the transports, find.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "ropewalk/status.h"
#include "tools/command/command.h"
#include "tools/doctor/doctor.h"

namespace ropewalk::tools {
namespace {

constexpr const char* kDoctorExamples =
    "Examples:\n"
    "  ropewalk doctor\n"
    "  ropewalk doctor --coordinator node1:29500\n"
    "  ropewalk run --hosts node1:1,node2:1 -- ropewalk doctor\n"
    "  srun -N2 -n4 ropewalk doctor           (what the ranks would take from Slurm, and why)\n"
    "Exit status: 0; 1 where a line says FAIL; 2 for wrong input.";

std::optional<bootstrap::Endpoint> endpoint_of(const std::string& coordinator) {
  if (coordinator.empty()) return {};
  const auto endpoint = bootstrap::parse_endpoint(coordinator);
  if (endpoint) return endpoint;
  throw Error(
      ErrorCode::invalid_argument, "doctor",
      fmt::format("--coordinator \"{}\" is not host:port with a port from 1 to 65535", coordinator),
      "write --coordinator node1:29500");
}

int run_doctor(const std::string& coordinator_text) {
  const auto coordinator = endpoint_of(coordinator_text);
  std::vector<Diagnosis> all = {check_memlock(),     check_open_files(), check_memory(),
                                check_huge_pages(),  check_memfd(),      check_unmap_watch(),
                                check_peer_memory(), check_cpus()};
  const auto add = [&all](std::vector<Diagnosis> found) {
    std::move(found.begin(), found.end(), std::back_inserter(all));
  };
  add(check_launcher());
  add(check_interfaces());
  for (const TransportProvider* provider : transport_providers())
    if (provider->diagnose != nullptr) add(provider->diagnose());
  if (coordinator) all.push_back(check_coordinator(*coordinator));
  bool failed = false;
  for (const Diagnosis& diagnosis : all) {
    fmt::print("{}\n", line_of(diagnosis));
    failed = failed || diagnosis.severity == Severity::fail;
  }
  return failed ? 1 : 0;
}

}  // namespace

void add_doctor_command(Command app, Request& request) {
  auto coordinator = std::make_shared<std::string>();
  Command doctor =
      app.add_command("doctor", "what of this machine can hinder Ropewalk", kDoctorExamples);
  doctor.add_option("--coordinator", *coordinator, "host:port that should accept connections");
  doctor.set_action(request, [coordinator] { return run_doctor(*coordinator); });
}

}  // namespace ropewalk::tools
