// Who this host and this process's surroundings are.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/read_file.h"
#include "topology/topology.h"

namespace ropewalk {
namespace {

/// "pid4026531836". Without /proc no other process's files can be mapped, so the process then gets
/// a namespace of its own.
std::string namespace_id(const char* kind) {
  struct stat status;
  if (::stat(fmt::format("/proc/self/ns/{}", kind).c_str(), &status) == 0)
    return fmt::format("{}{}", kind, status.st_ino);
  return fmt::format("{}-of-process-{}", kind, ::getpid());
}

}  // namespace

std::string host_identity() {
  std::string boot_id = read_file("/proc/sys/kernel/random/boot_id").value_or("");
  while (boot_id.ends_with('\n')) boot_id.pop_back();
  if (boot_id.empty()) boot_id = host_name();
  return fmt::format("{}/{}/{}/uid{}", boot_id, namespace_id("pid"), namespace_id("user"),
                     ::geteuid());
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "unknown";
  return name;
}

}  // namespace ropewalk
