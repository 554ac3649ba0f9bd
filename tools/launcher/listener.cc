#include "tools/launcher/listener.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "ropewalk/status.h"

namespace ropewalk::tools {
namespace {

// SSH_CONNECTION is "client_ip client_port server_ip server_port".
std::string address_from_ssh() {
  const char* text = getenv("SSH_CONNECTION");
  std::istringstream words(text != nullptr ? text : "");
  std::string client, client_port, server;
  words >> client >> client_port >> server;
  const bool is_loopback = server.starts_with("127.") || server == "::1";
  // A link-local address means something else on every host.
  return is_loopback || server.find('%') != std::string::npos ? "" : server;
}

[[noreturn]] void fail_socket(const char* step) {
  throw Error(ErrorCode::system, "coordinator socket", fmt::format("{}: {}", step, strerror(errno)),
              "see that the loopback interface is up: ip link show lo");
}

}  // namespace

Listener listen_for_ranks(bool loopback_only) {
  Listener listener;
  listener.address = loopback_only ? "127.0.0.1" : address_from_ssh();
  const bool is_v6 = listener.address.find(':') != std::string::npos;
  listener.socket = UniqueFd(socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.socket) fail_socket("socket");
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
  auto* address = is_v6 ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
  socklen_t length = is_v6 ? sizeof v6 : sizeof v4;
  if (bind(listener.socket.get(), address, length) != 0) fail_socket("bind");
  if (listen(listener.socket.get(), SOMAXCONN) != 0) fail_socket("listen");
  if (getsockname(listener.socket.get(), address, &length) != 0) fail_socket("getsockname");
  listener.port = ntohs(is_v6 ? v6.sin6_port : v4.sin_port);
  return listener;
}

}  // namespace ropewalk::tools
