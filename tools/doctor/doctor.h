// What of this machine can hinder Ropewalk, each with the exact way out. What concerns one
// transport its provider finds.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/net.h"
#include "transport_choice/provider.h"

namespace ropewalk::tools {

// Limits, memory, processors (machine.cc).
Diagnosis check_memlock();
Diagnosis check_open_files();
Diagnosis check_memory();
Diagnosis check_huge_pages();
Diagnosis check_memfd();
Diagnosis check_unmap_watch();  // registrations of plain memory can be kept
Diagnosis check_peer_memory();  // another process of this user can open our memory file
Diagnosis check_cpus();
// What the environment tells of a job (launcher.cc).
/// Rank, size and where rank 0 is, and what else the ranks need to meet there.
std::vector<Diagnosis> check_launcher();
// Network (network.cc).
std::vector<Diagnosis> check_interfaces();
/// Whether the coordinator accepts connections, tried for at most 3 s.
Diagnosis check_coordinator(const bootstrap::Endpoint& coordinator);

}  // namespace ropewalk::tools
