#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>

#include "bootstrap/config.h"
#include "bootstrap/net.h"
#include "ropewalk/status.h"
#include "tools/doctor/doctor.h"
#include "tools/launcher/listener.h"

namespace ropewalk::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kConnectTimeout{3};

// 0, or errno of the attempt.
int try_connect(const addrinfo& address, Clock::time_point deadline) {
  const UniqueFd fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno;
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd writable{fd.get(), POLLOUT, 0};
  if (::poll(&writable, 1, static_cast<int>(std::max<int64_t>(0, left))) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

std::vector<Diagnosis> check_interfaces() {
  std::vector<Diagnosis> found;
  try {
    const std::string prefix = config_from_environment().socket_ifname;
    std::map<std::string, std::vector<std::string>> by_name;
    for (const auto& local : bootstrap::local_addresses(prefix)) {
      if (local.is_up) by_name[local.interface].push_back(local.address.ip());
    }
    for (const auto& [name, addresses] : by_name) {
      found.push_back(
          {Severity::ok, "interface " + name, fmt::format("{}", fmt::join(addresses, ", ")), ""});
    }
    const Listener listener = listen_for_ranks(false);
    std::string choice;
    bootstrap::advertised_addresses(std::span(&listener.socket, 1), prefix, choice);
    found.push_back({Severity::ok, "interface choice", choice, ""});
    if (by_name.size() == 1 && by_name.begin()->first == "lo") {
      found.push_back({Severity::warn, "network", "only loopback is up: jobs stay on this machine",
                       "ip link; sudo ip link set DEVICE up"});
    }
  } catch (const Error& error) {
    found.push_back({Severity::fail, "interfaces", error.failure().reason, error.failure().advice});
  }
  return found;
}

Diagnosis check_coordinator(const bootstrap::Endpoint& coordinator) {
  const std::string& host = coordinator.host;
  const std::string port = std::to_string(coordinator.port);
  const std::string name = bootstrap::to_text(coordinator);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int name_error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  if (name_error != 0) {
    return {Severity::fail, "coordinator",
            fmt::format("{} has no address: {}", host, gai_strerror(name_error)),
            fmt::format("getent hosts {}; or use an IP address", host)};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  const auto deadline = Clock::now() + kConnectTimeout;
  int error = 0;
  for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
    error = try_connect(*address, deadline);
    if (error == 0) return {Severity::ok, "coordinator", name + " accepts connections", ""};
  }
  return {Severity::fail, "coordinator", fmt::format("{}: {}", name, strerror(error)),
          error == ECONNREFUSED
              ? fmt::format("see that rank 0 runs and listens there: ss -ltn 'sport = :{}'", port)
              : fmt::format("check routes and firewall: ip route get {}", host)};
}

}  // namespace ropewalk::tools
