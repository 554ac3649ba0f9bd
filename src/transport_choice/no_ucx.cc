// In place of ucx.cc where Ropewalk is built without UCX.
#include "ropewalk/status.h"
#include "transport_choice/ucx.h"

namespace ropewalk {

namespace {

constexpr const char* kWayOut =
    "sudo apt-get install libucx-dev, then build again with meson setup -Ducx=enabled";

[[noreturn]] void refuse() {
  throw Error(ErrorCode::unavailable, "ucx", "this Ropewalk is built without UCX", kWayOut);
}

}  // namespace

UcxReport look_at_ucx() {
  UcxReport report;
  report.why_not = std::string("it is not built in; ") + kWayOut;
  return report;
}

std::unique_ptr<shm::Sharing> make_ucx_sharing() {
  refuse();
}

std::unique_ptr<Transport> make_ucx_transport(int, int, SocketSource&) {
  refuse();
}

}  // namespace ropewalk
