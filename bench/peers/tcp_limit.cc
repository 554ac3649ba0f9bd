// What two processes reach over --interface with nothing but sockets. Variants: exchange (each
// sends the whole vector while it receives as much, as any all_reduce of two ranks must) and
// ping_pong (the vector there and back; the time is of one way).
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <system_error>

#include "measure.h"

namespace ropewalk::peers {
namespace {

constexpr size_t kWindowBytes = 256 << 10;  // what comes in is dropped: it stays in the cache

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

class SocketRunner final : public PlainRunner {
 public:
  SocketRunner(const PeerOptions& options, const tools::BenchShape& shape, int fd, int rank)
      : PlainRunner(options, shape),
        fd_(fd),
        rank_(rank),
        bytes_(shape.bytes),
        ping_pong_(options.variant == "ping_pong"),
        sleeps_(options.shared_cores),
        window_(plain_memory(kWindowBytes)) {}

  void run() override {
    if (!ping_pong_) {
      move(bytes_, bytes_);
    } else if (rank_ == 0) {
      move(bytes_, 0);
      move(0, bytes_);
    } else {
      move(0, bytes_);
      move(bytes_, 0);
    }
  }
  bool has_result() const override { return false; }
  int trips() const override { return ping_pong_ ? 2 : 1; }

 private:
  // Sends and receives at the same time.
  void move(size_t to_send, size_t to_receive) {
    while (to_send > 0 || to_receive > 0) {
      if (sleeps_) sleep_until_ready(to_send > 0, to_receive > 0);
      if (to_send > 0) {
        to_send -=
            progress(send(fd_, in() + bytes_ - to_send, to_send, MSG_DONTWAIT | MSG_NOSIGNAL));
      }
      if (to_receive > 0) {
        to_receive -=
            progress(recv(fd_, window_.get(), std::min(to_receive, kWindowBytes), MSG_DONTWAIT));
      }
    }
  }
  void sleep_until_ready(bool to_send, bool to_receive) const {
    const int events = (to_send ? POLLOUT : 0) | (to_receive ? POLLIN : 0);
    pollfd ready{fd_, static_cast<int16_t>(events), 0};
    poll(&ready, 1, -1);
  }
  static size_t progress(ssize_t moved) {
    if (moved > 0) return static_cast<size_t>(moved);
    if (moved == 0) throw std::runtime_error("the other rank has gone");
    if (errno != EAGAIN && errno != EINTR) fail("socket");
    return 0;
  }

  int fd_, rank_;
  size_t bytes_;
  bool ping_pong_, sleeps_;
  std::shared_ptr<std::byte[]> window_;
};

sockaddr_in address_of(int fd, const std::string& interface) {
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  if (ioctl(fd, SIOCGIFADDR, &request) != 0) fail("address of --interface");
  return *reinterpret_cast<sockaddr_in*>(&request.ifr_addr);
}

int connect_ranks(int rank, const std::string& interface, Segment& segment) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  if (rank == 0) {
    address = address_of(fd, interface);
    if (bind(fd, any, length) != 0 || listen(fd, 1) != 0 || getsockname(fd, any, &length) != 0)
      fail("listen");
    segment->address = address.sin_addr.s_addr;
    segment->port = address.sin_port;
    const int listener = fd;
    fd = accept(listener, nullptr, nullptr);
    close(listener);
    if (fd < 0) fail("accept");
  } else {
    while (segment->port == 0) sched_yield();
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = segment->address;
    address.sin_port = segment->port;
    if (connect(fd, any, length) != 0) fail("connect");
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

int run_peer(int argc, char** argv) {
  const PeerOptions options = parse_options(argc, argv);
  if (options.ranks != 2 || options.kind.collective != Collective::all_reduce)
    throw std::invalid_argument("two ranks and all_reduce only");
  const int rank = launched_rank();
  const Waiting waiting = bind_to_core(options, rank);
  Segment segment(options.segment);
  const int fd = connect_ranks(rank, options.interface, segment);
  measure(options, rank, waiting, segment, [&](const tools::BenchShape& shape) {
    return std::make_unique<SocketRunner>(options, shape, fd, rank);
  });
  close(fd);
  return 0;
}

}  // namespace
}  // namespace ropewalk::peers

int main(int argc, char** argv) {
  return ropewalk::peers::run_program("tcp_limit", ropewalk::peers::run_peer, argc, argv);
}
