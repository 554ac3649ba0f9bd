// In place of rdma.cc where Ropewalk is built without libibverbs.
#include "ropewalk/status.h"
#include "transport_choice/rdma.h"

namespace ropewalk {

struct Rdma::Ports {};

Rdma::Rdma(const Config& config)
    : config_(config),
      why_not_{
          "its Ropewalk is built without verbs; sudo apt-get install libibverbs-dev, then build "
          "again with meson setup -Dverbs=enabled"} {}

Rdma::~Rdma() = default;

std::unique_ptr<Transport> Rdma::make_transport(
    int, SocketSource&, const std::vector<std::vector<verbs::PortInfo>>&) const {
  throw Error(ErrorCode::unavailable, "verbs", why_not_.front());
}

}  // namespace ropewalk
