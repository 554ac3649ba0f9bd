// What of this machine can hinder Ropewalk, each with the exact way out.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/net.h"

namespace ropewalk::tools {

enum class Severity { ok, warn, fail };

struct Diagnosis {
  Severity severity = Severity::ok;
  std::string name, text;
  std::string advice;  // a command; empty where all is well
};

// Limits, memory, processors (machine.cc).
Diagnosis check_memlock();
Diagnosis check_open_files();
Diagnosis check_memory();
Diagnosis check_huge_pages();
Diagnosis check_memfd();
Diagnosis check_unmap_watch();  // registrations of plain memory can be kept
Diagnosis check_peer_memory();  // another process of this user can open our memory file
Diagnosis check_cpus();
// Network (network.cc).
std::vector<Diagnosis> check_interfaces();
/// Whether the coordinator accepts connections, tried for at most 3 s.
Diagnosis check_coordinator(const bootstrap::Endpoint& coordinator);

/// Adapters, ports, GIDs, and what a rank would take of them (rdma.cc; where Ropewalk is
/// built without libibverbs no_rdma.cc). Problems are failures where ROPEWALK_* variables
/// demand RDMA.
std::vector<Diagnosis> check_rdma();

/// UCX, what it has here, and whether it is built in (ucx.cc).
Diagnosis check_ucx();

/// "ok    memlock: text; advice: command".
std::string line_of(const Diagnosis& diagnosis);

}  // namespace ropewalk::tools
