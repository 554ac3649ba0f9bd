#include "tools/launcher/jax.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "ropewalk/status.h"
#include "tools/launcher/listener.h"

namespace ropewalk::tools {
namespace {

constexpr const char* kAddress = "JAX_COORDINATOR_ADDRESS";

/// Beside this program: as installed, in a build folder, or as pip installs.
std::string jax_library() {
  namespace fs = std::filesystem;
  constexpr const char* kOfPip = ".ropewalk.mesonpy.libs";
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<fs::path> places{folder / ".." / ROPEWALK_LIBDIR, folder / "../integrations/jax",
                               folder / "../.." / kOfPip};
  for (const auto& entry : fs::directory_iterator(folder / "../lib", error))
    places.push_back(entry.path() / "site-packages" / kOfPip);
  for (const fs::path& place : places) {
    const fs::path path = (place / "libropewalk-jax.so").lexically_normal();
    if (fs::exists(path, error)) return path;
  }
  throw Error(ErrorCode::unavailable, "run --jax",
              fmt::format("there is no libropewalk-jax.so beside {}", folder.string()),
              "install the package or the wheel of Ropewalk, whose programs have it");
}

/// Free now: JAX listens there itself, a little later. On other hosts nobody can tell, so below
/// those that connections take.
int port_for(const std::vector<HostSlots>& hosts) {
  if (hosts.empty()) return listen_for_ranks(true).port;
  std::random_device random;
  return 20000 + static_cast<int>(random() % 12000);
}

std::string host_of(const std::vector<HostSlots>& hosts) {
  if (hosts.empty()) return "127.0.0.1";
  const std::string& host = hosts[0].host;
  return host.substr(host.find('@') + 1);
}

}  // namespace

std::vector<std::string> jax_environment(const std::vector<HostSlots>& hosts,
                                         const std::vector<std::string>& given) {
  std::vector<std::string> entries{"MPITRAMPOLINE_LIB=" + jax_library(),
                                   "JAX_CPU_COLLECTIVES_IMPLEMENTATION=mpi"};
  const bool is_given = std::ranges::any_of(given, [](const std::string& entry) {
    return entry.starts_with(std::string(kAddress) + "=");
  });
  if (!is_given && getenv(kAddress) == nullptr)
    entries.push_back(fmt::format("{}={}:{}", kAddress, host_of(hosts), port_for(hosts)));
  return entries;
}

}  // namespace ropewalk::tools
